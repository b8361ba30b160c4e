"""Every error has a status, and none of them tells more than it should."""

import asyncio
import inspect
import json
import logging
import re

import pytest

from perdure import errors
from perdure.server import problems


def every_error():
    return [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.PerdureError)]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_class_has_a_row_of_its_own_or_an_ancestors(kind):
    nearest = next(one for one in kind.__mro__ if one in problems.STATUS)
    assert problems.status_of(kind) == problems.STATUS[nearest]
    assert nearest is not errors.PerdureError or kind is errors.PerdureError, "only the root itself falls to the root"


def test_the_table_has_no_row_for_what_is_no_error_of_ours():
    assert set(problems.STATUS) <= set(every_error())


@pytest.mark.parametrize("kind", every_error())
def test_an_error_has_a_stable_type_of_its_own_and_says_what_to_do(kind):
    assert kind.remedy
    assert [one for one in every_error() if one.type == kind.type] == [kind]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.InvalidId, 422),
        (errors.MalformedJson, 400),
        (errors.TooLarge, 413),
        (errors.Unauthorized, 401),
        (errors.Forbidden, 403),
        (errors.PromptNotFound, 404),
        (errors.SessionGone, 410),
        (errors.PromptConflict, 409),
        (errors.StoreBusy, 503),
        (errors.StoreFull, 507),
        (errors.MessageUndecodable, 500),
        (errors.IllegalTransition, 500),
    ],
)
def test_the_statuses_that_clients_rely_on(kind, status):
    assert problems.status_of(kind) == status


async def test_an_exception_nobody_foresaw_is_a_500_that_tells_nothing_and_is_logged(served, caplog):
    async def broken(*_):
        raise RuntimeError("the secret of the house")

    served.perdure.engine.store.read = broken
    with caplog.at_level(logging.ERROR):
        done = await served.client.get("/v1/recoveries")
    assert (done.status_code, done.headers["content-type"]) == (500, "application/problem+json")
    assert done.json()["type"] == "unexpected"
    assert "secret" not in done.text
    assert "Traceback" not in done.text
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["the secret of the house"]


async def test_an_error_inside_a_stream_is_told_in_the_stream(served):
    await served.session()
    await served.perdure.engine.store.write(lambda tx: tx.events.put_sequence("s", 5, None))

    async def broken(aggregate_id, after, end, page):
        raise errors.Undecodable("Not a stored event: of the test")
        yield

    served.perdure.engine.log._pages = broken
    async with served.reader() as reader:
        found = await reader.rest()
    assert [one.event for one in found] == ["hello", "problem"]
    assert found[1].data["type"] == "undecodable"


# -- bodies that nobody asked for ------------------------------------------------------------------------------------------

NOTHING = [
    ("POST", "/v1/sessions/s/resume"),
    ("POST", "/v1/sessions/s/compact"),
    ("POST", "/v1/sessions/s/prompts/p/retry"),
    ("DELETE", "/v1/sessions/s/prompts/p"),
    ("DELETE", "/v1/sessions/s"),
    ("POST", "/v1/recoveries/exe_1/retry"),
    ("POST", "/v1/recoveries/exe_1/dismiss"),
    ("POST", "/v1/logout"),
]
OPTIONAL = [("POST", f"/v1/sessions/s/{verb}") for verb in ("interrupt", "wait", "fork")]


@pytest.mark.parametrize(("method", "path"), [*NOTHING, *OPTIONAL])
async def test_a_body_of_another_shape_is_refused_and_does_nothing(served, method, path):
    await served.session()
    for body in ("[]", "[1]", '"reason"', "7", "false", '{"message": "hi"}', '{"session_id": "other"}'):
        done = await served.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert (done.status_code, done.json()["type"]) == (422, "invalid-input"), (body, done.text)
    undeclared = await served.client.request(method, path, content='{"a": 1}')
    assert undeclared.status_code == 422
    assert (await served.client.get("/v1/sessions/s/events")).json()["last_seq"] == 0
    assert (await served.client.get("/v1/sessions/s")).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b" {} "])
async def test_nothing_is_taken_for_nothing_however_it_is_said(served, body):
    await served.session()
    headers = {"Content-Type": "application/json"}
    for path, status in {"/v1/sessions/s/resume": 200, "/v1/sessions/s/interrupt": 200, "/v1/logout": 204}.items():
        done = await served.client.post(path, content=body, headers=headers)
        assert done.status_code == status, done.text


async def test_every_route_that_changes_something_takes_a_body_or_refuses_one(served):
    """A route that is new is in one of the lists above, or says in OpenAPI what it takes."""
    document = (await served.client.get("/openapi.json")).json()
    silent = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if method != "get" and "requestBody" not in about
    }
    shapes = {one: re.compile(re.sub(r"\{\w+\}", "[^/]+", one[1])) for one in silent}
    tried = {
        (method, path): [one for one, shape in shapes.items() if one[0] == method and shape.fullmatch(path)]
        for method, path in NOTHING
    }
    assert sorted(one for found in tried.values() for one in found) == sorted(silent)


# -- what is no request ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"nonsense\r\n\r\n", 400, "not-http"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400, "not-http"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "not-http"),
        (b"POST /v1/login HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, "not-http"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000, 431, "headers-too-large"),
    ],
    ids=["line", "header", "host", "length", "large"],
)
async def test_what_is_no_http_is_answered_with_a_problem_document_and_the_end(served, sent, status, kind):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    whole = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), whole
    assert b"application/problem+json" in head
    told = json.loads(body)
    assert (told["type"], told["status"]) == (kind, status)
    assert set(told) == {"type", "title", "status", "detail", "remedy"}
    assert (await served.client.get("/health")).status_code == 200


# -- what a stop cuts off ----------------------------------------------------------------------------------------------------


async def test_a_request_still_at_work_when_the_servers_time_is_over_is_told_so_ex_9(served, caplog):
    begun = asyncio.Event()

    async def never():
        begun.set()
        await asyncio.Event().wait()

    served.app.add_api_route("/v1/never", never)
    asked = asyncio.create_task(served.client.get("/v1/never"))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    credential = served.client.headers["Authorization"]
    head = f"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {credential}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    await begun.wait()
    await served.stop()
    done = await asked
    raw_head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    assert (done.status_code, done.headers["retry-after"]) == (503, "1")
    assert done.headers["content-type"] == "application/problem+json"
    assert raw_head.startswith(b"HTTP/1.1 503 ")
    assert b"application/problem+json" in raw_head
    assert done.json() == json.loads(body)
    assert (done.json()["type"], done.json()["title"]) == ("stopping", "The server is stopping.")
    assert not [record for record in caplog.records if record.exc_info]
