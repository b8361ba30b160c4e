"""What a person sees of a session while it goes on: events in, things to say out.

Lives here: `View`, which turns each event into lines that are said once and for all and keeps what is still under way:
text in the making, running calls, waiting prompts, calls that wait for a person. Not here: how it looks
(`paper.py`, `screen.py`). It takes each fact once, in order; live text may come again from its beginning, which its
offset tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.cli import render, transcript
from perdure.cli.chat import blocks
from perdure.core import events, messages

Kind = Literal["user", "text", "reasoning", "done", "failed", "note", "error"]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    """Something to be printed and never changed."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Stream:
    """A part in the making: its text, and how much of it was said."""

    kind: Literal["text", "reasoning"]
    text: str = ""
    said: int = 0

    @property
    def rest(self) -> str:
        """What was not said yet."""
        return self.text[self.said :]

    def take(self) -> list[Said]:
        """Say the blocks that are whole."""
        end = self.said + blocks.settled(self.rest)
        found = self.text[self.said : end].strip("\n")
        self.said = max(self.said, end)
        return [Said(self.kind, found)] if found else []

    def finish(self) -> list[Said]:
        """Say all there is: another part follows, though the end of this one may be told later."""
        found, self.said = self.rest.strip("\n"), len(self.text)
        return [Said(self.kind, found)] if found.strip() else []


@dataclass(slots=True)
class View:
    """The session as far as it was taken. `seen` are assistants that were shown already, whose events say nothing new."""

    seen: frozenset[str] = frozenset()
    busy: bool = False
    activity: str = ""
    retryable: str | None = None
    streams: dict[Key, Stream] = field(default_factory=dict[Key, Stream])
    running: dict[Key, tuple[str, str]] = field(default_factory=dict[Key, tuple[str, str]])
    asks: dict[Key, str] = field(default_factory=dict[Key, str])
    pending: dict[str, tuple[str, messages.Delivery]] = field(default_factory=dict[str, tuple[str, messages.Delivery]])
    _names: dict[Key, str] = field(default_factory=dict[Key, str])
    _users: set[str] = field(default_factory=set[str])
    _last_error: str = ""

    def take(self, event: events.Event) -> list[Said]:
        """What the event gives to say."""
        fact = event.data
        if getattr(fact, "assistant_message_id", None) in self.seen:
            return []
        handle = _HANDLERS.get(fact.__class__)
        return list(handle(self, fact)) if handle else []

    # -- prompts and turns -------------------------------------------------------------------------------------------------

    def admitted(self, fact: events.PromptAdmitted) -> Iterable[Said]:
        """A prompt waits."""
        if fact.kind == "user":
            self.pending[fact.message_id] = transcript.prompt_text(fact.prompt), fact.delivery
        return ()

    def promoted(self, fact: events.PromptPromoted) -> Iterable[Said]:
        """A prompt is in the transcript."""
        self.pending.pop(fact.message_id, None)
        if fact.kind == "user":
            self._users.add(fact.message_id)
            yield Said("user", transcript.prompt_text(fact.prompt))

    def withdrawn(self, fact: events.PromptWithdrawn) -> Iterable[Said]:
        """A prompt will not be asked."""
        text, _ = self.pending.pop(fact.message_id, ("", "steer"))
        if fact.error is not None:
            yield Said("error", fact.error.message)
        elif text:
            yield Said("note", f"{fact.reason}: {text}")

    def delivery_changed(self, fact: events.PromptDeliveryChanged) -> Iterable[Said]:
        """A prompt waits otherwise."""
        if fact.message_id in self.pending:
            self.pending[fact.message_id] = self.pending[fact.message_id][0], fact.delivery
        return ()

    def started(self, fact: events.ExecutionStarted) -> Iterable[Said]:
        """A turn began."""
        self.busy = True
        self.activity = "summarising" if fact.purpose == "compaction" else "thinking"
        return ()

    def interrupting(self, _: events.ExecutionInterruptRequested) -> Iterable[Said]:
        """Somebody wants it to stop."""
        if self.busy:
            self.activity = "interrupting"
        return ()

    def parked(self, _: events.ExecutionParked) -> Iterable[Said]:
        """It waits for decisions."""
        self.activity = "waiting for your decision"
        return ()

    def resumed(self, _: events.ExecutionResumed) -> Iterable[Said]:
        """It goes on."""
        self.busy, self.activity = True, "working"
        return ()

    def ended(self, fact: events.ExecutionEnded) -> Iterable[Said]:
        """A turn is over."""
        yield from self._close("interrupted")
        self.busy, self.activity = False, ""
        self.asks.clear()
        if fact.outcome == "succeeded":
            return
        self.retryable = next((one for one in fact.message_ids if one in self._users), self.retryable)
        if fact.outcome == "interrupted":
            why = fact.reason if fact.reason != "interrupt" else None
            yield Said("note", "interrupted" + (f": {why}" if why else ""))
        elif fact.error is None or fact.error.message != self._last_error:
            yield Said("error", fact.error.message if fact.error else fact.reason or "the turn failed")

    # -- steps -------------------------------------------------------------------------------------------------------------

    def step_started(self, _: events.StepStarted) -> Iterable[Said]:
        """The model is asked."""
        self.busy, self.activity, self._last_error = True, "thinking", ""
        return ()

    def step_ended(self, fact: events.StepEnded) -> Iterable[Said]:
        """The model answered."""
        if fact.finish == "length":
            yield Said("note", "the answer was cut off at the model's limit")

    def step_failed(self, fact: events.StepFailed) -> Iterable[Said]:
        """The model did not."""
        self._last_error = fact.error.message
        yield from self._close("not finished")
        yield Said("error", fact.error.message)

    def step_interrupted(self, _: events.StepInterrupted) -> Iterable[Said]:
        """It was stopped."""
        return self._close("interrupted")

    def step_recovered(self, fact: events.StepRecovered) -> Iterable[Said]:
        """Its process died."""
        yield from self._close("outcome unknown")
        self.activity = "going on" if fact.armed else ""
        self.busy = self.busy and fact.armed
        what = "the turn goes on" if fact.armed else "the turn waits for a decision: /resume"
        yield Said("note", f"the process that ran this died; {what}")

    def retrying(self, fact: events.RetryScheduled) -> Iterable[Said]:
        """The model is asked again later."""
        self.activity = f"trying again at {render.clock(fact.at)}: {render.clip(fact.error.message, 60)}"
        return ()

    def _close(self, fate: str) -> Iterable[Said]:
        """Nothing of this step is under way any more."""
        for stream in self.streams.values():
            yield from stream.finish()
        for line, _ in self.running.values():
            yield Said("failed", f"{line} → {fate}")
        self.streams.clear()
        self.running.clear()

    # -- text --------------------------------------------------------------------------------------------------------------

    def delta(self, fact: events.TextDelta | events.ReasoningDelta) -> Iterable[Said]:
        """More text."""
        kind = "text" if isinstance(fact, events.TextDelta) else "reasoning"
        self.activity = "writing" if kind == "text" else "thinking"
        stream = self.streams.setdefault(_part(fact), Stream(kind))
        stream.text = stream.text[: fact.offset] + fact.delta
        for earlier in self.streams.values():
            if earlier is stream:
                break
            yield from earlier.finish()
        yield from stream.take()

    def text_ended(self, fact: events.TextEnded | events.ReasoningEnded) -> Iterable[Said]:
        """The whole text."""
        kind = "text" if isinstance(fact, events.TextEnded) else "reasoning"
        stream = self.streams.pop(_part(fact), Stream(kind))
        already = stream.text[: stream.said]
        rest = (fact.text[stream.said :] if fact.text.startswith(already) else fact.text).strip("\n")
        if rest.strip():
            yield Said(kind, rest)

    # -- calls -------------------------------------------------------------------------------------------------------------

    def call_begun(self, fact: events.ToolInputStarted) -> Iterable[Said]:
        """The model writes a call."""
        self._names[fact.assistant_message_id, fact.call_id] = fact.name
        self.activity = f"calling {render.clip(fact.name, 40)}"
        return ()

    def called(self, fact: events.ToolCalled) -> Iterable[Said]:
        """A call runs."""
        self.asks.pop(_call(fact), None)
        self.running[_call(fact)] = render.call(fact.name, fact.input), ""
        self.activity = "working"
        return ()

    def asked(self, fact: events.ToolApprovalRequested) -> Iterable[Said]:
        """A call waits for a person."""
        self.asks[_call(fact)] = render.call(self._names.get(_call(fact), "the tool"), fact.input)
        return ()

    def decided(self, fact: events.ToolApprovalResolved) -> Iterable[Said]:
        """A person decided."""
        line = self.asks.pop(_call(fact), fact.call_id)
        word = "approved" if fact.decision == "approve" else "denied"
        yield Said("note", f"{word} by {fact.by}: {line}")

    def progressed(self, fact: events.ToolProgress) -> Iterable[Said]:
        """A call says how far it is."""
        if _call(fact) in self.running:
            self.running[_call(fact)] = self.running[_call(fact)][0], render.result(fact.content, fact.structured, 60)
        return ()

    def succeeded(self, fact: events.ToolSucceeded) -> Iterable[Said]:
        """A call gave its result."""
        line = self._line(_call(fact))
        yield Said("done", f"{line} → {render.result(fact.content, fact.structured)}")

    def failed(self, fact: events.ToolFailed) -> Iterable[Said]:
        """A call failed."""
        yield Said("failed", f"{self._line(_call(fact))} → {render.clip(fact.error.message)}")

    def _line(self, key: Key) -> str:
        line, _ = self.running.pop(key, (self._names.get(key, key[1]), ""))
        self.activity = "working" if self.running else "thinking"
        return line

    # -- around it ---------------------------------------------------------------------------------------------------------

    def compacting(self, _: events.CompactionStarted) -> Iterable[Said]:
        """A summary is made."""
        self.activity = "summarising the older part"
        return ()

    def compacted(self, _: events.CompactionEnded) -> Iterable[Said]:
        """A summary was made."""
        yield Said("note", "the older part of the conversation is summarised for the model")

    def not_compacted(self, fact: events.CompactionFailed) -> Iterable[Said]:
        """A summary was not made."""
        yield Said("note", f"no summary: {fact.error.message}")

    def model_switched(self, fact: events.ModelSwitched) -> Iterable[Said]:
        """Another model."""
        yield Said("note", f"{fact.model} answers from here on")

    def agent_switched(self, fact: events.AgentSwitched) -> Iterable[Said]:
        """Another agent."""
        yield Said("note", f"{fact.agent} answers from here on")


def _part(fact: Any) -> Key:
    return fact.assistant_message_id, getattr(fact, "text_id", None) or f"r:{getattr(fact, 'reasoning_id', '')}"


def _call(fact: Any) -> Key:
    return fact.assistant_message_id, fact.call_id


_HANDLERS: dict[type[Any], Callable[[View, Any], Iterable[Said]]] = {
    events.PromptAdmitted: View.admitted,
    events.PromptPromoted: View.promoted,
    events.PromptWithdrawn: View.withdrawn,
    events.PromptDeliveryChanged: View.delivery_changed,
    events.ExecutionStarted: View.started,
    events.ExecutionInterruptRequested: View.interrupting,
    events.ExecutionParked: View.parked,
    events.ExecutionResumed: View.resumed,
    events.ExecutionEnded: View.ended,
    events.StepStarted: View.step_started,
    events.StepEnded: View.step_ended,
    events.StepFailed: View.step_failed,
    events.StepInterrupted: View.step_interrupted,
    events.StepRecovered: View.step_recovered,
    events.RetryScheduled: View.retrying,
    events.TextDelta: View.delta,
    events.ReasoningDelta: View.delta,
    events.TextEnded: View.text_ended,
    events.ReasoningEnded: View.text_ended,
    events.ToolInputStarted: View.call_begun,
    events.ToolCalled: View.called,
    events.ToolApprovalRequested: View.asked,
    events.ToolApprovalResolved: View.decided,
    events.ToolProgress: View.progressed,
    events.ToolSucceeded: View.succeeded,
    events.ToolFailed: View.failed,
    events.CompactionStarted: View.compacting,
    events.CompactionEnded: View.compacted,
    events.CompactionFailed: View.not_compacted,
    events.ModelSwitched: View.model_switched,
    events.AgentSwitched: View.agent_switched,
}
"""Events that say something to a person; all others are bookkeeping."""
