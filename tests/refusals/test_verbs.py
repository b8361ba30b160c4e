"""Every public verb, asked for what it must refuse: the error's class, and the whole database as it was before (SEC-2).

A table of rows by verb: what is wrong, the class of the error, and the call. A verb that is added and has no rows here
fails the first test.
"""

import contextlib
import inspect
import io
import json

import apsw
import pytest
import refusing

from perdure import Perdure, errors
from perdure.core import events, messages
from perdure.engine import perdure as embedded
from perdure.engine.parts import Part
from perdure.maintenance import transfer

TAKES_NOTHING = {"Recoveries.list", "Perdure.approvals"}


async def everything(found):
    async with contextlib.aclosing(found) as items:
        return [item async for item in items]


def of(session_id, call):
    """A call of a session's verb; the handle is made by hand, so that the verb itself has to look."""
    return lambda app: call(embedded.Session(app.engine, session_id))


SESSION = {
    "info": lambda one: one.info(),
    "update": lambda one: one.update(events.Changes(title="x")),
    "switch_agent": lambda one: one.switch_agent("other"),
    "switch_model": lambda one: one.switch_model("own:m"),
    "fork": lambda one: one.fork(),
    "delete": lambda one: one.delete(),
    "prompt": lambda one: one.prompt("hi"),
    "receipt": lambda one: one.receipt("idle-1"),
    "inbox": lambda one: one.inbox(),
    "cancel": lambda one: one.cancel("pending"),
    "change_delivery": lambda one: one.change_delivery("pending", "queue"),
    "retry": lambda one: one.retry("idle-2"),
    "resume": lambda one: one.resume(),
    "interrupt": lambda one: one.interrupt(),
    "decide": lambda one: one.decide("c2", "approve"),
    "approvals": lambda one: one.approvals(),
    "attempts": lambda one: one.attempts(),
    "compact": lambda one: one.compact(),
    "wait": lambda one: one.wait(timeout=5),
    "messages": lambda one: one.messages(),
    "status": lambda one: one.status(),
    "events": lambda one: everything(one.events(follow=False)),
}
WANTS = ["update", "switch_agent", "switch_model", "prompt", "cancel", "change_delivery", "retry", "resume", "decide"]
WANTS += ["compact"]
"""Verbs that ask something of a session: of one that is being deleted they may not."""

ROWS = {f"Session.{verb}": [] for verb in SESSION}
for verb, call in SESSION.items():
    ROWS[f"Session.{verb}"] += [
        ("an unknown session", errors.SessionNotFound, of("nobody", call)),
        ("a deleted session", errors.SessionGone, of("gone", call)),
        ("a session whose id is no text", errors.InvalidInput, of(refusing.NO_TEXT, call)),
    ]
for verb in WANTS:
    ROWS[f"Session.{verb}"].append(
        ("a session that is being deleted", errors.SessionGone, of("deleting", SESSION[verb]))
    )


def rows(verb, kind, cases, session_id="idle"):
    """More rows of one error: what is wrong, and the call on a session."""
    ROWS.setdefault(verb, []).extend((what, kind, of(session_id, call)) for what, call in cases.items())


# -- prompts -----------------------------------------------------------------------------------------------------------------

PROMPT_CALLS = {
    "receipt": lambda one, id_: one.receipt(id_),
    "cancel": lambda one, id_: one.cancel(id_),
    "change_delivery": lambda one, id_: one.change_delivery(id_, "steer"),
    "retry": lambda one, id_: one.retry(id_),
    "wait": lambda one, id_: one.wait(id_, timeout=5),
}
for verb, call in PROMPT_CALLS.items():
    bad = {what: lambda one, id_=id_, call=call: call(one, id_) for what, id_ in refusing.BAD_IDS.items()}
    rows(f"Session.{verb}", errors.InvalidId, bad)
    unknown = {"an unknown prompt": "nothing", "a prompt of another session": "pending", "a message": "evt_x"}
    missing = {what: lambda one, id_=id_, call=call: call(one, id_) for what, id_ in unknown.items()}
    rows(f"Session.{verb}", errors.PromptNotFound, missing)

SETTLED = {"idle": "idle-1", "waiting": "cancelled", "parked": "parked-1", "running": "running-1"}
for verb in ("cancel", "change_delivery"):
    for session_id, prompt in SETTLED.items():
        case = {f"{prompt}, which does not wait": lambda one, p=prompt, v=verb: PROMPT_CALLS[v](one, p)}
        rows(f"Session.{verb}", errors.LifecycleConflict, case, session_id)
    ROWS[f"Session.{verb}"].append(
        (
            "a continuation, which is the engine's",
            errors.LifecycleConflict,
            lambda app, v=verb: PROMPT_CALLS[v](
                embedded.Session(app.engine, "asking"), f"msg_continue_{app.executions['asking']}"
            ),
        )
    )
for session_id, prompt in {**SETTLED, "waiting": "pending"}.items():
    case = {f"{prompt}, which neither failed nor was interrupted": lambda one, p=prompt: one.retry(p)}
    rows("Session.retry", errors.LifecycleConflict, case, session_id)
rows("Session.retry", errors.LifecycleConflict, {"a cancelled prompt": lambda one: one.retry("cancelled")}, "waiting")
DELIVERIES = ["", "now", "Steer", "steer ", "a\x00", refusing.NO_TEXT, "x" * 5000, None, 1]
wrong = {f"delivery {one!r:.20}": lambda it, d=one: it.change_delivery("pending", d) for one in DELIVERIES}
rows("Session.change_delivery", errors.InvalidInput, wrong, "waiting")
wrong = {f"delivery {one!r:.20}": lambda it, d=one: it.prompt("hi", delivery=d) for one in DELIVERIES}
rows("Session.prompt", errors.InvalidInput, wrong)

IMAGE = Part("image", data=b"pixels", mime="image/png")
EMPTY = {
    "an empty prompt": "",
    "no parts": [],
    "empty parts": [Part("text", text=""), Part("text")],
    "a file without bytes": [Part("file", data=b"")],
}
WRONG = {
    "text that is no text": "a\ud800b",
    "a name that is no text": [Part("file", data=b"x", name=refusing.NO_TEXT)],
    "a type that is no text": [Part("file", data=b"x", mime="\udfff")],
    "an unknown kind of part": [IMAGE, Part("sound", data=b"x")],
    "an image without data": [IMAGE, Part("image", text="x")],
    "an image of text": [IMAGE, Part("image", data="x")],
    "a part that refers to a hash that is no content": [IMAGE, messages.PromptPart("image", hash="0" * 64)],
    "a part of another kind": [IMAGE, "text"],
    "text that is a number": [IMAGE, Part("text", text=5)],
    "a name that is a number": [Part("file", data=b"x", name=5)],
}
rows(
    "Session.prompt", errors.InvalidInput, {what: lambda one, p=p: one.prompt(p) for what, p in (EMPTY | WRONG).items()}
)
rows(
    "Session.prompt",
    errors.InvalidInput,
    {f"{what}, held": lambda one, p=p: one.prompt(p) for what, p in WRONG.items()},
    "held",
)
bad = {
    what: lambda one, id_=id_: one.prompt("hi", id=id_) for what, id_ in (refusing.BAD_IDS | refusing.RESERVED).items()
}
rows("Session.prompt", errors.InvalidId, bad)
CONFLICTS = {
    "another text under the same id": lambda one: one.prompt("ho", id="pending", resume=False),
    "another kind of part under the same id": lambda one: one.prompt([IMAGE], id="pending"),
    "another delivery under the same id": lambda one: one.prompt("hi", id="pending", delivery="queue"),
    "an id that another session's prompt has": lambda one: one.prompt("hi", id="idle-1"),
    "an id that another session's message has": lambda one: one.prompt("hi", id="asking-1"),
}
rows("Session.prompt", errors.PromptConflict, CONFLICTS, "waiting")
rows("Session.prompt", errors.PromptConflict, {"a settled prompt's id": lambda one: one.prompt("ho", id="idle-1")})
rows(
    "Session.prompt",
    errors.PromptConflict,
    {"a held session, a known id": lambda one: one.prompt("hi", id="pending")},
    "held",
)

# -- settings ----------------------------------------------------------------------------------------------------------------

UNKNOWN = {
    "an unknown": "nobody",
    "an empty": "",
    "a NUL": "a\x00",
    "a huge": "x" * 300_000,
    "a half": refusing.NO_TEXT,
}
ROWS["Sessions.create"] = [
    *(
        (what, errors.InvalidId, lambda app, i=i: app.sessions.create("main", id=i))
        for what, i in refusing.BAD_IDS.items()
    ),
    *(
        (what, errors.InvalidId, lambda app, i=i: app.sessions.create("main", id=i))
        for what, i in refusing.RESERVED.items()
    ),
    *(
        (what, errors.InvalidInput, lambda app, s=s: app.sessions.create("main", **s))
        for what, s in refusing.BAD_SETTINGS.items()
    ),
    *((f"{what} agent", errors.UnknownAgent, lambda app, a=a: app.sessions.create(a)) for what, a in UNKNOWN.items()),
    *(
        (f"{what} model", errors.UnknownModel, lambda app, m=m: app.sessions.create("main", model=m))
        for what, m in UNKNOWN.items()
    ),
    ("no agent where there are two", errors.UnknownAgent, lambda app: app.sessions.create()),
    ("a deleted session's id", errors.SessionGone, lambda app: app.sessions.create("main", id="gone")),
    ("an id that is being deleted", errors.SessionGone, lambda app: app.sessions.create("main", id="deleting")),
    ("other settings under the same id", errors.SessionConflict, lambda app: app.sessions.create("main", id="idle")),
    ("another agent", errors.SessionConflict, lambda app: app.sessions.create("other", id="archived")),
    (
        "1 for true",
        errors.SessionConflict,
        lambda app: app.sessions.create("main", id="idle", title="Idle", metadata={"k": True}),
    ),
]
rows(
    "Session.update",
    errors.InvalidInput,
    {w: lambda one, s=s: one.update(refusing.changes(s)) for w, s in refusing.BAD_SETTINGS.items()},
)
GOOD = events.Changes(title="New")
rows(
    "Session.update",
    errors.UnknownAgent,
    {f"{w} agent": lambda one, a=a: one.update(GOOD, agent=a) for w, a in UNKNOWN.items()},
)
rows(
    "Session.update",
    errors.UnknownModel,
    {f"{w} model": lambda one, m=m: one.update(GOOD, agent="other", model=m) for w, m in UNKNOWN.items()},
)
rows(
    "Session.switch_agent",
    errors.UnknownAgent,
    {f"{w} agent": lambda one, a=a: one.switch_agent(a) for w, a in UNKNOWN.items()},
)
rows(
    "Session.switch_model",
    errors.UnknownModel,
    {f"{w} model": lambda one, m=m: one.switch_model(m) for w, m in UNKNOWN.items()},
)

# -- sessions ----------------------------------------------------------------------------------------------------------------

bad = {what: lambda one, id_=id_: one.fork(id=id_) for what, id_ in (refusing.BAD_IDS | refusing.RESERVED).items()}
rows("Session.fork", errors.InvalidId, bad)
BEYOND = (10_000, 2**62, 2**63, 2**70)
rows(
    "Session.fork", errors.CursorBeyondEnd, {f"seq {seq}": lambda one, s=seq: one.fork(seq=s) for seq in (-1, *BEYOND)}
)
rows(
    "Session.fork",
    errors.SessionConflict,
    {f"{id_}'s id": lambda one, i=id_: one.fork(id=i) for id_ in ("idle", "parked")},
)
rows("Session.fork", errors.SessionGone, {"a deleted session's id": lambda one: one.fork(id="gone")})
ROWS["Sessions.get"] = [
    ("an unknown session", errors.SessionNotFound, lambda app: app.sessions.get("nobody")),
    ("a deleted session", errors.SessionGone, lambda app: app.sessions.get("gone")),
    *((what, errors.InvalidId, lambda app, i=i: app.sessions.get(i)) for what, i in refusing.BAD_IDS.items()),
]
LIMITS = (0, -1, -(2**70))
ROWS["Sessions.list"] = [
    *((f"limit {n}", errors.InvalidInput, lambda app, n=n: app.sessions.list(limit=n)) for n in (*LIMITS, 2**70)),
    ("a time beyond all", errors.InvalidInput, lambda app: app.sessions.list(before=(2**70, ""))),
    ("an id that is no text", errors.InvalidInput, lambda app: app.sessions.list(before=(1, refusing.NO_TEXT))),
]
rows(
    "Session.messages",
    errors.InvalidInput,
    {f"limit {n}": lambda one, n=n: one.messages(limit=n) for n in (*LIMITS, 2**70)},
)
rows("Session.messages", errors.InvalidInput, {"a seq beyond all": lambda one: one.messages(after=2**70)})
rows(
    "Session.events",
    errors.CursorBeyondEnd,
    {f"after {n}": lambda one, n=n: everything(one.events(after=n)) for n in BEYOND},
)
rows(
    "Session.events",
    errors.CursorBeyondEnd,
    {"a past end": lambda one: everything(one.events(after=10_000, follow=False))},
)

# -- control -----------------------------------------------------------------------------------------------------------------

rows("Session.attempts", errors.InvalidInput, {f"limit {n}": lambda one, n=n: one.attempts(limit=n) for n in LIMITS})
rows("Session.attempts", errors.InvalidInput, {"a seq beyond all": lambda one: one.attempts(after=2**70)})
bad = {what: lambda one, id_=id_: one.decide("c2", "deny", message_id=id_) for what, id_ in refusing.BAD_IDS.items()}
rows("Session.decide", errors.InvalidId, bad, "parked")
other = {"a call of another message": lambda one: one.decide("c2", "deny", message_id="parked-1")}
rows("Session.decide", errors.ApprovalNotFound, other, "parked")
for busy in ("parked", "running", "failing", "asking", "held"):
    rows("Session.compact", errors.SessionBusy, {f"a session that is {busy}": SESSION["compact"]}, busy)
rows(
    "Session.interrupt",
    errors.InvalidInput,
    {"a reason that is no text": lambda one: one.interrupt(refusing.NO_TEXT)},
    "running",
)
rows("Session.resume", errors.SessionNotFound, {"an empty id": SESSION["resume"]}, "")
DECISIONS = ["", "Approve", "maybe", None, 1, refusing.NO_TEXT, "x" * 5000]
rows(
    "Session.decide",
    errors.InvalidInput,
    {f"decision {d!r:.20}": lambda one, d=d: one.decide("c2", d) for d in DECISIONS},
    "parked",
)
NO_WORDS = {"NUL": "a\x00", "half a character": refusing.NO_TEXT}
rows(
    "Session.decide",
    errors.InvalidInput,
    {f"a note with {w}": lambda one, n=n: one.decide("c2", "deny", note=n) for w, n in NO_WORDS.items()},
    "parked",
)
rows(
    "Session.decide",
    errors.InvalidInput,
    {f"a name with {w}": lambda one, n=n: one.decide("c2", "approve", by=n) for w, n in NO_WORDS.items()},
    "parked",
)
rows(
    "Session.decide",
    errors.InvalidInput,
    {"a call that is no text": lambda one: one.decide(refusing.NO_TEXT, "deny")},
    "parked",
)
CALLS = {"an unknown call": "c9", "an empty call": "", "a call with NUL": "c2\x00", "a huge call": "x" * 300_000}
rows(
    "Session.decide",
    errors.ApprovalNotFound,
    {w: lambda one, c=c: one.decide(c, "deny") for w, c in CALLS.items()},
    "parked",
)
for other in ("idle", "running", "asking", "archived"):
    rows(
        "Session.decide",
        errors.ApprovalNotFound,
        {f"{other}, where nothing waits": lambda one: one.decide("c2", "deny")},
        other,
    )
rows("Session.decide", errors.AlreadyDecided, {"another decision": lambda one: one.decide("c1", "deny")}, "parked")

for verb in ("retry", "dismiss"):

    def asked(app, execution_id, verb=verb):
        return getattr(app.recoveries, verb)(execution_id)

    ROWS[f"Recoveries.{verb}"] = [
        *((what, errors.InvalidId, lambda app, i=i, f=asked: f(app, i)) for what, i in refusing.BAD_IDS.items()),
        ("an unknown execution", errors.RecoveryNotFound, lambda app, f=asked: f(app, "exe_1")),
        ("one that runs", errors.RecoveryNotFound, lambda app, f=asked: f(app, app.executions["running"])),
        ("one that was dismissed", errors.LifecycleConflict, lambda app, f=asked: f(app, app.executions["dismissed"])),
    ]

# -- export, import, feed ----------------------------------------------------------------------------------------------------


def imported(change):
    """Import what `change` makes of the lines of session `idle`: of each as an object, or of all as bytes."""

    async def run(app):
        lines = [line for page in await everything(transfer.export(app.engine.log, "idle")) for line in page.lines]
        made = change([json.loads(line) for line in lines])
        data = made if isinstance(made, bytes) else b"".join(json.dumps(one).encode() + b"\n" for one in made)
        await everything(transfer.import_file(app.engine.log, io.BytesIO(data)))

    return run


def fresh(lines, **first):
    """The same as another session's, under other ids."""
    made = [
        {**one, "id": f"evt_fresh_{n}", "aggregate_id": "fresh", "data": {**one["data"], "session_id": "fresh"}}
        for n, one in enumerate(lines)
    ]
    return [{**made[0], **first}, *made[1:]]


def one_off(at, **wrong):
    return lambda lines: [{**one, **(wrong if n == at else {})} for n, one in enumerate(fresh(lines))]


FILES = {
    "what is no JSON": lambda lines: b"{",
    "what is no object": lambda lines: b"[]\n",
    "what is no text": lambda lines: b'{"id": "\xff"}\n',
    "half a character": one_off(1, data={"session_id": "fresh", "message_id": refusing.NO_TEXT}),
    "a line that lacks its seq": lambda lines: [{k: v for k, v in fresh(lines)[0].items() if k != "seq"}],
    "a negative seq": one_off(0, seq=-1),
    "a seq beyond all": one_off(1, seq=2**63),
    "a time beyond all": one_off(1, created=2**63),
    "an unknown type": one_off(2, type="session.dreamt.1"),
    "an unknown version": one_off(0, type="session.created.99"),
    "a payload that is none": one_off(1, data={"session_id": "fresh"}),
    "another session's payload": one_off(1, aggregate_id="elsewhere"),
    "nesting without end": lambda lines: b'{"data":' + b"[" * 100_000,
    "a gap": lambda lines: [one for n, one in enumerate(fresh(lines)) if n != 2],
    "no beginning": lambda lines: fresh(lines)[1:],
    "an id of another event": one_off(3, id="evt_fresh_1"),
    "an id of another session's event": lambda lines: fresh(lines, id=lines[0]["id"]),
    "a prompt's id of another session": fresh,
    "another past": lambda lines: [{**lines[0], "created": 1}],
    "another future": lambda lines: [*lines, {**lines[-1], "id": "evt_new", "seq": len(lines) + 5}],
    "a deleted session": lambda lines: [
        {**lines[0], "aggregate_id": "gone", "data": {**lines[0]["data"], "session_id": "gone"}}
    ],
    "a session that runs": lambda lines: [
        {
            **lines[0],
            "id": "evt_run",
            "aggregate_id": "running",
            "seq": 6,
            "type": "session.updated.1",
            "data": {"session_id": "running", "changes": {"title": "x"}},
        }
    ],
}
ROWS["import_file"] = [(what, errors.InvalidDurableEvent, imported(change)) for what, change in FILES.items()]
ROWS["export"] = [
    ("an unknown session", errors.SessionNotFound, lambda app: everything(transfer.export(app.engine.log, "nobody"))),
    ("a deleted session", errors.SessionNotFound, lambda app: everything(transfer.export(app.engine.log, "gone"))),
    ("no text", errors.InvalidInput, lambda app: everything(transfer.export(app.engine.log, refusing.NO_TEXT))),
]
ROWS["Perdure.events"] = [
    (f"position {n}", errors.CursorBeyondEnd, lambda app, n=n: everything(app.events(after=n, follow=False)))
    for n in BEYOND
]
ROWS["Log.feed"] = [
    (f"position {n}", errors.CursorBeyondEnd, lambda app, n=n: everything(app.engine.log.feed(n))) for n in BEYOND
]
ROWS["Log.read"] = [
    ("a seq beyond the end", errors.CursorBeyondEnd, lambda app: app.engine.log.read("idle", 10_000)),
    ("an empty log's", errors.CursorBeyondEnd, lambda app: app.engine.log.read("nobody", 0)),
    ("a seq beyond all", errors.InvalidInput, lambda app: app.engine.log.read("idle", 2**70)),
]
ROWS["Log.follow"] = [
    (f"after {n}", errors.CursorBeyondEnd, lambda app, n=n: everything(app.engine.log.follow("idle", n)))
    for n in BEYOND
]


def verbs():
    """Every public method of the nouns, and the functions beside them."""
    for noun in (Perdure, embedded.Sessions, embedded.Session, embedded.Recoveries):
        for name, _ in inspect.getmembers(noun, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{noun.__name__}.{name}"
    yield from (name for name, one in inspect.getmembers(transfer) if name in {"export", "import_file"} and one)


def test_every_public_verb_has_its_refusals():
    """A verb that is added needs rows here."""
    assert set(verbs()) <= ROWS.keys() | TAKES_NOTHING
    assert all(ROWS.values())


@pytest.mark.parametrize("verb", ROWS)
async def test_what_a_verb_refuses_has_its_type_and_leaves_the_whole_database_as_it_was_sec_2(app, dump, verb):
    """SEC-2, IN-2, IN-10, IN-12, APR-2, CMP-3, LOG-10, LOG-20: bad input is told so, and nothing is half done."""
    wrong, before = [], dump(app)
    for what, kind, call in ROWS[verb]:
        try:
            answer = await call(app)
        except Exception as error:  # noqa: BLE001, which one it is decides
            if type(error) is not kind:
                wrong.append(f"{what}: {error!r:.300} and not {kind.__name__}")
        else:
            wrong.append(f"{what}: answered {answer!r:.100}, no {kind.__name__}")
        after = dump(app)
        if difference := refusing.changed(before, after):
            wrong.append(f"{what}: changed {difference}")
        before = after
    assert wrong == []


LARGE = {
    "a prompt": lambda app: embedded.Session(app.engine, "idle").prompt("x" * 200_000),
    "a file": lambda app: embedded.Session(app.engine, "idle").prompt([IMAGE, Part("file", data=b"x" * 200_000)]),
    "a title": lambda app: embedded.Session(app.engine, "idle").update(events.Changes(title="x" * 200_000)),
    "a new session": lambda app: app.sessions.create("main", metadata={"x" * 200_000: 1}),
    "a note": lambda app: embedded.Session(app.engine, "parked").decide("c2", "deny", note="x" * 200_000),
    "a reason": lambda app: embedded.Session(app.engine, "running").interrupt("x" * 200_000),
}


@pytest.mark.parametrize("what", LARGE)
async def test_what_is_larger_than_the_database_holds_is_refused_whole_sec_2(app, dump, what):
    """SEC-2: the limit is the database's own, lowered on its writing connection."""
    await app.engine.store.write(lambda tx: tx.content._c.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000))
    before = dump(app)
    with pytest.raises(errors.TooLarge):
        await LARGE[what](app)
    assert refusing.changed(before, dump(app)) == {}
