"""Histories of every kind, reachable or not, told to a real log: its rows are what memory folds, fact by fact (MSG-1).

The machine tells each fact twice, to rows through `Unit.append` on a SQLite file and to `projection.apply`, and holds
the two against each other after every commit. What one refuses, the other refuses. At the end one builder is told the
whole log, and a rebuild makes the same rows again, byte for byte. And whatever the history, the request lowered from it
passes the strict pairing check (MSG-9).
"""

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from perdure import ids
from perdure.core import codec, events, inbox, lowering, messages, projection, request, transcript
from perdure.core.value import names

FAILURE = messages.Failure("rate_limit", "Too much")
TOKENS = messages.Tokens(7, 5, 3, 2, 1)
CALLS = ("call_1", "call_2", "call_3")
SPEAKER = request.Speaker("scripted", "m")
PICK = st.integers(0, 5)
JSON = st.dictionaries(
    st.text(max_size=3), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5), max_size=2
)
EFFECT = st.sampled_from(["read", "idempotent", "write"])
LONG = "as long as an answer may be, and longer than what stays in a row. " * 4
MAYBE_TEXT = st.text(max_size=6) | st.just(LONG)

OFFSTAGE = {events.SessionCreated, events.SessionDeleted, events.StepRecovered}
STRAY = [cls for cls in codec.SESSION_FACTS if cls not in OFFSTAGE]
VALUES = {
    (events.ExecutionEnded, "reason"): [None, "why"],
    (events.PromptWithdrawn, "reason"): ["cancelled", "superseded", "failed"],
    (events.CompactionStarted, "reason"): ["auto", "manual"],
    (events.ToolFailed, "content"): [None, (), ({"text": "x"},), ({"text": LONG},)],
    (events.UsageRecorded, "tokens"): [None, TOKENS],
    "agent": ["main", "other"],
    "at": [5],
    "attempt": [1, 2],
    "by": ["me"],
    "call_id": CALLS,
    "changes": [events.Changes(), events.Changes(policy=events.Policy("ask", max_steps=2))],
    "content": [(), ({"text": "x"},), ({"text": LONG},)],
    "cost": [None, 3],
    "deadline": [None, 9],
    "decision": ["approve", "deny"],
    "delivery": ["steer", "queue"],
    "effect": ["read", "idempotent", "write"],
    "error": [FAILURE],
    "finish": ["stop"],
    "input": [{}, {"a": [1, 2.5, None]}],
    "kind": ["user", "synthetic"],
    "model": ["scripted:m", "scripted:n"],
    "name": ["look"],
    "note": [None, "fine"],
    "outcome": ["succeeded", "failed", "interrupted"],
    "owner_id": ["own"],
    "previous": [None, "scripted:n"],
    "prompt": [messages.text_prompt("hi"), messages.text_prompt("")],
    "provider_executed": [False, True],
    "provider_metadata": [None, {"signature": "s"}],
    "purpose": ["turn", "compaction"],
    "reason": ["why"],
    "reasoning_id": ["part"],
    "prompts": [None, (0,), (3, 5)],
    "recent": ["", "msg"],
    "request_execution": [False, True],
    "source": ["summary"],
    "structured": [None, {"n": 1}],
    "summary": ["", "all"],
    "text": ["", "words"],
    "text_id": ["part"],
    "time_created": [5],
    "tokens": [None, TOKENS],
    "waiting": [(), ("call_1",)],
}


class Histories(RuleBasedStateMachine):
    """One session: plausible moves, crashes in every phase, and facts that come late, twice or out of nowhere."""

    desk = None  # a log on a file; set by the test, since the machine takes no fixtures

    def __init__(self):
        super().__init__()
        self.session_id = f"ses_{next(self.desk.sessions)}"
        self.numbers = itertools.count(1)
        self.held, self.told = projection.Projection(), []
        self.lowering = lowering.Lowering()

    # -- what the moves look at and say ----------------------------------------------------------------------------------

    def mint(self, prefix):
        return f"{prefix}_{self.session_id}_{next(self.numbers)}"

    def fact(self, cls, **fields):
        return cls(session_id=self.session_id, **fields)

    def tell(self, *payloads):
        self.held = self.desk.tell(self.held, payloads)
        self.told += payloads
        assert self.desk.rows(self.session_id) == self.held
        lowered = request.lower(self.held.transcript, SPEAKER, lambda _: None)
        draft = self.lowering.draft(self.held.transcript, SPEAKER)
        assert (draft.messages, draft.problem, request.check_pairs(lowered)) == (lowered, None, None)

    def step(self, cls, **fields):
        """A fact of the current assistant."""
        return self.fact(cls, assistant_message_id=self.current.id, **fields)

    @property
    def current(self):
        newest = self.held.transcript.newest_assistant()
        return newest if newest and newest.time.completed is None else None

    @property
    def execution_id(self):
        return self.held.session.execution_id

    def open_parts(self, kind):
        return [part for part in self.current.parts if isinstance(part, kind) and messages.part_is_open(part)]

    def pending(self):
        continuations = {one.continuation_message_id: one for one in self.held.recoveries.values()}
        waiting = sorted((one for one in self.held.inputs.values() if one.pending), key=lambda one: one.admitted_seq)
        return [
            inbox.Waiting(
                one.id,
                one.delivery,
                one.wake_pending,
                one.id in continuations,
                one.id in continuations and continuations[one.id].wake_pending,
            )
            for one in waiting
        ]

    def promotions(self, choice):
        for one in choice.supersede:
            yield self.fact(events.PromptWithdrawn, message_id=one, reason="superseded")
        for one in map(self.held.inputs.__getitem__, choice.promote):
            prompt = codec.load(one.prompt, messages.Prompt)
            common = {"kind": one.kind, "prompt": prompt, "delivery": one.delivery, "time_created": one.time_created}
            yield self.fact(events.PromptPromoted, message_id=one.id, **common)

    def settled(self):
        """The inputs that an end of the turn settles."""
        held = self.held.inputs
        running = [one for one in held.values() if one.promoted_seq is not None and one.outcome is None]
        return tuple(one.id for one in running if one.retried_by not in held or held[one.retried_by].promoted_seq)

    def settling(self):
        """Facts that settle every call of the current step."""
        for part in self.open_parts(messages.ToolPart):
            yield self.step(events.ToolFailed, call_id=part.call_id, error=FAILURE)

    def ended(self, outcome, **more):
        more["message_ids"] = self.settled()
        return self.fact(events.ExecutionEnded, execution_id=self.execution_id, outcome=outcome, **more)

    def start(self):
        return self.fact(events.StepStarted, assistant_message_id=self.mint("msg"), agent="main", model="scripted:m")

    # -- settings and inbox ----------------------------------------------------------------------------------------------

    @initialize(metadata=st.none() | JSON, model=st.none() | st.just("scripted:m"))
    def create(self, metadata, model):
        self.tell(self.fact(events.SessionCreated, agent="main", metadata=metadata, model=model))

    @rule(which=st.booleans(), text=MAYBE_TEXT, metadata=st.none() | JSON)
    def switch_or_say(self, which, text, metadata):
        a, b, c, d = (self.mint("msg") for _ in range(4))
        self.tell(
            self.fact(events.AgentSwitched, message_id=a, agent="other" if which else "main"),
            self.fact(events.ModelSwitched, message_id=b, model="scripted:m", previous=self.held.session.model),
            self.fact(events.SyntheticAdded, message_id=c, text=text),
            self.fact(events.ContextUpdated, message_id=d, text=text),
            self.fact(events.SessionUpdated, changes=events.Changes(text or None, metadata, which or None)),
        )

    @rule(delivery=st.sampled_from(["steer", "queue"]), text=MAYBE_TEXT, wanted=st.booleans())
    def admit(self, delivery, text, wanted):
        prompt, message_id = messages.text_prompt(text), self.mint("in")
        more = {"delivery": delivery, "request_execution": wanted, "kind": "user", "prompt": prompt}
        self.tell(self.fact(events.PromptAdmitted, message_id=message_id, **more))

    @precondition(lambda self: self.held.inputs)
    @rule(pick=PICK, what=st.sampled_from(["request", "withdraw", "steer", "queue", "retry"]))
    def touch_input(self, pick, what):
        one = [*self.held.inputs.values()][-1 - pick % len(self.held.inputs)]
        if what == "request":
            self.tell(self.fact(events.PromptExecutionRequested, message_id=one.id))
        elif what == "withdraw":
            self.tell(self.fact(events.PromptWithdrawn, message_id=one.id, reason="failed", error=FAILURE))
        elif what != "retry":
            self.tell(self.fact(events.PromptDeliveryChanged, message_id=one.id, delivery=what))
        elif one.promoted_seq is None:
            self.tell(self.fact(events.PromptRetried, message_id=one.id))
        else:
            again = ids.retry_message(one.id, one.retries + 1)
            prompt = messages.text_prompt("again")
            admitted = {"kind": "synthetic", "prompt": prompt, "delivery": "queue", "request_execution": True}
            self.tell(
                self.fact(events.PromptRetried, message_id=one.id, retry_message_id=again),
                self.fact(events.PromptAdmitted, message_id=again, **admitted),
            )

    # -- a turn ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.execution_id)
    @rule(text=MAYBE_TEXT, calls=st.integers(0, 3), ends=st.booleans())
    def begin(self, text, calls, ends):
        """A turn starts, for what waits or for a new prompt, and its first step says something and makes calls."""
        if not inbox.choose(self.pending(), turn_open=False).promote:
            self.admit("steer", text, wanted=True)
        choice = inbox.choose(self.pending(), turn_open=False)
        if choice.promote:
            opened = {"execution_id": self.mint("exe"), "owner_id": "own", "purpose": "turn", "attempt": 1}
            self.tell(*self.promotions(choice), self.fact(events.ExecutionStarted, **opened), self.start())
        if self.current and text:
            self.say(text, thinks=not ends, ends=ends, metadata={"signature": text})
        for call_id in CALLS[:calls] if self.current else ():
            self.call(call_id, {}, "read", 4, decision=True)

    @precondition(lambda self: self.current)
    @rule(text=MAYBE_TEXT, thinks=st.booleans(), ends=st.booleans(), metadata=st.none() | JSON)
    def say(self, text, thinks, ends, metadata):
        part_id = self.mint("part")
        if thinks:
            facts = [self.step(events.ReasoningStarted, reasoning_id=part_id)]
            more = {"text": text, "provider_metadata": metadata}
            facts += [self.step(events.ReasoningEnded, reasoning_id=part_id, **more)] if ends else []
        else:
            facts = [self.step(events.TextStarted, text_id=part_id)]
            facts += [self.step(events.TextEnded, text_id=part_id, text=text)] if ends else []
        self.tell(*facts)

    @precondition(lambda self: self.current)
    @rule(call_id=st.sampled_from(CALLS), given=JSON, effect=EFFECT, far=st.integers(0, 5), decision=st.booleans())
    def call(self, call_id, given, effect, far, decision):
        named = {"call_id": call_id}
        facts = [
            self.step(events.ToolInputStarted, **named, name="look"),
            self.step(events.ToolInputEnded, **named, text="{}"),
            self.step(events.ToolApprovalRequested, **named, input=given, deadline=9 if decision else None),
            self.step(events.ToolApprovalResolved, **named, decision="approve" if decision else "deny", by="me"),
            self.step(events.ToolCalled, **named, name="look", input=given, effect=effect),
        ]
        self.tell(*facts[: far + 1])

    @precondition(lambda self: self.current and self.open_parts(messages.ToolPart))
    @rule(
        pick=PICK,
        structured=st.none() | JSON,
        far=st.sampled_from(["progress", "succeeded", "failed"]),
        text=MAYBE_TEXT,
    )
    def settle_call(self, pick, structured, far, text):
        parts = self.open_parts(messages.ToolPart)
        shown = {"call_id": parts[pick % len(parts)].call_id, "structured": structured, "content": ({"text": text},)}
        if far == "failed":
            self.tell(self.step(events.ToolFailed, **shown, error=FAILURE))
        else:
            self.tell(self.step(events.ToolProgress if far == "progress" else events.ToolSucceeded, **shown))

    @precondition(lambda self: self.current and self.execution_id)
    @rule(how=st.sampled_from(["go_on", "retry", "succeeded", "failed", "interrupted"]), cost=st.none() | PICK)
    def end_step(self, how, cost):
        used = {"tokens": TOKENS, "cost": cost}
        ended = [*self.settling(), self.step(events.StepEnded, finish="stop", **used)]
        if how == "go_on":
            joining = inbox.choose(self.pending(), turn_open=True)
            self.tell(*ended, *self.promotions(joining), self.start())
        elif how == "retry":
            self.tell(self.step(events.RetryScheduled, attempt=2, at=self.desk.clock.now + 5, error=FAILURE))
        elif how == "succeeded":
            self.tell(*ended, self.ended("succeeded"))
        elif how == "failed":
            failed = self.step(events.StepFailed, error=FAILURE, **(used if cost else {}))
            self.tell(*self.settling(), failed, self.ended("failed", error=FAILURE))
        else:
            self.tell(
                self.fact(events.ExecutionInterruptRequested, execution_id=self.execution_id, reason="stop"),
                self.step(events.StepInterrupted, error=FAILURE),
                self.fact(events.UsageRecorded, source="step.interrupted"),
                self.ended("interrupted", reason="interrupt"),
            )

    @precondition(lambda self: self.execution_id)
    @rule(parked=st.booleans())
    def park(self, parked):
        which = {"execution_id": self.execution_id}
        if parked:
            self.tell(self.fact(events.ExecutionParked, **which, waiting=("call_1",)))
        else:
            self.tell(self.fact(events.ExecutionResumed, **which))

    @rule(how=st.sampled_from(["start", "end", "fail"]), recent=PICK, prompts=st.lists(PICK, max_size=2))
    def compact(self, how, recent, prompts):
        found = [one for one in self.held.transcript.messages if isinstance(one, messages.Compaction)]
        if how == "start" or not found:
            self.tell(self.fact(events.CompactionStarted, message_id=self.mint("msg"), reason="auto"))
        elif how == "end":
            told = self.held.transcript.messages
            kept = told[-1 - recent % len(told)].id
            asked = tuple(sorted(told[one % len(told)].seq for one in prompts)) or None
            fact = self.fact(events.CompactionEnded, message_id=found[-1].id, summary="all", recent=kept, prompts=asked)
            self.tell(fact)
        else:
            self.tell(self.fact(events.CompactionFailed, message_id=found[-1].id, error=FAILURE))

    # -- a crash, in every phase -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.execution_id and not self.held.session.parked)
    @rule(
        phase=st.sampled_from(["ready", "unknown", "continue", "safe"]),
        armed=st.booleans(),
        never=st.booleans(),
        waits=st.booleans(),
    )
    def crash(self, phase, armed, never, waits):
        """What recovery writes for a dead owner, whatever it had done so far; it may have waited for a next attempt."""
        if self.current and waits:
            self.tell(self.step(events.RetryScheduled, attempt=2, at=self.desk.clock.now + 5, error=FAILURE))
        dead, continuation = self.execution_id, ids.continue_message(self.execution_id)
        facts, current = [], self.current
        if current:
            parts = self.open_parts(messages.TextPart)
            facts += [self.step(events.TextEnded, text_id=part.id, text="as far as it got") for part in parts]
        amid = current.id if current and phase != "continue" else None
        named = {"execution_id": dead, "phase": phase, "assistant_message_id": amid, "armed": armed}
        facts.append(self.fact(events.StepRecovered, **named))
        said = {"kind": "synthetic", "prompt": messages.text_prompt("go on"), "delivery": "queue"}
        facts.append(self.fact(events.PromptAdmitted, message_id=continuation, **said))
        if never:
            facts.append(self.fact(events.PromptWithdrawn, message_id=continuation, reason="cancelled"))
            facts.append(self.ended("interrupted", reason="policy"))
        self.tell(*facts)

    # -- late, twice, out of nowhere -------------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 40))
    def again(self, pick):
        """A fact that was told before, or refused before, comes again."""
        self.tell(self.told[-1 - pick % len(self.told)])

    @rule(cls=st.sampled_from(STRAY), data=st.data())
    def stray(self, cls, data):
        """Any fact, about anything known or about nobody."""
        fields = {name: self.field(cls, name) for name in names(cls)}
        self.tell(data.draw(st.builds(cls, **fields)))

    def field(self, cls, name):
        known = [one.id for one in self.held.transcript.messages[-6:]]
        executions = [one.execution_id for one in self.held.recoveries.values()]
        pools = {
            "session_id": [self.session_id],
            "assistant_message_id": [*known, self.mint("msg")],
            "message_id": [*known, *[*self.held.inputs][-6:], self.mint("msg")],
            "message_ids": [(), (*self.held.inputs,), (*known,)],
            "execution_id": [*executions, self.execution_id or self.mint("exe"), self.mint("exe")],
            "retry_message_id": [None, self.mint("in"), *[*self.held.inputs][-2:]],
        }
        return st.sampled_from(pools.get(name) or VALUES.get((cls, name)) or VALUES[name])

    def teardown(self):
        if self.held.session is None:
            return
        told = self.desk.run(self.all_told())
        assert transcript_of(told) == self.held.transcript
        whole = projection.Builder()
        for event in [*told, *told]:
            whole.apply(event)
        assert whole.freeze() == self.held
        assert whole.freeze() == self.held
        before, after = self.desk.rebuilt(self.session_id)
        assert before == after
        self.tell(self.fact(events.SessionDeleted))
        assert self.held.session is None

    async def all_told(self):
        return await self.desk.log.read(self.session_id, limit=100_000)


def transcript_of(told):
    held = transcript.Transcript()
    for event in told:
        held = transcript.apply(held, event)
    return held


def test_rows_equal_the_fold_in_memory_whatever_the_history_msg_1_and_its_request_pairs_msg_9(desk):
    Histories.desk = desk
    chosen = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[*HealthCheck])
    run_state_machine_as_test(Histories, settings=chosen)
