"""The publisher by itself: the order a stream must keep, open parts, live text, drafts."""

import asyncio

import pytest

from perdure import errors
from perdure.core import events, messages
from perdure.models import port
from perdure.runner.publisher import DELTA_S, DRAFT_MS, Publisher
from perdure.testing.fake_clock import FakeClock
from perdure.testing.virtual_time import VirtualLoop

WHY = messages.Failure("transport", "The line went dead")
ASTRAL = "a\U0001f9ffb\U0001f600c"


class Sink:
    """Where facts and signals go, and what was durable in which commit."""

    def __init__(self) -> None:
        self.commits, self.signals, self.drafts = [], [], []

    async def record(self, facts, drafts, durable):
        self.commits.append(list(facts))
        self.drafts.append([(one.part_id, one.text) for one in drafts])
        durable()

    def heard(self):
        return True

    def announce(self, signal):
        self.signals.append(signal)


async def given(*stream):
    for event in stream:
        yield event


class Bench:
    def __init__(self) -> None:
        self.sink, self.clock = Sink(), FakeClock()
        self.started = []
        self.publisher = Publisher("ses", "amid", self.sink, self.clock, self._start)

    async def _start(self, call_id, name, raw):
        self.started.append((call_id, name, raw))
        await self.publisher.call(call_id, {}, "write")

    async def play(self, *stream):
        await self.publisher.read(given(*stream))

    def pending(self):
        return [type(one).__name__ for one in self.publisher.pending]


@pytest.fixture
def bench():
    return Bench()


def virtual(script):
    """Run where waiting takes no time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(script())
    finally:
        loop.close()


def whole(call_id="c1", name="pay", raw="{}"):
    return (
        port.ToolInputStart(call_id, name),
        port.ToolInputDelta(call_id, raw),
        port.ToolInputEnd(call_id),
        port.ToolCall(call_id, name),
    )


HOSTED = (*whole()[:3], port.ToolCall("c1", "pay", provider_executed=True))
TEXT = (port.TextStart("t"), port.TextDelta("t", "Hi"), port.TextEnd("t"))

BROKEN_ORDERS = {
    "input end before start": ((port.ToolInputEnd("c9"),), "Tool input end before start: c9"),
    "input delta before start": ((port.ToolInputDelta("c9", "{"),), "Tool input delta before start: c9"),
    "input delta after end": ((*whole()[:3], port.ToolInputDelta("c1", "{")), "Tool input delta before start: c1"),
    "input end twice": ((*whole()[:3], port.ToolInputEnd("c1")), "Tool input end before start: c1"),
    "duplicate text start": ((port.TextStart("t"), port.TextStart("t")), "Duplicate text start: t"),
    "text start after its end": ((*TEXT, port.TextStart("t")), "Duplicate text start: t"),
    "duplicate reasoning start": ((port.ReasoningStart("r"),) * 2, "Duplicate reasoning start: r"),
    "duplicate input start": ((port.ToolInputStart("c1", "pay"),) * 2, "Duplicate tool input start: c1"),
    "text delta before start": ((port.TextDelta("t", "x"),), "Text delta before start: t"),
    "text delta after end": ((*TEXT, port.TextDelta("t", "x")), "Text delta before start: t"),
    "text end before start": ((port.TextEnd("t"),), "Text end before start: t"),
    "reasoning delta before start": ((port.ReasoningDelta("r", "x"),), "Reasoning delta before start: r"),
    "reasoning end before start": ((port.ReasoningEnd("r"),), "Reasoning end before start: r"),
    "name change": (
        (*whole()[:3], port.ToolCall("c1", "refund")),
        "Tool call c1 changed its name from pay to refund",
    ),
    "call twice": ((*whole(), port.ToolCall("c1", "pay")), "Tool called twice: c1"),
    "call before input ended": ((*whole()[:2], port.ToolCall("c1", "pay")), "Tool call before its input ended: c1"),
    "call of nothing": ((port.ToolCall("c1", "pay"),), "Tool call before its input ended: c1"),
    "result before call": ((*whole()[:3], port.ToolResult("c1", "ok")), "Tool result before call: c1"),
    "result of nothing": ((port.ToolResult("c1", "ok"),), "Tool result before call: c1"),
    "late success": (
        (*HOSTED, port.ToolResult("c1", "ok"), port.ToolResult("c1", "again")),
        "Tool result for a settled call: c1",
    ),
    "second finish": ((port.Finish("stop"), port.Finish("stop")), "Finish after the stream's end"),
    "delta after finish": (
        (*TEXT[:2], port.Finish("stop"), port.TextDelta("t", "more")),
        "TextDelta after the stream's end",
    ),
    "delta after end": ((*TEXT, port.TextDelta("t", "more")), "Text delta before start: t"),
    "text after finish": ((port.Finish("stop"), port.TextStart("t")), "TextStart after the stream's end"),
}


@pytest.mark.parametrize(("stream", "words"), BROKEN_ORDERS.values(), ids=BROKEN_ORDERS)
async def test_an_impossible_order_is_a_defect_with_these_words_pub_2(bench, stream, words):
    with pytest.raises(errors.ProviderOrder) as raised:
        await bench.play(*stream)
    assert str(raised.value) == words
    assert isinstance(raised.value, errors.Defect)


async def test_a_late_error_result_of_a_settled_call_is_ignored_pub_2(bench):
    await bench.play(*HOSTED, port.ToolResult("c1", "ok"), port.ToolResult("c1", "late", is_error=True))
    settled = [fact for commit in bench.sink.commits for fact in commit if "tool." in fact.event_type][-1]
    assert isinstance(settled, events.ToolSucceeded)
    assert bench.pending() == []


async def test_a_call_is_durable_before_anyone_may_run_it_pub_1(bench):
    await bench.play(*whole())
    (commit,) = bench.sink.commits
    assert [type(one).__name__ for one in commit] == ["ToolInputStarted", "ToolInputEnded", "ToolCalled"]
    assert bench.started == [("c1", "pay", "{}")]


async def test_a_call_the_provider_runs_itself_starts_nothing_here_pub_2(bench):
    await bench.play(*HOSTED)
    assert (bench.started, bench.pending()[-1]) == ([], "ToolCalled")


def test_deltas_are_coalesced_and_their_offsets_count_code_points_pub_1():
    async def script():
        bench = Bench()
        await bench.play(port.TextStart("t"), *(port.TextDelta("t", one) for one in ASTRAL))
        assert bench.sink.signals == [], "fifty milliseconds gather"
        await asyncio.sleep(DELTA_S)
        await bench.play(port.TextDelta("t", "\U0001f9ff"), port.TextDelta("t", "!"))
        await asyncio.sleep(DELTA_S)
        await bench.play(port.TextDelta("t", "end"), port.TextEnd("t"))
        return bench

    bench = virtual(script)
    assert [(one.offset, one.delta) for one in bench.sink.signals] == [(0, ASTRAL), (5, "\U0001f9ff!"), (7, "end")]
    assert bench.publisher.pending[-1].text == ASTRAL + "\U0001f9ff!end"
    assert DELTA_S == 0.05


async def test_the_full_value_at_the_end_is_the_fact_and_deltas_are_none_pub_1(bench):
    await bench.play(*TEXT, port.ReasoningStart("r"), port.ReasoningDelta("r", "Hm"), port.ReasoningEnd("r", {"s": 1}))
    assert bench.pending() == ["TextStarted", "TextEnded", "ReasoningStarted", "ReasoningEnded"]
    assert bench.publisher.pending[-1].provider_metadata == {"s": 1}
    assert {type(one) for one in bench.sink.signals} == {events.TextDelta, events.ReasoningDelta}


async def test_a_delta_may_precede_its_durable_start_pub_1(bench):
    await bench.play(port.TextStart("t"), port.TextDelta("t", "Hi"))
    bench.publisher.stop_announcing()
    assert [one.delta for one in bench.sink.signals] == ["Hi"]
    assert bench.sink.commits == []


async def test_a_failure_flushes_fragments_and_fails_inputs_never_called_pub_1_pub_4(bench):
    await bench.play(port.TextStart("t"), port.TextDelta("t", "Half"), *whole("c1")[:3], *whole("c2")[:2])
    never = bench.publisher.end_open(WHY)
    assert never == [("c1", "pay"), ("c2", "pay")]
    facts = bench.publisher.pending
    assert [one.text for one in facts if isinstance(one, events.TextEnded)] == ["Half"]
    assert [(one.call_id, one.error) for one in facts if isinstance(one, events.ToolFailed)] == [
        ("c1", WHY),
        ("c2", WHY),
    ]
    assert "".join(one.delta for one in bench.sink.signals if isinstance(one, events.TextDelta)) == "Half"
    assert bench.publisher.end_open(WHY) == [], "once"


async def test_a_call_the_provider_never_answered_fails_and_is_no_call_of_ours_pub_4(bench):
    await bench.play(*HOSTED)
    assert bench.publisher.end_open(WHY) == []
    assert bench.pending()[-1] == "ToolFailed"


async def test_questions_of_a_step_that_fails_are_denied_in_the_same_facts_apr_3(bench):
    await bench.play(*whole()[:3])
    await bench.publisher.ask("c1", {"n": 1}, None)
    bench.publisher.withdraw_questions(WHY)
    resolved, failed = bench.publisher.pending
    assert (resolved.decision, resolved.by, failed.error) == ("deny", "engine", WHY)
    assert bench.publisher.waiting() == ()


async def test_hostile_text_is_cleaned_before_anyone_sees_it_sec_2(bench):
    await bench.play(port.TextStart("t"), port.TextDelta("t", "a\ud800b"), port.TextEnd("t"))
    said = bench.publisher.pending[-1].text
    assert said.encode() == "".join(one.delta for one in bench.sink.signals).encode()


# -- drafts ------------------------------------------------------------------------------------------------------------------


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_open_text_is_drafted_every_200_ms_while_it_grows_and_not_when_it_does_not_pub_3(bench):
    drafting = asyncio.ensure_future(bench.publisher.draft())
    await bench.play(port.TextStart("t"), port.TextDelta("t", "One"))
    await turns()
    for more in ("", " two", "", " three"):
        if more:
            await bench.play(port.TextDelta("t", more))
        bench.clock.advance(DRAFT_MS)
        await turns()
    drafting.cancel()
    assert bench.sink.drafts == [[("t", "One")], [("t", "One two")], [("t", "One two three")]]
    assert [[type(one).__name__ for one in commit] for commit in bench.sink.commits] == [["TextStarted"], [], []]
    assert DRAFT_MS < 250


async def test_text_that_readers_saw_is_durable_in_time_also_where_its_part_ended_and_the_stream_pauses_pub_3(bench):
    drafting = asyncio.ensure_future(bench.publisher.draft())
    await bench.play(port.TextStart("t"), port.TextDelta("t", "One"), port.TextEnd("t"))
    await turns()
    bench.clock.advance(DRAFT_MS)
    await turns()
    assert [type(one).__name__ for commit in bench.sink.commits for one in commit] == ["TextStarted", "TextEnded"]
    bench.clock.advance(DRAFT_MS)
    await turns()
    drafting.cancel()
    assert len(bench.sink.commits) == 1, "there is nothing new"


async def test_drafts_are_kept_only_of_a_step_that_readers_saw_something_of_for_a_while_pub_3(bench):
    spawned = []
    publisher = Publisher("ses", "amid", bench.sink, bench.clock, bench._start, spawn=spawned.append)
    await publisher.read(given(port.TextStart("t"), port.TextDelta("t", "One")))
    assert spawned == []
    publisher._announce_all()
    [drafting] = spawned
    drafting.close()


async def test_the_input_of_a_call_is_never_drafted_pub_3(bench):
    await bench.play(*whole()[:2], port.ReasoningStart("r"), port.ReasoningDelta("r", "Hm"))
    await bench.publisher.flush(draft=True)
    assert bench.sink.drafts == [[("r", "Hm")]]


async def test_deltas_of_open_parts_may_alternate_also_where_a_text_and_a_reasoning_share_their_id_pub_2(bench):
    await bench.play(port.TextStart("a"), port.ReasoningStart("a"), port.TextStart("b"))
    for number in "123":
        await bench.play(
            port.TextDelta("a", number), port.ReasoningDelta("a", f"r{number}"), port.TextDelta("b", f"b{number}")
        )
        await bench.play(port.TextDelta("b", "."), port.TextDelta("b", "."))
    await bench.play(port.TextEnd("a"), port.TextEnd("b"), port.ReasoningEnd("a"))
    assert [one.text for one in bench.publisher.pending[3:]] == ["123", "b1..b2..b3..", "r1r2r3"]


@pytest.mark.parametrize("announced", [False, True], ids=["in one announcement", "an announcement each"])
async def test_a_character_whose_two_halves_come_apart_is_one_character_however_deltas_are_announced_sec_2(
    bench, announced
):
    await bench.play(port.TextStart("t"))
    for half in ("a\ud83e", "\uddffb\ud83d"):
        await bench.play(port.TextDelta("t", half))
        if announced:
            bench.publisher.stop_announcing()
    await bench.publisher.flush(draft=True)
    assert bench.sink.drafts == [[("t", "a\U0001f9ffb")]]
    await bench.play(port.TextEnd("t"))
    assert bench.publisher.pending[-1].text == "a\U0001f9ffb\ufffd"
    assert "".join(one.delta for one in bench.sink.signals) == "a\U0001f9ffb\ufffd"
    assert [one.offset for one in bench.sink.signals] == ([0, 1, 3] if announced else [0])


async def test_a_reader_that_joins_gets_what_was_announced_and_then_deltas_past_it_pub_3(bench):
    await bench.play(port.TextStart("t"), port.TextDelta("t", ASTRAL))
    bench.publisher.stop_announcing()
    await bench.play(port.TextDelta("t", "more"))
    assert bench.publisher.snapshot() == [("text", "t", ASTRAL)]
    bench.publisher.stop_announcing()
    assert bench.sink.signals[-1].offset == len(ASTRAL)
