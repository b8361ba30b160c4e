"""Summaries: when, where the cut is, what a crash or a failure leaves (CMP-1 to 3, CTX-2)."""

import pytest

from perdure import Agent, Budget, FunctionSource, Policy, errors, tool
from perdure.core import compaction, events, messages, request
from perdure.errors import ModelErrorKind
from perdure.models import port
from perdure.models.scripted import Call, Cut, Fail, Gate, Hang, ScriptedModel, Text

LONG = "many words " * 60
OVERFLOW = [Fail(ModelErrorKind.CONTEXT_OVERFLOW)]
TOKENS = messages.Tokens(30, 10)
SUMMARY = [Text("What was said"), port.Finish("stop", TOKENS, 9)]


class Conversation:
    """A model that answers, and summarises when it is asked to; `summary` is what it says then, one reply a time."""

    def __init__(self, *summaries, answers=()) -> None:
        self.summaries, self.answers = list(summaries), list(answers)
        self.asked, self.summarised = [], []
        self.model = ScriptedModel(self.reply)

    def reply(self, asked):
        if text_of(asked.messages[-1]) == compaction.SUMMARISE:
            self.summarised.append(asked)
            return self.summaries.pop(0) if self.summaries else SUMMARY
        self.asked.append(asked)
        if self.answers:
            return self.answers.pop(0)
        return [Text(f"Answer {len(self.asked)}")]


def text_of(message):
    return message.content[0].text if isinstance(message, request.UserMessage) else ""


def said(asked):
    return [text_of(one) or f"{type(one).__name__}" for one in asked.messages]


def talk(rig, *texts):
    """One prompt after the other, each settled; the last receipt."""

    async def script(app, session):
        for number, text in enumerate(texts):
            await session.prompt(text, id=f"p{number}")
            receipt = await rig.settled(app, session, f"p{number}")
        return receipt

    return rig.live(script)


# -- when and where, pure ----------------------------------------------------------------------------------------------------


def user(seq, text="u"):
    return messages.User(f"u{seq}", seq, messages.MessageTime(0), messages.text_prompt(text), "steer")


def assistant(seq, text="a", tokens=None, **more):
    part = messages.TextPart("t", text, ended=True)
    return messages.Assistant(
        f"a{seq}", seq, messages.MessageTime(0, 1), "main", "x:y", (part,), tokens=tokens, **{"finish": "stop"} | more
    )


def summary(seq, text="s"):
    return messages.Compaction(f"c{seq}", seq, messages.MessageTime(0, 1), "auto", "completed", text)


def test_the_cut_is_at_a_user_boundary_with_as_much_kept_as_fits_cmp_1():
    found = [user(0), assistant(1), user(2), assistant(3, "x" * 400), user(4), assistant(5)]
    assert compaction.cut(found, compaction.Limit(2_000, 0)) == compaction.Cut(2)
    assert compaction.cut(found, compaction.Limit(100, 0)) == compaction.Cut(4)
    assert compaction.cut(found, compaction.Limit(4, 0)) == compaction.Cut(4), "the newest exchange is kept if it fits"
    cuts = [compaction.cut(found, compaction.Limit(size, 0)) for size in range(2, 600, 10)]
    assert all(isinstance(found[one.index], messages.User) for one in cuts)


def test_there_is_nothing_to_cut_in_one_exchange_or_behind_a_mere_summary_cmp_1():
    def cut(*found):
        return compaction.cut(found, compaction.UNKNOWN)

    assert cut() is None
    assert cut(user(0), assistant(1)) is None
    assert cut(summary(0), user(1), assistant(2)) is None, "it would only be summarised again"
    assert cut(summary(0), user(1), assistant(2), user(3)) == compaction.Cut(3)


def test_the_estimate_starts_from_the_providers_own_count_cmp_1():
    counted = assistant(1, tokens=messages.Tokens(1_000, 200))
    assert compaction.estimate([user(0), counted]) == 1_200
    assert 1_200 < compaction.estimate([user(0), counted, user(2, "x" * 400)]) <= 1_310
    broken = assistant(1, tokens=messages.Tokens(9_000, 0), finish="error")
    assert compaction.estimate([user(0), broken]) < 10
    parked = assistant(3, tokens=messages.Tokens())
    assert compaction.estimate([user(0), counted, user(2), parked]) > 1_200, "a parked step counted nothing"


def test_a_count_from_before_a_summary_says_nothing_any_more_cmp_1():
    kept = assistant(1, tokens=messages.Tokens(90_000, 0))
    assert compaction.estimate([summary(4), user(0), kept, user(5)]) < 100


@pytest.mark.parametrize(
    ("window", "usable", "keep"), [(200_000, 192_000, 8_000), (10_000, 5_000, 2_500), (100, 50, 25)]
)
def test_a_small_window_keeps_little_and_leaves_half_free_cmp_1(window, usable, keep):
    limit = compaction.Limit(window)
    assert (limit.usable, limit.keep) == (usable, keep)


# -- auto --------------------------------------------------------------------------------------------------------------------


def test_past_the_estimate_the_older_part_is_summarised_and_the_prompt_stays_verbatim_cmp_1(rig):
    model = Conversation()
    rig.play(model.model, context_tokens=200)
    assert talk(rig, LONG, "And now?").outcome == "succeeded"
    assert said(model.asked[1]) == ["Summary of the conversation so far:\nWhat was said", "And now?"]
    (asked,) = model.summarised
    assert LONG.strip() in text_of(asked.messages[0])
    assert "And now?" not in text_of(asked.messages[0])
    (ended,) = rig.facts(events.CompactionEnded)
    assert (ended.recent, rig.facts(events.CompactionStarted)[0].reason) == ("p1", "auto")
    assert [one.message_id for one in rig.facts(events.PromptPromoted)] == ["p0", "p1"]


def test_the_log_keeps_everything_cmp_1(rig):
    model = Conversation()
    rig.play(model.model, context_tokens=200)
    talk(rig, LONG, "And now?")
    assert [one.id for one in rig.left.transcript if isinstance(one, messages.User)] == ["p0", "p1"]


def test_a_fork_shows_its_model_what_a_summary_kept_cmp_1_api_3(rig):
    model = Conversation()
    rig.play(model.model, context_tokens=200)
    talk(rig, LONG, "And now?")

    async def script(app, session):
        child = await session.fork(id="child")
        await child.prompt("Go on", id="p")
        await child.wait("p")

    rig.live(script)
    assert said(model.asked[-1])[:2] == ["Summary of the conversation so far:\nWhat was said", "And now?"]


def test_a_short_conversation_or_an_unknown_window_is_left_alone_cmp_1(rig):
    for window in (None, 10**6):
        model = Conversation()
        rig.play(model.model, context_tokens=window)
        talk(rig, LONG, LONG, "And now?")
        assert model.summarised == []


def test_between_two_steps_too_and_no_call_is_parted_from_its_result_cmp_1(rig):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return LONG

    model = Conversation(answers=[[Text("Hi")], [Call("look", {}, "c1")], [Text("Done")]])
    rig.play(model.model, tools=[look], context_tokens=500)
    assert talk(rig, LONG, "Look").outcome == "succeeded"
    assert len(model.summarised) == 1
    assert said(model.asked[2]) == [
        "Summary of the conversation so far:\nWhat was said",
        "Look",
        "AssistantMessage",
        "ResultMessage",
    ]


def test_a_provider_that_says_it_does_not_fit_is_asked_again_after_a_summary_once_a_step_cmp_1(rig):
    model = Conversation(answers=[[Text("Hi")], OVERFLOW, [Text("Fits")], OVERFLOW, OVERFLOW])
    rig.play(model.model)
    assert talk(rig, "Hello", "More").outcome == "succeeded"
    assert (len(model.summarised), len(rig.facts(events.StepFailed))) == (1, 0)
    assert len(rig.assistants) == 2, "the same assistant is asked again"
    receipt = talk(rig, "Hello", "More", "Even more")
    assert (receipt.outcome, receipt.error.type, len(model.summarised)) == ("failed", "context_overflow", 2)


def test_an_overflow_with_nothing_to_summarise_fails_with_the_providers_words_cmp_1(rig):
    rig.play([OVERFLOW])
    assert rig.ask().error.type == "context_overflow"
    assert not rig.facts(events.CompactionStarted)


# -- what the summary call is ------------------------------------------------------------------------------------------------


def test_unknown_is_durable_before_the_request_leaves_and_no_tool_is_offered_cmp_2(rig):
    ran = []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    gate = Gate()
    model = Conversation([Hang(gate), Call("pay", {}, "c1"), *SUMMARY])
    rig.play(model.model, tools=[pay], context_tokens=200)

    async def script(app, session):
        await session.prompt(LONG, id="p0")
        await session.wait("p0")
        await session.prompt("And now?", id="p1")
        await gate.arrived()
        claim = await app.engine.store.read(lambda tx: tx.claims.of_session(session.id))
        status = await session.status()
        gate.open()
        await rig.settled(app, session, "p1")
        return claim, status

    claim, status = rig.live(script)
    assert (claim.phase, claim.assistant_message_id, status.reason) == ("unknown", None, "compaction")
    (asked,) = model.summarised
    assert (asked.tools, asked.tool_choice, ran) == ((), "none", [])


def test_its_usage_is_counted_apart_and_against_the_budget_cmp_2_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(tokens=30))
    model = Conversation()
    rig.play(model.model, context_tokens=200)
    receipt = talk(rig, LONG, "And now?")
    assert receipt.error.type == "budget", "the summary used it up before the step could start"
    (used,) = rig.facts(events.UsageRecorded)
    assert (used.source, used.tokens, used.cost) == ("compaction", TOKENS, 9)
    assert len(rig.facts(events.CompactionEnded)) == 1


def test_a_passing_error_of_the_summary_is_tried_again_cmp_2(rig):
    model = Conversation([Fail()], [Text("Half"), Cut()], SUMMARY)
    rig.play(model.model, context_tokens=200)
    assert talk(rig, LONG, "And now?").outcome == "succeeded"
    assert (len(model.summarised), rig.facts(events.CompactionEnded)[0].summary) == (3, "What was said")


BAD = {
    "an error": ([Fail(ModelErrorKind.AUTH)], "model"),
    "nothing": ([port.Finish("stop")], "unusable_summary"),
    "cut short": ([Text("Half"), port.Finish("length")], "unusable_summary"),
    "filtered": ([Text("Half"), port.Finish("content_filter")], "unusable_summary"),
}


@pytest.mark.parametrize(("reply", "kind"), BAD.values(), ids=BAD)
def test_a_failure_leaves_history_as_it_was_and_ends_the_turn_that_needed_it_cmp_2(rig, reply, kind):
    model = Conversation(reply)
    rig.play(model.model, context_tokens=200)
    receipt = talk(rig, LONG, "And now?")
    assert (receipt.outcome, receipt.error.type) == ("failed", kind)
    assert rig.facts(events.CompactionFailed)[0].error.type == kind
    assert not rig.facts(events.CompactionEnded)
    rig.declared = [Agent("main", model.model)]
    talk_again = talk(rig, LONG, "And now?", "Still there?")
    assert talk_again.outcome == "succeeded"
    assert said(model.asked[-1])[0] == LONG


def test_an_overflow_whose_summary_fails_ends_step_and_turn_cmp_2(rig):
    model = Conversation([Fail(ModelErrorKind.AUTH)], answers=[[Text("Hi")], OVERFLOW])
    rig.play(model.model)
    assert talk(rig, "Hello", "More").outcome == "failed"
    assert len(rig.facts(events.StepFailed)) == 1


def test_nothing_of_an_overflow_stays_in_the_way_of_a_larger_model_cmp_2(rig):
    small = Conversation([Fail(ModelErrorKind.AUTH)], answers=[[Text("Hi")], OVERFLOW])
    large = ScriptedModel([[Text("It fits")]], name="large")
    rig.play(small.model, agents=[Agent("main", model=small.model), Agent("large", model=large)])

    async def script(app, session):
        for number in range(2):
            await session.prompt(LONG, id=f"p{number}")
            receipt = await rig.settled(app, session, f"p{number}")
        assert receipt.outcome == "failed"
        await session.update(events.Changes(), agent="large")
        await session.prompt("And now?", id="p2")
        return await rig.settled(app, session, "p2")

    assert rig.live(script).outcome == "succeeded"
    assert len(small.summarised) == len(rig.facts(events.CompactionStarted)) == 1
    assert len(large.requests[0].messages) == 4


@pytest.mark.parametrize("delivery", ["steer", "queue"])
@pytest.mark.parametrize("how", ["auto", "manual"])
def test_a_prompt_admitted_meanwhile_is_answered_once_and_stays_verbatim_cmp_2(rig, delivery, how):
    gate = Gate()
    model = Conversation([Hang(gate), *SUMMARY])
    rig.play(model.model, context_tokens=200 if how == "auto" else None)

    async def script(app, session):
        await session.prompt(LONG, id="p0")
        await rig.settled(app, session, "p0")
        if how == "manual":
            await session.compact()
        else:
            await session.prompt("And now?", id="p1")
        await gate.arrived()
        await session.prompt("Meanwhile", id="p2", delivery=delivery)
        gate.open()
        return await rig.settled(app, session, "p2")

    assert rig.live(script).outcome == "succeeded"
    assert sum(said(asked).count("Meanwhile") for asked in model.asked if said(asked)[-1] == "Meanwhile") == 1
    assert [one.message_id for one in rig.facts(events.PromptPromoted)].count("p2") == 1
    assert "Meanwhile" not in text_of(model.summarised[0].messages[0])


@pytest.mark.parametrize("overflow", [False, True])
def test_a_crash_in_it_fails_the_summary_and_the_turn_goes_on_cmp_2(rig, overflow):
    model = Conversation(answers=[[Text("Hi")], OVERFLOW] if overflow else [])
    rig.play(model.model, context_tokens=None if overflow else 200)
    deaths = [rig.die]

    def dies_once(asked):
        if text_of(asked.messages[-1]) == compaction.SUMMARISE and deaths:
            deaths.pop()()
        return model.reply(asked)

    model.model._replies = dies_once

    async def script(app, session):
        for number, text in enumerate([LONG, "And now?"]):
            await session.prompt(text, id=f"p{number}")
            receipt = await rig.settled(app, session, f"p{number}")
        return receipt

    rig.live(script)
    assert rig.left.claim.phase == "unknown"

    async def again(app, session):
        return await rig.settled(app, session, "p1")

    assert rig.live(again).outcome == "succeeded"
    assert len(rig.facts(events.CompactionFailed)) == 1
    assert [one.phase for one in rig.facts(events.StepRecovered)] == ["unknown"]
    assert [one.message_id for one in rig.facts(events.PromptPromoted)].count("p1") == 1


# -- manual ------------------------------------------------------------------------------------------------------------------


def test_compact_answers_once_its_start_is_durable_and_settles_no_prompt_cmp_3(rig):
    gate = Gate()
    model = Conversation([Hang(gate), *SUMMARY])
    rig.play(model.model)

    async def script(app, session):
        await session.prompt(LONG, id="p0")
        await rig.settled(app, session, "p0")
        message_id = await session.compact()
        durable = [one.data async for one in session.events(follow=False)]
        assert durable[-1] == events.CompactionStarted(session_id=session.id, message_id=message_id, reason="manual")
        await gate.arrived()
        gate.open()
        await rig.quiet(app)
        await rig.at_rest(app)

    rig.live(script)
    (ended,) = [one for one in rig.facts(events.ExecutionEnded) if not one.message_ids]
    assert ended.outcome == "succeeded"
    (done,) = rig.facts(events.CompactionEnded)
    assert (done.summary, done.recent) == ("What was said", "")


def test_a_session_that_is_busy_is_not_compacted_cmp_3(rig):
    gate, summarising = Gate(), Gate()
    rig.play([[Hang(gate), Text("Hi")], [Hang(summarising), *SUMMARY]])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await gate.arrived()
        with pytest.raises(errors.SessionBusy):
            await session.compact()
        gate.open()
        await rig.settled(app, session)
        await session.compact()
        with pytest.raises(errors.SessionBusy):
            await session.compact()
        summarising.open()
        await rig.quiet(app)

    rig.live(script)
    assert len(rig.facts(events.CompactionStarted)) == 1


def test_a_recovered_turn_that_is_not_settled_is_busy_cmp_3(rig):
    rig.policy = Policy(recovery="ask")
    rig.play(lambda _: rig.die())

    async def first(app, session):
        await session.prompt("Hello", id="hello")
        await session.wait("hello")

    async def second(app, session):
        await app.engine._sweep.once()
        with pytest.raises(errors.SessionBusy):
            await session.compact()
        await session.interrupt()

    rig.live(first)
    rig.live(second)


def test_a_failed_one_says_so_and_leaves_the_session_usable_cmp_3(rig):
    model = Conversation([Fail(ModelErrorKind.AUTH)])
    rig.play(model.model)

    async def script(app, session):
        await session.prompt(LONG, id="p0")
        await rig.settled(app, session, "p0")
        await session.compact()
        await rig.quiet(app)
        await session.prompt("Still there?", id="p1")
        return await rig.settled(app, session, "p1")

    assert rig.live(script).outcome == "succeeded"
    assert [one.outcome for one in rig.facts(events.ExecutionEnded)] == ["succeeded", "failed", "succeeded"]
    assert said(model.asked[1])[0] == LONG


def test_nothing_said_is_nothing_to_summarise_and_nobody_is_asked_cmp_3(rig):
    rig.play([])

    async def script(app, session):
        await session.compact()
        await rig.quiet(app)

    rig.live(script)
    assert rig.facts(events.CompactionFailed)[0].error.type == "nothing_to_compact"
    assert rig.model.requests == []


# -- the epoch ---------------------------------------------------------------------------------------------------------------


def test_a_summary_starts_a_new_epoch_with_what_the_sources_say_now_ctx_2(rig):
    value = ["old"]
    model = Conversation()
    source = FunctionSource("weather", lambda: value[0])
    rig.play(model.model, agents=[Agent("main", model.model, context=[source])])

    async def script(app, session):
        await session.prompt("One", id="p0")
        await rig.settled(app, session, "p0")
        value[0] = "new"
        await session.prompt("Two", id="p1")
        await rig.settled(app, session, "p1")
        await session.compact()
        await rig.quiet(app)
        await session.prompt("Three", id="p2")
        await rig.settled(app, session, "p2")

    rig.live(script)
    assert [one.system for one in model.asked] == ["old", "old", "new"]
    assert len(rig.facts(events.ContextUpdated)) == 1


@pytest.mark.parametrize("then", ["it comes back", "somebody interrupts"])
def test_a_source_that_cannot_be_read_after_a_summary_keeps_the_turn_waiting_named_and_interruptible_run_2(rig, then):
    failing = []

    def read():
        if failing:
            raise errors.SourceUnavailable("down")
        return "fine"

    def summarise():
        failing.append(1)
        return SUMMARY

    model = Conversation(answers=[[Text("Hi")], OVERFLOW])
    rig.play(model.model, agents=[Agent("main", model.model, context=[FunctionSource("weather", read)])])
    model.model._replies = lambda asked: (
        summarise() if text_of(asked.messages[-1]) == compaction.SUMMARISE else model.reply(asked)
    )

    async def script(app, session):
        await session.prompt("Hello", id="p0")
        await rig.settled(app, session, "p0")
        await session.prompt("More", id="p1")
        await rig.until(session, events.CompactionEnded)
        await app.engine.world.clock.sleep_ms(10_000)
        status = await session.status()
        claim = await app.engine.store.read(lambda tx: tx.claims.of_session(session.id))
        if then == "it comes back":
            failing.clear()
        else:
            await session.interrupt()
        return status, claim, await rig.settled(app, session, "p1")

    status, claim, receipt = rig.live(script)
    assert (status.status, claim.phase) == ("blocked", "ready")
    assert "weather" in status.reason
    assert receipt.outcome == ("succeeded" if then == "it comes back" else "interrupted")
