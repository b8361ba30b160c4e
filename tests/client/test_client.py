"""The client against a real server: what it answers is what the embedded engine answers, errors included."""

import asyncio
import contextlib
import inspect

import pytest

from perdure import Part, Perdure, errors
from perdure.client import Client, Recoveries, ServerUnreachable, Session, Sessions, problems
from perdure.core import events, messages
from perdure.core.value import names
from perdure.engine import perdure

# What differs between two runs of anything, and the rows' own columns that no wire carries.
RUNS = {
    "time",
    "time_created",
    "time_ended",
    "message_id",
    "time_updated",
    "since",
    "until",
    "owner",
    "execution_id",
    "id",
    "prompt_id",
}
ROWS = {"held", "parked", "deleting", "wake_attempts", "execution_purpose", "status", "turn_usage"}
INPUT_ROWS = {"admitted_delivery", "promoted_seq", "execution_requests", "retries", "retried_by", "outcome"}
INPUT_ROWS |= {"error", "settled_seq", "usage"}


def told(value, *without):
    """A value without what differs between runs, whatever class it is of."""
    if isinstance(value, list | tuple):
        return [told(one, *without) for one in value]
    fields = names(type(value))
    if not fields:
        return value
    hidden = RUNS.union(*without)
    return {name: told(getattr(value, name), *without) for name in fields if name not in hidden}


async def all_of(session):
    return [(event.seq, type(event.data).__name__) async for event in session.events(follow=False)]


async def refusal(awaited):
    """Class, words and members of the error that it raises."""
    try:
        await awaited
    except errors.PerdureError as error:
        return type(error), str(error), vars(error)
    pytest.fail("nothing was refused")


async def prompts(app):
    """Ask, wait, look, cancel, change, retry."""
    policy = events.Policy(recovery="ask", session_budget=events.Budget(steps=9))
    session = await app.sessions.create("default", id="s", title="T", metadata={"a": [1]}, policy=policy)
    yield (await app.sessions.create("default", id="s", title="T", metadata={"a": [1]}, policy=policy)).id
    yield told(await session.prompt("hi", id="p1"))
    yield told(await session.wait("p1"))
    yield told(await session.prompt("hi", id="p1"))
    yield told(await session.receipt("p1"))
    yield await session.wait()
    yield told(await session.messages())
    yield told(await session.messages(after=2, limit=1))
    yield told(await session.messages(before=2**53, limit=1))
    yield told(await session.messages(before=(await session.messages())[-1].seq, limit=9))
    yield told(await session.status())
    yield told(await session.info(), ROWS)
    yield await all_of(session)
    yield told(await session.prompt("later", id="p2", delivery="queue", resume=False))
    yield told(await session.inbox(), INPUT_ROWS)
    yield [row.prompt for row in await session.inbox()]
    yield told(await session.wait(timeout=5))
    yield told(await session.change_delivery("p2", "steer"))
    yield told(await session.cancel("p2"))
    yield told(await session.prompt([Part("text", "see"), Part("image", data=b"\x89PNG", mime="image/png")], id="p3"))
    yield told(await session.wait("p3"))
    yield told(await session.attempts(limit=1)), told(await session.attempts())
    yield [told(one.prompt) for one in await session.messages() if isinstance(one, messages.User)]


async def half_said(session, after):
    """Wait for the first live text after a seq."""
    async with contextlib.aclosing(session.events(after=after, signals=True)) as following:
        async for event in following:
            if isinstance(event, events.Announced):
                return type(event.data), event.data.delta, event.data.offset
    return None


async def control(app):
    """Interrupt, retry, decide, change, fork, list, delete."""
    session = await app.sessions.create("default", id="s")
    await session.prompt("hang", id="p1")
    yield await half_said(session, after=-1)
    yield told(await session.wait("p1", timeout=0))
    yield await session.interrupt("because")
    yield told(await session.wait("p1"))
    yield await session.interrupt()
    yield told(await session.retry("p1"))
    last = [event.seq async for event in session.events(follow=False)][-1]
    yield await half_said(session, after=last)
    await session.interrupt()
    yield told(await session.wait("p1"))
    yield told(await session.prompt("refund it", id="p2"))
    async with contextlib.aclosing(session.events()) as following:
        async for event in following:
            if isinstance(event.data, events.ExecutionParked):
                break
    yield told(await session.status())
    yield [(one.call_id, one.decision) for one in await session.approvals()]
    yield (await session.decide("call_1", "approve", note="go")).decision
    yield (await session.decide("call_1", "approve", note="go")).decision
    yield told(await session.wait("p2"))
    changed = await session.update(events.Changes(title="New", archived=True), agent="other", model="openai:n")
    yield changed.title, changed.archived, changed.agent, changed.model
    await session.switch_agent("default")
    child = await session.fork(id="child", seq=4)
    yield await all_of(child)
    yield [row.id for row in (await app.sessions.list(limit=1)).data], (await app.sessions.list()).next
    page = await app.sessions.list(limit=1)
    yield [row.id for row in (await app.sessions.list(limit=1, before=page.next)).data]
    yield await app.recoveries.list()
    yield await child.delete()
    await session.resume()
    yield sorted(row.id for row in (await app.sessions.list()).data)


async def parked(session):
    """The one call that waits once the turn is parked."""
    async with contextlib.aclosing(session.events()) as following:
        async for event in following:
            if isinstance(event.data, events.ExecutionParked) and (waiting := await session.approvals()):
                [one] = waiting
                return one
    return None


async def reused(app):
    """A model uses a call id again in its next turn."""
    session = await app.sessions.create("default", id="s")
    await session.prompt("refund it", id="p1")
    first = await parked(session)
    yield (await session.decide("call_1", "deny", message_id=first.message_id)).decision
    yield told(await session.wait("p1"))
    await session.prompt("refund it after all", id="p2")
    second = await parked(session)
    yield first.call_id == second.call_id, first.message_id == second.message_id
    yield (await session.decide("call_1", "deny", message_id=first.message_id)).decision, "is what was decided then"
    yield (await refusal(session.decide("call_1", "approve", message_id=first.message_id)))[0]
    yield (await refusal(session.decide("call_1", "approve", message_id="msg_none")))[0]
    yield [one.message_id == second.message_id for one in await session.approvals()]
    decided = await session.decide("call_1", "approve")
    yield decided.decision, decided.message_id == second.message_id
    yield told(await session.wait("p2"))
    yield [type(one.data).__name__ async for one in session.events(follow=False) if "Tool" in type(one.data).__name__]


async def all_sessions(app):
    """The feed of all sessions, and what is listed of all of them."""
    for name in ("s1", "s2"):
        session = await app.sessions.create("default", id=name)
        await session.wait((await session.prompt("hi", id=f"p_{name}")).id)
    whole = [event async for event in app.events(follow=False)]
    yield [(one.aggregate_id, one.seq, type(one.data).__name__) for one in whole]
    yield [one.position for one in whole]
    half = whole[len(whole) // 2].position
    yield [(one.aggregate_id, one.seq) async for one in app.events(after=half, follow=False)]
    async with contextlib.aclosing(app.events(after=whole[-1].position)) as following:
        await (await app.sessions.get("s1")).prompt("refund it", id="p3")
        async for event in following:
            yield event.aggregate_id, event.seq, type(event.data).__name__
            if isinstance(event.data, events.ExecutionParked):
                break
    yield [(one.session_id, one.call_id, one.decision) for one in await app.approvals()]
    yield await refusal(anext(app.events(after=10**9)))
    yield [one async for one in app.events(after=event.position, follow=False)]


async def summarised(app):
    """Compact by hand, also where that is refused."""
    session = await app.sessions.create("default", id="s")
    for number in range(3):
        await session.wait((await session.prompt(f"question {number}", id=f"p{number}")).id)
    made = await session.compact()
    await session.wait()
    [found] = [one for one in await session.messages() if isinstance(one, messages.Compaction)]
    yield found.id == made, found.status, found.reason
    await session.prompt("refund it", id="p9")
    await parked(session)
    yield await refusal(session.compact())


async def refusals(app):
    """Every way to ask wrongly, each with the error it gives."""
    session = await app.sessions.create("default", id="s")
    await session.prompt("one", id="p1")
    await session.wait("p1")
    yield await refusal(session.prompt("two", id="p1"))
    yield await refusal(session.prompt("", id="p2"))
    yield await refusal(session.prompt("x", id="msg_retry_1"))
    yield await refusal(session.receipt("none"))
    yield await refusal(session.cancel("p1"))
    yield await refusal(session.retry("p1"))
    yield await refusal(session.decide("none", "approve"))
    yield await refusal(session.fork(seq=99))
    yield await refusal(session.switch_agent("nobody"))
    yield await refusal(session.switch_model("nothing"))
    yield await refusal(app.sessions.get("none"))
    yield await refusal(app.sessions.create("nobody"))
    yield await refusal(app.sessions.create("other", id="s"))
    yield await refusal(app.recoveries.retry("exe_none"))
    yield await refusal(app.recoveries.dismiss("exe_none"))
    yield await refusal(anext(session.events(after=99)))
    yield await refusal(anext(session.events(after=99, follow=False)))
    await session.delete()
    yield await refusal(session.prompt("x"))
    yield await refusal(session.info())


@pytest.mark.parametrize("story", [prompts, control, reused, all_sessions, summarised, refusals])
async def test_code_moves_from_embedded_to_remote_unchanged_and_is_told_the_same(app_here, client, story):
    """API, IN-1, IN-2, IN-12, IN-13, APR-2, API-3, EX-8: the same verbs, values and errors on both sides."""
    async with asyncio.timeout(30):
        async with app_here:
            here = [one async for one in story(app_here)]
        there = [one async for one in story(client)]
    assert there == here


async def test_a_decision_is_about_the_call_that_waits_and_a_named_one_about_no_other_apr_2(app_here):
    async with asyncio.timeout(30), app_here:
        denied, _, same, again, *wrong, open_still, approved, _, facts = [one async for one in reused(app_here)]
    assert (denied, same, again[0]) == ("deny", (True, False), "deny")
    assert wrong == [errors.AlreadyDecided, errors.ApprovalNotFound]
    assert (open_still, approved) == ([True], ("approve", True))
    assert facts.count("ToolSucceeded") == facts.count("ToolFailed") == 1


TWINS = [(Perdure, Client), (perdure.Sessions, Sessions), (perdure.Recoveries, Recoveries), (perdure.Session, Session)]
ONLY_THERE = {"health"}
"""What makes sense of a server alone."""


def verbs(kind):
    """Public methods and how each is called: names, kinds and defaults of its parameters, whether it is awaited."""
    return {
        name: (
            inspect.iscoroutinefunction(method),
            inspect.isasyncgenfunction(method),
            [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()],
        )
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("here", "there"), TWINS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_the_client_has_the_verbs_of_the_embedded_api_parameter_by_parameter(here, there):
    known = {name: called for name, called in verbs(there).items() if name not in ONLY_THERE}
    assert known == verbs(here)


async def test_the_nouns_of_the_client_are_those_of_the_embedded_api(app_here, client):
    def nouns(app):
        return {name for name in vars(app) if not name.startswith("_")} - {"engine"}

    assert nouns(client) == nouns(app_here) == {"sessions", "recoveries"}


async def test_create_and_prompt_without_an_id_make_one_so_that_they_may_be_sent_again(client):
    session = await client.sessions.create("default")
    receipt = await session.prompt("hi")
    assert session.id.startswith("ses_")
    assert receipt.id.startswith("msg_")


async def test_a_wrong_token_is_unauthorized_at_the_door_sec_1(url):
    with pytest.raises(errors.Unauthorized):
        await Client(url, token="wrong").__aenter__()


@pytest.mark.parametrize("where", ["nowhere", "ftp://host", "http://", "http://[::1"])
def test_what_is_no_url_is_said_at_once(where):
    with pytest.raises(errors.ConfigError, match="URL"):
        Client(where)


@pytest.mark.parametrize("secret", ["two words", "line\nbreak", "ünïcode"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_quoted_sec_1(secret):
    with pytest.raises(errors.ConfigError) as refused:
        Client("http://127.0.0.1:1", token=secret)
    assert secret not in str(refused.value)


async def test_a_server_that_is_not_there_is_one_error_that_says_what_to_do():
    with pytest.raises(ServerUnreachable) as refused:
        await Client("http://127.0.0.1:1", patience=0.1).__aenter__()
    assert "perdure serve" in refused.value.remedy


def test_every_error_of_the_tree_comes_back_as_its_class_with_what_it_carries():
    given = errors.PromptConflict("ses_1", "msg_1")
    back = problems.from_document({"type": "prompt-conflict", "detail": str(given), **vars(given)})
    assert (type(back), str(back), vars(back)) == (errors.PromptConflict, str(given), vars(given))
    for kind in problems._KINDS.values():
        assert type(problems.from_document({"type": kind.type, "detail": "x"})) is kind


async def test_a_server_that_sends_a_client_elsewhere_does_not_get_its_token_there_sec_1():
    asked = []

    async def elsewhere(reader, writer):
        asked.append(await reader.readline())
        writer.close()

    async def here(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        place = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/v1/sessions"
        writer.write(f"HTTP/1.1 307 See\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(elsewhere, "127.0.0.1", 0) as other,
        await asyncio.start_server(here, "127.0.0.1", 0) as server,
    ):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(errors.PerdureError):
            async with Client(url, token="secret", patience=0.1) as client:
                await client.sessions.list()
    assert asked == []


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1]", b'{"status": 502}', b"\xff"])
def test_an_answer_that_is_no_problem_document_is_no_server_of_ours(body):
    assert type(problems.error_of(502, body)) is ServerUnreachable


def test_a_problem_of_a_type_nobody_knows_keeps_its_words():
    error = problems.error_of(418, b'{"type": "teapot", "detail": "Short and stout"}')
    assert (type(error), str(error)) == (errors.PerdureError, "Short and stout")
