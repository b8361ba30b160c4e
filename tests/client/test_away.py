"""The client while its server is away: killed, slow to come back, cut off in the middle, or never there."""

import asyncio
import contextlib
import json

import pytest

from perdure import errors
from perdure.client import Client, ServerUnreachable, Session, following
from perdure.core import events
from perdure.testing import provider_script as script
from perdure.testing import tiny_http

LONG = [script.Text("word " * 20, size=5, delay_ms=2), script.Hang("middle"), script.Text("end")]


def durable(found):
    return [event.seq for event in found if isinstance(event, events.Recorded)]


@pytest.mark.crash
@pytest.mark.slow
async def test_a_reader_of_a_server_killed_mid_stream_gets_every_fact_exactly_once_api_1(killable, provider, token):
    """API-1, API-2, REC-2: the stream goes on by itself, and so does a prompt that was sent while nobody was there."""
    provider.script([script.Rule(reply=tuple(LONG), contains="first", times=1)])
    heard, links, live = [], [], asyncio.Event()
    async with asyncio.timeout(60), Client(killable.url, token=token, patience=40, link=links.append) as client:
        session = await client.sessions.create(id="s")

        async def read():
            async with contextlib.aclosing(session.events(signals=True)) as following:
                async for event in following:
                    heard.append(event)
                    if isinstance(event.data, events.TextDelta):
                        live.set()
                    if isinstance(event.data, events.ExecutionEnded) and "p2" in event.data.message_ids:
                        return

        reading = asyncio.create_task(read())
        await session.prompt("first", id="p1")
        waiting = asyncio.create_task(session.wait("p1"))
        await live.wait()
        await provider.arrived("middle")
        await killable.kill()
        sent = asyncio.create_task(session.prompt("second", id="p2", delivery="queue"))
        await killable.start()
        assert (await sent).id == "p2"
        assert (await waiting).outcome == "succeeded"
        await reading
        whole = [event.seq async for event in session.events(follow=False)]
    assert durable(heard) == whole == list(range(len(whole)))
    assert links[:2] == [False, True]
    recovered = [event for event in heard if isinstance(event.data, events.StepRecovered)]
    assert [event.data.phase for event in recovered] == ["unknown"]


async def test_a_reader_goes_on_when_the_server_stopped_and_came_back_and_repeats_nothing(app_here, serve, token):
    async with serve(app_here) as url:
        port = int(url.rpartition(":")[2])
        async with Client(url, token=token) as client:
            session = await client.sessions.create("default", id="s")
            await session.prompt("one", id="p1")
            await session.wait("p1")
    heard = []

    async def read(client):
        async for event in (await client.sessions.get("s")).events():
            heard.append(event.seq)
            if isinstance(event.data, events.ExecutionEnded) and "p2" in event.data.message_ids:
                return

    async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
        async with serve(app_here, port):
            client = await stack.enter_async_context(Client(url, token=token))
            reading = asyncio.create_task(read(client))
            await until(lambda: len(heard) >= 8)
        async with serve(app_here, port):
            session = await client.sessions.get("s")
            await session.prompt("two", id="p2")
            await reading
            assert heard == [event.seq async for event in session.events(follow=False)]


async def test_the_feed_of_all_sessions_goes_on_from_its_last_position_when_the_server_is_back(app_here, serve, token):
    async with serve(app_here) as url:
        port = int(url.rpartition(":")[2])
        async with Client(url, token=token) as client:
            session = await client.sessions.create("default", id="s")
            await session.wait((await session.prompt("one", id="p1")).id)
    heard = []

    async def read(client):
        async for event in client.events():
            heard.append((event.position, event.aggregate_id, event.seq))
            if isinstance(event.data, events.ExecutionEnded) and "p2" in event.data.message_ids:
                return

    async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
        async with serve(app_here, port):
            client = await stack.enter_async_context(Client(url, token=token))
            reading = asyncio.create_task(read(client))
            await until(lambda: len(heard) >= 8)
        async with serve(app_here, port):
            other = await client.sessions.create("default", id="other")
            await other.prompt("two", id="p2")
            await reading
            whole = [(one.position, one.aggregate_id, one.seq) async for one in client.events(follow=False)]
    assert heard == whole[: len(heard)]
    assert {one[1] for one in heard} == {"s", "other"}


@pytest.mark.crash
@pytest.mark.slow
async def test_turns_that_lost_their_server_are_listed_gone_on_with_and_dismissed_through_the_client(
    killable, provider, token
):
    """REC-7, REC-13: recoveries over HTTP, of sessions that want to be asked."""
    provider.script([script.Rule(reply=(script.Text("Half"), script.Hang("middle")), contains="first", times=2)])
    policy = events.Policy(recovery="ask")
    async with asyncio.timeout(60), Client(killable.url, token=token, patience=40) as client:
        for name in ("s1", "s2"):
            session = await client.sessions.create(id=name, policy=policy)
            await session.prompt("first", id=f"p_{name}")
            await half_said(session)
        await killable.kill()
        await killable.start()
        waiting = await waits(client, 2)
        assert {one.session_id for one in waiting} == {"s1", "s2"}
        assert not any(one.armed for one in waiting)
        by_session = {one.session_id: one.execution_id for one in waiting}
        one, two = [await client.sessions.get(name) for name in ("s1", "s2")]
        assert (await one.status()).cause == "decision"
        await client.recoveries.retry(by_session["s1"])
        assert (await one.wait("p_s1")).outcome == "succeeded"
        await client.recoveries.dismiss(by_session["s2"])
        assert (await two.wait("p_s2")).outcome == "interrupted"
        assert await client.recoveries.list() == []
        for again in (client.recoveries.retry, client.recoveries.dismiss):
            with pytest.raises((errors.RecoveryNotFound, errors.LifecycleConflict)):
                await again(by_session["s2"])
        assert (await two.wait((await two.prompt("next", id="p_next")).id)).outcome == "succeeded"


async def half_said(session):
    async with contextlib.aclosing(session.events(signals=True)) as following:
        async for event in following:
            if isinstance(event.data, events.TextDelta):
                return


async def waits(client, many):
    """The recoveries, once so many wait: the sweep of the new server finds the dead one's claims."""
    async with contextlib.aclosing(client.events()) as feed:
        found = 0
        async for event in feed:
            found += isinstance(event.data, events.StepRecovered)
            if found == many:
                return await client.recoveries.list()
    return []


async def until(holds):
    """Let others run until it holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110, what is waited for is in another task of this very loop
            await asyncio.sleep(0)


async def test_a_deleted_session_ends_its_readers_as_it_does_embedded(client):
    session = await client.sessions.create("default", id="s")
    heard = []

    async def read():
        async for event in session.events():
            heard.append(event)  # noqa: PERF401, they are looked at while they come

    reading = asyncio.create_task(read())
    await until(lambda: heard)
    await session.delete()
    await asyncio.wait_for(reading, 20)
    with pytest.raises(errors.SessionGone):
        await anext(session.events())


# -- what a server or a network may do wrong -------------------------------------------------------------------------------


class Script:
    """A server that answers each request as the next function says; the last one answers all that follow."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, exchange):
        self.asked.append((exchange.request.method, exchange.request.path))
        await (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])(exchange)


def frame(seq, kind="session.deleted"):
    durable = {"aggregate_id": "s", "seq": seq, "version": 1}
    data = {"session_id": "s"}
    whole = {"id": f"evt_{seq}", "type": kind, "version": 1, "created": 1, "data": data, "durable": durable}
    return f"id: {seq}\nevent: {kind}\ndata: {json.dumps(whole)}\n\n"


def stream(*frames):
    async def answer(exchange):
        await exchange.begin()
        await exchange.write(("event: hello\ndata: {}\n\n" + "".join(frames)).encode())
        await exchange.end()

    return answer


def document(status, body):
    async def answer(exchange):
        await exchange.json(body, status)

    return answer


async def reset(exchange):
    exchange.cut(reset=True)


@contextlib.asynccontextmanager
async def scripted(*answers, patience=5.0):
    handler = Script(*answers)
    async with tiny_http.serve(handler, 0) as port:
        client = Client(f"http://127.0.0.1:{port}", patience=patience)
        try:
            yield client, handler
        finally:
            await client._transport.http.aclose()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("perdure.client.transport.FIRST_PAUSE_S", 0.001)


def session_of(client):
    return Session(client._transport, "s")


async def taken(session, count, **how):
    found = []
    async with asyncio.timeout(20), contextlib.aclosing(session.events(**how)) as given:
        async for event in given:
            found.append(event.seq)
            if len(found) == count:
                return found
    return found


async def test_what_a_stream_repeats_is_left_out_and_what_it_leaves_out_is_asked_for_again():
    first = stream(frame(0), frame(0), frame(1), frame(3))
    async with scripted(first, stream(frame(1), frame(2)), stream(frame(2), frame(3))) as (client, server):
        assert await taken(session_of(client), 4) == [0, 1, 2, 3]
    assert [path.partition("after=")[2] for _, path in server.asked] == ["-1", "0", "1"]


async def test_a_stream_cut_in_the_middle_of_a_frame_is_joined_again_before_it():
    half = frame(1)[:40]
    async with scripted(stream(frame(0), half), stream(frame(1))) as (client, server):
        assert await taken(session_of(client), 2) == [0, 1]
    assert [path.partition("after=")[2] for _, path in server.asked] == ["-1", "-1"]


async def test_a_reader_dropped_for_being_slow_comes_back_api_1():
    problem = 'event: problem\ndata: {"type":"subscriber-overflow","detail":"too slow"}\n\n'
    async with scripted(stream(frame(0), problem), stream(frame(1))) as (client, _):
        assert await taken(session_of(client), 2) == [0, 1]


async def test_a_problem_in_a_stream_is_raised_as_its_class():
    problem = 'event: problem\ndata: {"type":"store-corrupt","detail":"damaged"}\n\n'
    async with scripted(stream(frame(0), problem)) as (client, _):
        with pytest.raises(errors.StoreCorrupt, match="damaged"):
            await taken(session_of(client), 2)


async def test_a_fact_of_a_newer_server_is_an_error_and_a_signal_of_one_is_left_out():
    signal = 'event: x\ndata: {"id":"e","type":"session.new.delta","version":1,"created":1,"data":{}}\n\n'
    async with scripted(stream(signal, frame(0, "session.new"))) as (client, _):
        with pytest.raises(errors.InvalidDurableEvent, match=r"session\.new\.1"):
            await taken(session_of(client), 1, signals=True)


async def test_patience_with_a_stream_that_never_gets_on_comes_to_an_end():
    async with scripted(stream(), patience=1) as (client, server):
        with pytest.raises(ServerUnreachable):
            await taken(session_of(client), 1)
    assert len(server.asked) > 1


RECEIPT = {"id": "p", "session_id": "s", "state": "admitted", "delivery": "steer", "admitted_seq": 1}


async def test_a_prompt_whose_answer_was_lost_is_sent_again_under_the_same_id_in_2():
    async with scripted(reset, document(502, {"proxy": "says no"}), document(202, RECEIPT)) as (client, server):
        assert (await session_of(client).prompt("hi")).id == "p"
    assert len(server.asked) == 3


async def test_what_might_be_done_twice_is_not_sent_again_but_said():
    async with scripted(reset) as (client, server):
        with pytest.raises(ServerUnreachable, match="may have been done"):
            await session_of(client).cancel("p")
    assert len(server.asked) == 1


async def test_what_a_stopping_server_cut_off_is_sent_again_to_the_next_one_where_that_is_safe_ex_9():
    stopping = document(503, {"type": "stopping", "detail": "The server is stopping; the request may have been done."})
    async with scripted(stopping, document(202, RECEIPT)) as (client, _):
        assert (await session_of(client).prompt("hi")).id == "p"
    async with scripted(stopping) as (client, server):
        with pytest.raises(ServerUnreachable, match="may have been done"):
            await session_of(client).cancel("p")
    assert len(server.asked) == 1


async def test_a_servers_own_refusal_is_never_tried_again():
    async with scripted(document(503, {"type": "store-busy", "detail": "busy"})) as (client, server):
        with pytest.raises(errors.StoreBusy):
            await session_of(client).prompt("hi")
    assert len(server.asked) == 1


async def test_a_long_wait_is_several_requests_and_one_that_a_stopping_server_let_go_is_asked_again():
    early = document(200, {"done": False, "status": {"status": "running"}})
    done = document(200, {"done": True, "status": {"status": "idle"}, "receipt": RECEIPT})
    async with scripted(early, early, done) as (client, server):
        assert (await session_of(client).wait("p")).id == "p"
    assert len(server.asked) == 3


async def test_a_history_ends_where_the_log_ended_when_it_was_begun(client):
    session = await client.sessions.create("default", id="s")
    await session.prompt("hi", id="p1")
    await session.wait("p1")
    found = []
    following.PAGE, page = 3, following.PAGE
    try:
        async with contextlib.aclosing(session.events(follow=False)) as given:
            async for event in given:
                if not found:
                    await session.prompt("more", id="p2")
                found.append(event.seq)
    finally:
        following.PAGE = page
    assert found == list(range(len(found)))
    assert (await session.receipt("p2")).admitted_seq == len(found)


async def test_streams_and_waits_end_where_the_session_is_deleted_meanwhile_log_10(app_here, serve, token, monkeypatch):
    """Also where that happens between the server's look whether it is there and the stream's first look at its log."""
    async with serve(app_here) as url, Client(url, token=token) as client, asyncio.timeout(30):
        session = await client.sessions.create("default", id="s")
        await session.prompt("hang", id="p")
        reading = asyncio.create_task(taken(session, 1000))
        waiting = asyncio.create_task(session.wait("p"))
        await until(lambda: len(app_here.engine.log.live._followers.get("s", ())) >= 2)
        await session.delete()
        assert (await reading)[:2] == [0, 1]
        with contextlib.suppress(errors.SessionGone):
            assert (await waiting).outcome == "interrupted"
        other = await client.sessions.create("default", id="other")
        follow = app_here.engine.log.follow

        async def late(session_id, *args, **more):
            await (await app_here.sessions.get(session_id)).delete()
            async with contextlib.aclosing(follow(session_id, *args, **more)) as found:
                async for item in found:
                    yield item

        monkeypatch.setattr(app_here.engine.log, "follow", late)
        assert await taken(other, 1) == []
