"""The stream of all sessions: everything once, in order, from wherever a reader left off."""

import asyncio

import pytest

from perdure import Perdure
from perdure.core import events
from perdure.models import scripted


async def facts(served, *session_ids, text="x"):
    """Append one fact to each of the sessions, at once."""

    async def one(number, session_id):
        fact = events.SyntheticAdded(session_id=session_id, message_id=f"{session_id}-{text}-{number}", text=text)
        await served.perdure.engine.log.publish(fact)

    await asyncio.gather(*(one(number, session_id) for number, session_id in enumerate(session_ids)))


def places(found):
    return [(one.data["durable"]["aggregate_id"], one.data["durable"]["seq"]) for one in found if one.id]


def in_order(found, **lengths):
    """Whether every session's facts are all there, each once and in order."""
    for session_id, length in lengths.items():
        assert [seq for aggregate_id, seq in places(found) if aggregate_id == session_id] == list(range(length))
    assert len(places(found)) == sum(lengths.values())


async def test_the_feed_says_hello_gives_history_says_synced_and_goes_on(served):
    await served.session("a")
    await served.session("b")
    await facts(served, "a", "b", "a")
    epoch = (await served.client.get("/health")).json()["epoch"]
    async with served.reader(None) as reader:
        history = await reader.until("synced")
        assert (history[0].event, history[0].data) == ("hello", {"epoch": epoch})
        assert (history[-1].id, history[-1].data) == (None, {"position": int(history[-2].id)})
        in_order(history, a=3, b=2)
        await facts(served, "b", text="later")
        [live] = await reader.until("session.synthetic")
        assert (int(live.id), places([live])) == (int(history[-2].id) + 1, [("b", 2)])


async def test_the_feed_of_a_new_database_is_synced_at_once(served):
    async with served.reader(None, follow=False) as reader:
        assert [one.event for one in await reader.rest()] == ["hello", "synced"]


async def test_several_readers_of_the_feed_get_the_same_bytes_encoded_once_api_1(served, replies):
    replies.append([scripted.Text("one two three", chunks=3)])
    frames = served.app.state.serving.feed_frames
    rendered = []
    render, frames._render = frames._render, lambda event: rendered.append(event.id) or render(event)
    async with served.reader(None) as one, served.reader(None) as two, served.reader(None) as three:
        for reader in (one, two, three):
            await reader.until("synced")
        await served.session("a")
        await served.prompt(session_id="a")
        first, *others = [await reader.until("session.execution.ended") for reader in (one, two, three)]
    assert others == [first, first]
    assert len(rendered) == len(set(rendered)) >= len(first)
    assert not [one.event for one in first if one.event.endswith(".delta")]


async def test_a_reader_that_comes_back_with_its_cursor_loses_nothing_and_repeats_nothing_api_1(served):
    await served.session("a")
    await served.session("b")
    seen, cursor = [], None
    for round_ in range(4):
        headers = {"Last-Event-ID": cursor} if cursor else {}
        async with served.reader(None, headers) as reader:
            writing = asyncio.create_task(facts(served, *"abab", text=f"r{round_}"))
            target = len(seen) + (4 if cursor else 3)
            while len(seen) < target:
                frame = await anext(reader)
                seen += [frame] if frame.id else []
            cursor = seen[-1].id
            await writing
    async with served.reader(None, after=cursor) as reader:
        seen += [one for one in await reader.until("synced") if one.id]
    in_order(seen, a=9, b=9)
    positions = [int(one.id) for one in seen]
    assert positions == sorted(set(positions))


async def test_what_another_process_commits_reaches_the_feed_in_order_db_2(served, settings):
    await served.session("a")
    async with Perdure(settings=settings) as other, served.reader(None) as reader:
        other.engine.coordinator.wake = lambda _: None
        found = await reader.until("synced")
        for number in range(3):
            await other.engine.log.publish(
                events.SyntheticAdded(session_id="a", message_id=f"o{number}", text="elsewhere")
            )
            await facts(served, "a", text=f"here{number}")
        found += await reader.until(lambda one: places([one]) == [("a", 6)])
    in_order(found, a=7)


async def test_a_feed_cursor_survives_the_deletion_of_what_it_pointed_at_log_10(served):
    await served.session("a")
    async with served.reader(None) as reader:
        cursor = (await reader.until("synced"))[-2].id
        assert (await served.client.delete("/v1/sessions/a")).status_code == 204
        found = await reader.until("session.deleted")
    await served.session("b")
    async with served.reader(None, after=found[-1].id) as reader:
        assert places(await reader.until("synced")) == [("b", 0)]
    async with served.reader(None, after=cursor) as reader:
        assert places(await reader.until("synced")) == [("b", 0)]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_feed_cursor_beyond_the_end_is_a_422_before_any_200_log_10(served, accept):
    await served.session("a")
    done = await served.client.get("/v1/events", params={"after": 2}, headers={"Accept": accept})
    assert (done.status_code, done.json()["type"]) == (422, "cursor-beyond-end")
    done = await served.client.get("/v1/events", headers={"Accept": accept, "Last-Event-ID": "x"})
    assert (done.status_code, done.json()["type"]) == (422, "invalid-input")


async def test_the_feed_can_be_read_by_the_page(served):
    await served.session("a")
    await served.session("b")
    await facts(served, "a", "b")
    seen, position = [], 0
    while True:
        page = (await served.client.get("/v1/events", params={"after": position, "limit": 3})).json()
        seen += page["data"]
        position = page["position"]
        if position == page["last_position"]:
            break
    assert [one["durable"]["seq"] for one in seen if one["durable"]["aggregate_id"] == "a"] == [0, 1]
    assert len(seen) == 4


async def test_a_feed_that_overflows_its_buffer_reads_the_log_again_and_loses_nothing_log_8(served):
    await served.session("a")
    async with served.reader(None) as reader:
        found = await reader.until("synced")
        [follower] = served.perdure.engine.log.live._everything
        follower.limit = 2
        await facts(served, *"aaaaaaaaaa")
        found += await reader.until(lambda one: places([one]) == [("a", 10)])
    in_order(found, a=11)
