"""What must hold of a session, whatever happened to the processes that ran it.

Lives here: `read` (a session's log and rows in one snapshot), `at_any_time`, `at_rest` and `outside`, each a list of what
does not hold, in words that name the rule; empty is good. Pure, and written apart from the engine: from the log, not from
its code. Not here: making histories (`simulator.py`), damaged files (`maintenance/`).

At any time: also right after a death, before anybody has looked at the file. At rest: nobody runs, nobody waits for
anybody. Outside: what the world saw, which no database holds: side effects, and what models were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core import codec, events, messages, request
from perdure.log.log import Log
from perdure.maintenance import verify
from perdure.store import port
from perdure.store.claims import ClaimRow
from perdure.store.context import DraftRow
from perdure.store.inbox import InputRow
from perdure.store.sessions import SessionRow
from perdure.testing import invariants_log

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Left:
    """One session in one snapshot: its facts, and the rows beside them. `wrong` is what `verify` says of both."""

    session_id: str
    log: tuple[events.Recorded[Any], ...]
    wrong: tuple[str, ...]
    session: SessionRow | None
    inputs: tuple[InputRow, ...]
    transcript: tuple[messages.Message, ...]
    claim: ClaimRow | None
    drafts: tuple[DraftRow, ...]
    recovery: str | None
    waiting: tuple[str, ...]

    def facts(self, *kinds: type[Any]) -> list[Any]:
        """Facts of some kinds, in order."""
        return [one.data for one in self.log if isinstance(one.data, kinds)]

    def outcome(self, message_id: str) -> str | None:
        """What became of an input."""
        return next((one.outcome for one in self.inputs if one.id == message_id), None)


async def left(log: Log, session_id: str) -> Left:
    """The session as it is now."""
    return await log.store.read(lambda tx: read(tx, log.registry, session_id))


def read(tx: port.Tx, registry: codec.Registry, session_id: str) -> Left:
    """The session in the caller's snapshot."""
    facts: list[events.Recorded[Any]] = []
    while page := tx.events.page(session_id, facts[-1].seq if facts else -1, PAGE):
        facts += [verify.decoded(registry, row) for row in page]
    transcript: list[messages.Message] = []
    while found := tx.messages.page(session_id, transcript[-1].seq if transcript else -1, PAGE):
        transcript += found
    named = {
        one.data.message_id for one in facts if isinstance(one.data, events.PromptAdmitted | events.PromptPromoted)
    }
    recovery = tx.recoveries.waiting(session_id)
    problems = verify.check(tx, registry, session_id).problems
    return Left(
        session_id,
        tuple(facts),
        tuple(f"{one.kind}: {one.detail}" for one in problems),
        tx.sessions.get(session_id),
        tuple(row for one in sorted(named) if (row := tx.inbox.get(one))),
        tuple(transcript),
        tx.claims.of_session(session_id),
        tuple(tx.context.drafts(session_id)),
        recovery.execution_id if recovery else None,
        tuple(row.call_id for row in tx.approvals.waiting(session_id)),
    )


# -- whenever one looks ----------------------------------------------------------------------------------------------------


def at_any_time(found: Left) -> list[str]:
    """What does not hold though it always should."""
    return [*_rows(found), *_gone(found), *invariants_log.problems(found.log), *_claims(found)]


def _rows(found: Left) -> Iterator[str]:
    """Gap-free numbers, and rows that are the fold of the log (LOG-1, MSG-1)."""
    yield from (f"MSG-1 {words}" for words in found.wrong)
    if [one.seq for one in found.log] != list(range(len(found.log))):
        yield "LOG-1 the log has gaps"


def _gone(found: Left) -> Iterator[str]:
    """Of a session that is deleted nothing is left, and nothing comes back (LOG-26)."""
    if found.session is None:
        rows = (found.log, found.inputs, found.transcript, found.claim, found.drafts, found.recovery, found.waiting)
        yield from (f"LOG-26 a deleted session left {row!r:.200}" for row in rows if row)


def _claims(found: Left) -> Iterator[str]:
    """What is open has an owner, or waits for a person (EX-1, EX-4, PUB-3)."""
    session, claim = found.session, found.claim
    if session is None:
        return
    if session.execution_id and not session.parked and not session.held and claim is None:
        yield f"EX-4 execution {session.execution_id} is open, and nobody has the claim"
    if claim and claim.phase != "safe" and session.execution_id != claim.id and session.execution_purpose:
        yield f"EX-4 the claim is {claim.id}'s, the open execution {session.execution_id}"
    if claim is None and found.drafts:
        yield "PUB-3 a draft is left without an owner"
    if claim is None and not session.held:
        yield from _open_things(found, but_parked=True)


def _open_things(found: Left, *, but_parked: bool = False) -> Iterator[str]:
    parked = but_parked and found.session is not None and found.session.parked
    assistants = [one for one in found.transcript if isinstance(one, messages.Assistant)]
    for one in assistants[:-1] if parked else assistants:
        if one.time.completed is None:
            yield f"MSG-4 assistant {one.id} is open"
        if any(messages.part_is_open(part) for part in one.parts):
            yield f"MSG-3 a part of assistant {one.id} is open"
    for one in found.transcript:
        if isinstance(one, messages.Compaction) and one.status == "running":
            yield f"REC-2 compaction {one.id} is still running"


# -- when all is quiet -------------------------------------------------------------------------------------------------------


def at_rest(found: Left) -> list[str]:
    """What does not hold though nobody runs and nobody waits for anybody; includes what always holds.

    A session whose inputs wait for a person (held by an interrupt, never woken) is at rest.
    """
    return [*at_any_time(found), *_settled(found), *_nothing_left(found), *invariants_log.unfinished(found.log)]


def _settled(found: Left) -> Iterator[str]:
    """Every prompt that ran has its outcome, and none still wants to run (IN-12, IN-15)."""
    for row in found.inputs:
        if row.promoted_seq is not None and row.outcome is None and row.retried_by is None:
            yield f"IN-12 {row.id} is in the transcript and has no outcome"
        if row.outcome is None and row.retried_by and found.outcome(row.retried_by):
            yield f"IN-12 the retry of {row.id} is over, and it has no outcome"
        if row.wake_pending:
            yield f"IN-15 {row.id} still wants to run"


def _nothing_left(found: Left) -> Iterator[str]:
    """No claim, open turn, waiting approval, continuation, draft or open message (REC-1, APR-3)."""
    if found.claim:
        yield f"EX-1 the claim {found.claim.id} is left"
    if found.session and found.session.execution_id:
        yield f"REC-11 execution {found.session.execution_id} is left open"
    if found.recovery:
        yield f"REC-4 the continuation of {found.recovery} is left waiting"
    if found.waiting:
        yield f"APR-3 calls are left waiting: {', '.join(found.waiting)}"
    if found.drafts:
        yield "PUB-3 drafts are left"
    yield from _open_things(found)


# -- what the world saw --------------------------------------------------------------------------------------------------------


def outside(
    found: Left, effects: Sequence[tuple[str, str]] = (), requests: Sequence[request.Request] = ()
) -> list[str]:
    """What does not hold of side effects (assistant and call id of each that began) and of requests, in their order."""
    return [*_effects(found, effects), *_requests(found, requests)]


def _effects(found: Left, effects: Sequence[tuple[str, str]]) -> Iterator[str]:
    """No effect twice, none of a call that is not durable, and no success without one (REC-8)."""
    for call, times in Counter(effects).items():
        if times > 1:
            yield f"REC-8 call {call} had its effect {times} times"
    if found.session is None:
        return
    called = {
        (one.assistant_message_id, one.call_id) for one in found.facts(events.ToolCalled) if not one.provider_executed
    }
    done = {(one.assistant_message_id, one.call_id) for one in found.facts(events.ToolSucceeded)} & called
    yield from (f"RUN-3 call {call} ran and was never durable" for call in set(effects) - called)
    if effects:
        yield from (f"RUN-3 call {call} succeeded and never ran" for call in done - set(effects))


def _requests(found: Left, requests: Sequence[request.Request]) -> Iterator[str]:
    """Every request pairs calls and results, and a prompt that succeeded was shown to the model (MSG-9, IN-12)."""
    own = [one for one in requests if one.session_id == found.session_id]
    for number, one in enumerate(own):
        if problem := request.check_pairs(one.messages):
            yield f"MSG-9 request {number}: {problem}"
    if not own:
        return
    shown = {text for one in own for message in one.messages for text in _said(message)}
    for message in found.transcript:
        if isinstance(message, messages.User) and found.outcome(message.id) == "succeeded":
            missing = [part.text for part in message.prompt.parts if part.text and part.text not in shown]
            if missing:
                yield f"IN-12 {message.id} succeeded and was never shown to the model"


def _said(message: request.Message) -> Iterator[str]:
    if isinstance(message, request.UserMessage):
        yield from (part.text for part in message.content if isinstance(part, request.TextContent))


def story(found: Left) -> str:
    """The log in short, a line a fact: what to print beside what does not hold."""
    return "\n".join(
        f"{one.seq:4} {one.created % 10_000_000:8} {one.data.event_type.removeprefix('session.'):32} {_names(one.data)}"
        for one in found.log
    )


def _names(fact: Any) -> str:
    wanted = (
        "message_id",
        "execution_id",
        "assistant_message_id",
        "call_id",
        "phase",
        "outcome",
        "reason",
        "message_ids",
    )
    return " ".join(str(value)[:60] for name in wanted if (value := getattr(fact, name, None)))
