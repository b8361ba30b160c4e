"""A session's log over HTTP: pages, streams, and readers that come, go and stall."""

import asyncio
import logging
import socket

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from perdure.core import events
from perdure.models import scripted
from perdure.server import run
from perdure.store.context import DraftRow


async def facts(served, count, text="x", session_id="s"):
    """Append facts without a model."""
    for number in range(count):
        await served.perdure.engine.log.publish(
            events.SyntheticAdded(session_id=session_id, message_id=f"{session_id}-{text[:5]}-{number}", text=text)
        )


def seqs(found):
    return [int(one.id) for one in found if one.id]


# -- pages -----------------------------------------------------------------------------------------------------------------


async def test_a_page_of_the_log_names_its_end_and_each_event_its_place(served):
    await served.session()
    await facts(served, 4)
    page = (await served.client.get("/v1/sessions/s/events", params={"after": 0, "limit": 2})).json()
    assert page["last_seq"] == 4
    assert [one["durable"] for one in page["data"]] == [
        {"aggregate_id": "s", "seq": seq, "version": 1} for seq in (1, 2)
    ]
    first = page["data"][0]
    assert (first["type"], first["version"], first["data"]["text"]) == ("session.synthetic", 1, "x")
    assert set(first) == {"id", "type", "version", "created", "data", "durable"}


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_cursor_beyond_the_end_is_a_422_before_any_200_log_10(served, accept):
    await served.session()
    done = await served.client.get("/v1/sessions/s/events", params={"after": 1}, headers={"Accept": accept})
    assert (done.status_code, done.json()["type"]) == (422, "cursor-beyond-end")
    assert "last sequence is 0" in done.json()["detail"]
    edge = await served.client.get("/v1/sessions/s/events", params={"after": 0})
    assert edge.json() == {"data": [], "last_seq": 0}


NO_SEQS = [
    ({"after": "x"}, {}),
    ({"after": -2}, {}),
    ({"after": 10**40}, {}),
    ({"limit": 0}, {}),
    ({}, {"Last-Event-ID": "abc"}),
    ({}, {"Last-Event-ID": "-1"}),
    ({}, {"Last-Event-ID": "9" * 400}),
]


async def test_a_cursor_that_is_no_seq_is_a_422(served):
    await served.session()
    for query, headers in NO_SEQS:
        done = await served.client.get("/v1/sessions/s/events", params=query, headers=headers)
        assert (done.status_code, done.json()["type"]) == (422, "invalid-input"), (query, headers)


# -- streams ---------------------------------------------------------------------------------------------------------------


async def test_a_stream_says_hello_gives_history_says_synced_and_goes_on(served):
    await served.session()
    await facts(served, 2)
    epoch = (await served.client.get("/health")).json()["epoch"]
    async with served.reader() as reader:
        assert reader.headers["content-type"].startswith("text/event-stream")
        history = await reader.until("synced")
        assert (history[0].event, history[0].data["epoch"], history[0].id) == ("hello", epoch, None)
        assert [one.event for one in history[1:-1]] == ["session.created", "session.synthetic", "session.synthetic"]
        assert seqs(history) == [0, 1, 2]
        assert (history[-1].data, history[-1].id) == ({"seq": 2}, None)
        await facts(served, 1, "later")
        [live] = await reader.until("session.synthetic")
        assert (live.id, live.data["durable"]["seq"], live.data["data"]["text"]) == ("3", 3, "later")


async def test_a_stream_that_is_not_to_follow_ends_at_the_boundary(served):
    await served.session()
    async with served.reader(follow=False) as reader:
        assert [one.event for one in await reader.rest()] == ["hello", "session.created", "synced"]


async def test_two_readers_each_get_everything_api_1(served, replies):
    replies.append([scripted.Text("one two three four", chunks=4)])
    await served.session()
    async with served.reader() as one, served.reader() as two:
        await served.prompt(id="p")
        first, second = [await reader.until("session.execution.ended") for reader in (one, two)]
    assert first == second
    assert seqs(first) == list(range(len(seqs(first))))


async def test_a_reconnect_with_its_last_seq_gets_the_rest_once_api_1(served):
    await served.session()
    await facts(served, 3)
    async with served.reader() as reader:
        seen = seqs(await reader.until(lambda one: one.id == "1"))
    await facts(served, 3, "later")
    async with served.reader(headers={"Last-Event-ID": str(seen[-1])}) as reader:
        rest = seqs(await reader.until("synced"))
    assert seen + rest == list(range(7))


@pytest.mark.parametrize(("query", "header"), [(2, "0"), (0, "2")])
async def test_a_browser_that_comes_back_with_its_old_query_goes_on_from_the_later_of_the_two_api_1(
    served, query, header
):
    await served.session()
    await facts(served, 3)
    async with served.reader(headers={"Last-Event-ID": header}, after=query) as reader:
        assert seqs(await reader.until("synced")) == [3]


async def test_live_text_comes_without_an_id_and_the_full_text_with_one(served, replies):
    replies.append([scripted.Text("Hello, world", chunks=3)])
    await served.session()
    async with served.reader() as reader:
        await served.prompt(id="p")
        found = await reader.until("session.text.ended")
    deltas = [one for one in found if one.event == "session.text.delta"]
    assert deltas
    assert {one.id for one in deltas} == {None}
    assert all("durable" not in one.data and one.data["version"] == 1 for one in deltas)
    assert "".join(one.data["data"]["delta"] for one in deltas) == "Hello, world"
    assert found[-1].data["data"]["text"] == "Hello, world"


async def test_a_quiet_stream_beats(served):
    await served.session()
    served.app.state.serving.settings = served.perdure.engine.settings.model_copy(update={"heartbeat_seconds": 0.02})
    async with served.reader() as reader:
        await reader.until("synced")
        assert (await anext(reader)).event is None


def telling(function, event):
    """The function, telling that it was called."""

    def told(*given, **named):
        event.set()
        return function(*given, **named)

    return told


async def test_open_streams_and_waits_end_when_the_server_stops(served):
    await served.session()
    await served.prompt(id="p", resume=False)
    async with served.reader() as reader, served.reader(None) as feed:
        await reader.until("synced")
        await feed.until("synced")
        entered = asyncio.Event()
        served.perdure.engine.log.changes = telling(served.perdure.engine.log.changes, entered)
        body = {"message_id": "p", "timeout": 600}
        waiting = asyncio.create_task(served.client.post("/v1/sessions/s/wait", json=body))
        await asyncio.wait_for(entered.wait(), 5)
        await asyncio.wait_for(served.stop(), 2)
        assert await reader.rest() == await feed.rest() == []
    assert (await waiting).json()["done"] is False


# -- a reader that does not read -------------------------------------------------------------------------------------------


class Heard(logging.Handler):
    """Tells when a message was logged."""

    def __init__(self, message):
        super().__init__()
        self.message, self.event = message, asyncio.Event()

    def emit(self, record):
        if self.message in record.getMessage():
            self.event.set()


@pytest.mark.parametrize(("path", "session_id"), [("/v1/sessions/s/events", "s"), ("/v1/events", None)])
async def test_a_reader_that_stops_reading_is_dropped_its_memory_released_and_others_unaffected_api_1(
    served, path, session_id
):
    await served.session()
    served.app.state.serving.settings = served.perdure.engine.settings.model_copy(update={"stall_seconds": 1})
    heard = Heard("stopped reading")
    logging.getLogger("perdure.server").addHandler(heard)
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.setblocking(False)
    loop, live = asyncio.get_running_loop(), served.perdure.engine.log.live
    try:
        await loop.sock_connect(stalled, ("127.0.0.1", served.port))
        await loop.sock_sendall(stalled, request(path))
        async with served.reader(session_id) as other:
            await other.until("synced")
            reading = asyncio.create_task(other.until(lambda one: one.id and one.data["durable"]["seq"] == 12))
            for number in range(12):
                await facts(served, 1, f"{number:04}" + "x" * 1_000_000)
            await asyncio.wait_for(heard.event.wait(), 8)
            assert [one.data["durable"]["seq"] for one in await reading] == list(range(1, 13))
            assert [len(group) for group in (*live._followers.values(), live._everything) if group] == [1]
            assert sum(served.app.state.serving.readers.values()) == 1
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(drained(stalled), 5)
    finally:
        logging.getLogger("perdure.server").removeHandler(heard)
        stalled.close()
    for frames in (served.app.state.serving.frames, served.app.state.serving.feed_frames):
        assert frames._held < 5_000_000


async def drained(stalled):
    """Read until the connection ends."""
    while await asyncio.get_running_loop().sock_recv(stalled, 1 << 20):
        pass


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no bound to set")
async def test_a_reader_that_vanished_without_a_word_is_dropped_within_the_same_bound_api_1(served, settings):
    await served.session()
    async with served.reader() as reader:
        await reader.until("synced")
        connections = [one.transport.get_extra_info("socket") for one in served.server.server_state.connections]
        bounds = {one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for one in connections}
    assert bounds == {settings.stall_seconds * 1000}


async def test_a_reader_that_leaves_while_it_is_dropped_is_just_gone():
    made = asyncio.get_running_loop().create_future()

    class Taken(asyncio.Protocol):
        def connection_made(self, transport):
            made.set_result(transport)

        def connection_lost(self, error):
            lost.set()

    lost = asyncio.Event()
    async with await asyncio.get_running_loop().create_server(Taken, "127.0.0.1", 0) as listening:
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        transport = await made
        transport.abort()
        await lost.wait()
        await asyncio.sleep(0)
        run.ConnectionLine(transport, FlowControl(transport)).abort()
        writer.close()


def request(path):
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Authorization: Bearer a-token-of-the-tests",
        "Accept: text/event-stream",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


# -- joining in the middle -------------------------------------------------------------------------------------------------


async def test_a_reader_that_joins_mid_part_gets_the_live_text_then_deltas_past_it_pub_3(served, replies):
    gate = scripted.Gate()
    replies.append(
        [scripted.Reasoning("Well… "), scripted.Text("Héllo "), scripted.Hang(gate), scripted.Text("wörld", chunks=2)]
    )
    await served.session()
    async with served.reader() as early:
        await served.prompt(id="p")
        first = await early.until("session.text.delta")
        async with served.reader(after=0) as late:
            joined = await late.until("session.text.delta")
            gate.open()
            joined += await late.until("session.text.ended")
        first += await early.until("session.text.ended")
    assert text_of(first) == text_of(joined) == "Héllo wörld"
    after_sync = joined[[one.event for one in joined].index("synced") + 1]
    assert (after_sync.event, after_sync.data["data"]["offset"], after_sync.data["data"]["delta"]) == (
        "session.text.delta",
        0,
        "Héllo ",
    )
    assert after_sync.id is None


def text_of(found):
    """The text that the deltas spell; they must fit together without gap or overlap."""
    text = ""
    for one in found:
        if one.event == "session.text.delta":
            assert one.data["data"]["offset"] == len(text)
            text += one.data["data"]["delta"]
    return text


async def test_a_reader_elsewhere_gets_the_stored_draft_pub_3(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Drafted text"), scripted.Hang(gate)])
    await served.session()
    async with served.reader() as here:
        await served.prompt(id="p")
        [*_, delta] = await here.until("session.text.delta")
    message_id, part_id = delta.data["data"]["assistant_message_id"], delta.data["data"]["text_id"]
    await served.perdure.engine.store.write(
        lambda tx: tx.context.put_draft("s", DraftRow(message_id, part_id, "text", "Drafted"))
    )
    # What a process sees that does not run the session itself.
    publisher = served.perdure.engine.parts.live.pop("s")
    async with served.reader() as elsewhere:
        await elsewhere.until("synced")
        joined = await anext(elsewhere)
    served.perdure.engine.parts.live["s"] = publisher
    assert (joined.event, joined.data["data"]["delta"], joined.data["data"]["offset"]) == (
        "session.text.delta",
        "Drafted",
        0,
    )
    gate.open()
    await served.settle("p")


async def test_a_reader_that_speaks_http_1_0_gets_frames_without_chunks_around_them(served):
    await served.session()
    await facts(served, 2)
    reading, writing = await asyncio.open_connection("127.0.0.1", served.port)
    writing.write(request("/v1/sessions/s/events?follow=false").replace(b"HTTP/1.1", b"HTTP/1.0"))
    _, _, body = (await asyncio.wait_for(reading.read(), 9)).partition(b"\r\n\r\n")
    writing.close()
    frames = body.split(b"\n\n")
    assert [one.partition(b"\n")[0] for one in frames] == [
        b"event: hello",
        b"id: 0",
        b"id: 1",
        b"id: 2",
        b"event: synced",
        b"",
    ]
