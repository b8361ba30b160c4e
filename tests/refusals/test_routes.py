"""Every mutating route, asked for what it must refuse: status and type of the problem, and the whole database as it was.

A table of rows by route: what is wrong, how it is asked, the status and the type. A mutating route that is added and has no
rows here fails the first test; what is wrong with any request at all is asked of every route.
"""

import contextlib
import json
import urllib.parse

import httpx2
import pytest
import refusing

from perdure.server import app as server

TOKEN = "a-token-of-the-tests"
READING = {"GET", "HEAD"}
JSON = {"Content-Type": "application/json"}

# What each mutating route takes when nothing is wrong.
GOOD = {
    "POST /v1/login": {"token": TOKEN},
    "POST /v1/logout": None,
    "POST /v1/sessions": {"agent": "main"},
    "PATCH /v1/sessions/{session_id}": {"title": "New"},
    "DELETE /v1/sessions/{session_id}": None,
    "POST /v1/sessions/{session_id}/fork": {},
    "POST /v1/sessions/{session_id}/prompts": {"text": "hi"},
    "DELETE /v1/sessions/{session_id}/prompts/{message_id}": None,
    "PATCH /v1/sessions/{session_id}/prompts/{message_id}": {"delivery": "queue"},
    "POST /v1/sessions/{session_id}/prompts/{message_id}/retry": None,
    "POST /v1/sessions/{session_id}/interrupt": {},
    "POST /v1/sessions/{session_id}/resume": None,
    "POST /v1/sessions/{session_id}/wait": {"timeout": 0},
    "POST /v1/sessions/{session_id}/compact": None,
    "POST /v1/sessions/{session_id}/approvals/{call_id}": {"decision": "deny"},
    "POST /v1/recoveries/{execution_id}/retry": None,
    "POST /v1/recoveries/{execution_id}/dismiss": None,
}
WANTS = [one for one in GOOD if one.startswith(("PATCH", "POST")) and "{session_id}" in one]
WANTS = [one for one in WANTS if not one.endswith(("fork", "interrupt", "wait"))]
WANTS.append("DELETE /v1/sessions/{session_id}/prompts/{message_id}")
"""Routes that ask something of a session: of one that is being deleted they may not."""

BAD_IN_PATH = {what: id_ for what, id_ in refusing.BAD_IDS.items() if id_ not in {"", "..", refusing.NO_TEXT, "a/b"}}
BODIES = {
    "half of a body": (b'{"text": "hi"', JSON, 400, "malformed-json"),
    "two bodies": (b"{} {}", JSON, 400, "malformed-json"),
    "NaN": (b'{"x": NaN}', JSON, 400, "malformed-json"),
    "half a character": (rb'{"x": "\ud800"}', JSON, 400, "malformed-json"),
    "half a character in a key": (rb'{"\udc00": 1}', JSON, 400, "malformed-json"),
    "what is no text": (b'{"x": "\xff"}', JSON, 400, "malformed-json"),
    "nesting": (b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}", JSON, 400, "malformed-json"),
    "nesting without end": (b"[" * 100_000, JSON, 400, "malformed-json"),
    "a large body": (b'{"x": "' + b"x" * 2**20 + b'"}', JSON, 413, "too-large"),
}
NO_OBJECT = {
    "no body's type": (b"{}", {"Content-Type": "text/plain"}, 422, "invalid-input"),
    "a list": (b"[]", JSON, 422, "invalid-input"),
    "a number": (b"1", JSON, 422, "invalid-input"),
    "an unknown field": (b'{"unheard_of": 1}', JSON, 422, "invalid-input"),
}


class Asked:
    """One request that is wrong, and what is answered."""

    def __init__(self, what, route, status, kind, *, body=None, raw=None, headers=None, query="", **path):
        self.what, self.status, self.kind = what, status, kind
        self.method, _, template = route.partition(" ")
        known = {"session_id": "idle", "message_id": "idle-1", "call_id": "c2", "execution_id": "exe_1", **path}
        self.path = template.format(**{name: urllib.parse.quote(one, safe="") for name, one in known.items()}) + query
        self.more = {"content": raw} if raw is not None else ({} if body is None else {"json": body})
        self.headers = headers or {}


def rows(route, status, kind, bodies, **more):
    """Rows of one problem: what is wrong, and the body."""
    ROWS[route] += [Asked(what, route, status, kind, body=body, **more) for what, body in bodies.items()]


ROWS = {route: [] for route in GOOD}
for route, body in GOOD.items():
    ROWS[route] += [
        Asked(what, route, status, kind, raw=raw, headers=headers)
        for what, (raw, headers, status, kind) in BODIES.items()
    ]
    ROWS[route].append(Asked("a foreign name", route, 403, "forbidden", body=body, headers={"Host": "evil.example"}))
    if body is not None:
        ROWS[route] += [
            Asked(what, route, status, kind, raw=raw, headers=headers)
            for what, (raw, headers, status, kind) in NO_OBJECT.items()
        ]
    if route != "POST /v1/login":
        for what, given in {"no token": "", "another token": "Bearer x", "another scheme": f"Basic {TOKEN}"}.items():
            headers = {"Authorization": given}
            ROWS[route].append(Asked(what, route, 401, "unauthorized", body=body, headers=headers))
    for name in ("session_id", "message_id", "execution_id"):
        if f"{{{name}}}" in route:
            ROWS[route] += [
                Asked(f"{name}: {what}", route, 422, "invalid-id", body=body, **{name: id_})
                for what, id_ in BAD_IN_PATH.items()
            ]
    if "{session_id}" in route:
        ROWS[route].append(Asked("an unknown session", route, 404, "session-not-found", body=body, session_id="nobody"))
        ROWS[route].append(Asked("a deleted session", route, 410, "session-gone", body=body, session_id="gone"))
    if route in WANTS:
        going = Asked("a session that is being deleted", route, 410, "session-gone", body=body, session_id="deleting")
        ROWS[route].append(going)
    if "{message_id}" in route:
        for what, id_ in {"an unknown prompt": "nothing", "another session's prompt": "pending"}.items():
            ROWS[route].append(Asked(what, route, 404, "prompt-not-found", body=body, message_id=id_))

LOGIN, CREATE, CHANGE = "POST /v1/login", "POST /v1/sessions", "PATCH /v1/sessions/{session_id}"
PROMPT, FORK = "POST /v1/sessions/{session_id}/prompts", "POST /v1/sessions/{session_id}/fork"
CANCEL = "DELETE /v1/sessions/{session_id}/prompts/{message_id}"
DELIVER = "PATCH /v1/sessions/{session_id}/prompts/{message_id}"
RETRY = "POST /v1/sessions/{session_id}/prompts/{message_id}/retry"
DECIDE, WAIT = "POST /v1/sessions/{session_id}/approvals/{call_id}", "POST /v1/sessions/{session_id}/wait"
INTERRUPT, COMPACT = "POST /v1/sessions/{session_id}/interrupt", "POST /v1/sessions/{session_id}/compact"

rows(LOGIN, 401, "unauthorized", {"another token": {"token": "x"}, "an empty token": {"token": ""}})
rows(LOGIN, 422, "invalid-input", {"no token": {}, "a long token": {"token": "x" * 1001}, "a number": {"token": 1}})
foreign = {"Origin": "https://evil.example"}
ROWS[LOGIN].append(Asked("a foreign page", LOGIN, 403, "forbidden", body=GOOD[LOGIN], headers=foreign))

# -- settings ----------------------------------------------------------------------------------------------------------------

SETTINGS = {
    "a title with NUL": {"title": "a\x00"},
    "a long title": {"title": "x" * 2001},
    "a title that is a number": {"title": 5},
    "metadata that is a list": {"metadata": []},
    "metadata that is text": {"metadata": "x"},
    "an unknown recovery": {"policy": {"recovery": "perhaps"}},
    "an unknown repeat": {"policy": {"repeat_unknown": "perhaps"}},
    "an unknown approval": {"policy": {"approval": {"pay": "perhaps"}}},
    "an unknown part of a policy": {"policy": {"x": 1}},
    "no steps": {"policy": {"max_steps": 0}},
    "half a step": {"policy": {"max_steps": 1.5}},
    "a negative budget": {"policy": {"session_budget": {"tokens": -1}}},
    "no attempts": {"policy": {"retry": {"attempts": 0}}},
    "attempts of an unknown kind": {"policy": {"retry": {"attempts_of": {"weather": 2}}}},
    "an empty agent": {"agent": ""},
    "an agent with NUL": {"agent": "a\x00"},
    "a long model": {"model": "x" * 201},
}
for route in (CREATE, CHANGE):
    rows(route, 422, "invalid-input", {what: {"agent": "main", **body} for what, body in SETTINGS.items()})
    rows(route, 422, "unknown-agent", {"an unknown agent": {"title": "New", "agent": "nobody"}})
    rows(route, 422, "unknown-model", {"an unknown model": {"title": "New", "agent": "other", "model": "nobody:m"}})
rows(CREATE, 422, "unknown-agent", {"no agent where there are two": {}})
rows(CREATE, 409, "session-conflict", {"other settings under the same id": {"agent": "main", "id": "idle"}})
for route, base in ((CREATE, {"agent": "main"}), (FORK, {}), (PROMPT, {"text": "hi"})):
    ids = {
        what: {**base, "id": one} for what, one in (refusing.BAD_IDS | refusing.RESERVED).items() if one != "a\ud800"
    }
    rows(route, 422, "invalid-id", ids)
    rows(route, 422, "invalid-input", {"an id that is a number": {**base, "id": 5}})
for route, base in ((CREATE, {"agent": "main"}), (FORK, {})):
    rows(route, 410, "session-gone", {"a deleted session's id": {**base, "id": "gone"}})
rows(FORK, 409, "session-conflict", {"its own id": {"id": "idle"}, "another's id": {"id": "parked"}})
rows(FORK, 422, "cursor-beyond-end", {"a seq beyond the end": {"seq": 10_000}})
rows(FORK, 422, "invalid-input", {"a negative seq": {"seq": -1}, "a huge seq": {"seq": 2**64}, "a word": {"seq": "1"}})

# -- prompts -----------------------------------------------------------------------------------------------------------------

IMAGE = {"type": "image", "data": "eA=="}
PROMPTS = {
    "neither text nor parts": {},
    "text and parts": {"text": "hi", "parts": [IMAGE]},
    "an empty prompt": {"text": ""},
    "no parts": {"parts": []},
    "too many parts": {"parts": [{"type": "text", "text": "x"}] * 1001},
    "empty parts": {"parts": [{"type": "text", "text": ""}]},
    "an empty file": {"parts": [{"type": "file", "data": ""}]},
    "an unknown kind of part": {"parts": [IMAGE, {"type": "sound", "data": "eA=="}]},
    "an image of text": {"parts": [IMAGE, {"type": "image", "text": "x"}]},
    "a text of data": {"parts": [IMAGE, {"type": "text", "data": "eA=="}]},
    "data that is no base64": {"parts": [IMAGE, {"type": "file", "data": "é"}]},
    "half of base64": {"parts": [IMAGE, {"type": "file", "data": "eA="}]},
    "a part that refers to a hash": {"parts": [IMAGE, {"type": "image", "hash": "0" * 64}]},
    "a name with a line end": {"parts": [{**IMAGE, "name": "a\nb"}]},
    "another delivery": {"text": "hi", "delivery": "now"},
    "no delivery": {"text": "hi", "delivery": None},
    "a word for resume": {"text": "hi", "resume": "yes"},
    "text that is a number": {"text": 5},
}
rows(PROMPT, 422, "invalid-input", PROMPTS)
CONFLICTS = {
    "another text under the same id": {"id": "pending", "text": "ho"},
    "parts under the same id": {"id": "pending", "parts": [IMAGE]},
    "another delivery under the same id": {"id": "pending", "text": "hi", "delivery": "queue"},
    "an id that another session's prompt has": {"id": "idle-1", "text": "hi"},
}
rows(PROMPT, 409, "prompt-conflict", CONFLICTS, session_id="waiting")
rows(DELIVER, 422, "invalid-input", {"no delivery": {}, "another": {"delivery": "now"}, "none": {"delivery": None}})
for session_id, prompt in {
    "idle": "idle-1",
    "waiting": "cancelled",
    "parked": "parked-1",
    "running": "running-1",
}.items():
    where = {"session_id": session_id, "message_id": prompt}
    rows(CANCEL, 409, "lifecycle-conflict", {f"{prompt}, which does not wait": None}, **where)
    rows(DELIVER, 409, "lifecycle-conflict", {f"{prompt}, which does not wait": GOOD[DELIVER]}, **where)
    rows(RETRY, 409, "lifecycle-conflict", {f"{prompt}, which did not fail": None}, **where)

# -- control -----------------------------------------------------------------------------------------------------------------

WRONG = {"no decision": {}, "another": {"decision": "maybe"}, "a number": {"decision": 1}}
WRONG |= {"a long note": {"decision": "deny", "note": "x" * 10_001}, "NUL": {"decision": "deny", "note": "a\x00"}}
rows(DECIDE, 422, "invalid-input", WRONG, session_id="parked")
bad = {what: {"decision": "deny", "message_id": one} for what, one in refusing.BAD_IDS.items() if one != "a\ud800"}
rows(DECIDE, 422, "invalid-id", bad, session_id="parked")
elsewhere = {"a call of another message": {"decision": "deny", "message_id": "parked-1"}}
rows(DECIDE, 404, "approval-not-found", elsewhere, session_id="parked")
rows(DECIDE, 422, "invalid-input", {"a long call id": GOOD[DECIDE]}, session_id="parked", call_id="x" * 1001)
for what, where in {
    "a session where nothing waits": {"session_id": "idle"},
    "a session that runs": {"session_id": "running"},
    "an unknown call": {"session_id": "parked", "call_id": "c9"},
    "a call with NUL": {"session_id": "parked", "call_id": "c2\x00"},
}.items():
    rows(DECIDE, 404, "approval-not-found", {what: GOOD[DECIDE]}, **where)
rows(DECIDE, 409, "already-decided", {"another decision": GOOD[DECIDE]}, session_id="parked", call_id="c1")
for busy in ("parked", "running", "failing", "asking", "held"):
    rows(COMPACT, 409, "session-busy", {f"a session that is {busy}": None}, session_id=busy)
REASONS = {"no reason": {"reason": ""}, "a long reason": {"reason": "x" * 2001}, "a number": {"reason": 1}}
rows(INTERRUPT, 422, "invalid-input", REASONS | {"a long execution": {"execution_id": "x" * 201}}, session_id="running")
TIMES = {f"timeout {one!r}": {"timeout": one} for one in (-1, 601, "1", 1e300, None)}
rows(WAIT, 422, "invalid-input", TIMES)
rows(WAIT, 422, "invalid-id", {what: {"message_id": id_} for what, id_ in refusing.BAD_IDS.items() if id_ != "a\ud800"})
rows(WAIT, 404, "prompt-not-found", {"an unknown prompt": {"message_id": "nothing"}})
for verb in ("retry", "dismiss"):
    route = f"POST /v1/recoveries/{{execution_id}}/{verb}"
    rows(route, 404, "recovery-not-found", {"an unknown execution": None})
    for what, (session_id, status, kind) in {
        "one that runs": ("running", 404, "recovery-not-found"),
        "one that was dismissed": ("dismissed", 409, "lifecycle-conflict"),
    }.items():
        rows(route, status, kind, {what: None}, execution_id=f"<{session_id}>")

# Reading changes nothing either; what a cursor may be is said here.
READS = {
    "GET /v1/sessions": [("cursor=x", "invalid-input"), ("limit=0", "invalid-input"), ("status=mad", "invalid-input")],
    "GET /v1/sessions/{session_id}/messages": [("cursor=x", "invalid-input"), ("after=-2", "invalid-input")],
    "GET /v1/sessions/{session_id}/events": [("after=10000", "cursor-beyond-end"), ("limit=1001", "invalid-input")],
    "GET /v1/events": [("after=10000", "cursor-beyond-end"), (f"after={2**63}", "invalid-input")],
}
for route, queries in READS.items():
    ROWS[route] = [Asked(query, route, 422, kind, query=f"?{query}") for query, kind in queries]


def test_every_mutating_route_has_its_refusals():
    """A route that is added needs rows here."""
    routes = [route for module in server.ROUTES for route in module.router.routes]
    mutating = {f"{verb} {route.path_format}" for route in routes for verb in route.methods - READING}
    assert mutating == GOOD.keys()
    assert all(ROWS.values())


@contextlib.asynccontextmanager
async def client_of(app):
    served = server.create_app(app, token=TOKEN)
    transport = httpx2.ASGITransport(served)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    # What the lifespan does is done already: the engine runs, and nothing of it is counted here.
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@pytest.mark.parametrize("route", ROWS)
async def test_what_a_route_refuses_has_its_problem_and_leaves_the_whole_database_as_it_was_sec_2(app, dump, route):
    """SEC-1, SEC-2, IN-2, IN-10, IN-12, APR-2, CMP-3: over HTTP too bad input is told so, and nothing is half done."""
    wrong, before = [], dump(app)
    async with client_of(app) as client:
        for one in ROWS[route]:
            path = one.path
            for session_id, execution_id in app.executions.items():
                path = path.replace(urllib.parse.quote(f"<{session_id}>", safe=""), execution_id)
            done = await client.request(one.method, path, headers=one.headers, **one.more)
            problem = json.loads(done.content) if done.content[:1] == b"{" else {}
            found = (done.status_code, problem.get("type"), problem.get("status"))
            if found != (one.status, one.kind, one.status) or not problem.get("remedy"):
                wrong.append(f"{one.what}: {found} and not {one.status} {one.kind}: {done.text:.200}")
            after = dump(app)
            if difference := refusing.changed(before, after):
                wrong.append(f"{one.what}: changed {difference}")
            before = after
    assert wrong == []
