"""From the inbox into the transcript.

Lives here: reading what waits and appending what `core/inbox.py` chooses, inside the caller's unit. Not here: the rule
itself, claims, when a boundary is reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure import errors
from perdure.core import codec, events, inbox, messages
from perdure.log.unit import Unit
from perdure.store import inbox as rows
from perdure.store import port


def waiting(tx: port.Tx, session_id: str, now: int) -> list[inbox.Waiting]:
    """What waits in a session, in admission order."""
    pending = tx.inbox.pending(session_id)
    recovery = tx.recoveries.waiting(session_id) if any(row.kind == "synthetic" for row in pending) else None

    def shape(row: rows.InputRow) -> inbox.Waiting:
        continuation = recovery is not None and recovery.continuation_message_id == row.id
        armed = (
            continuation
            and recovery is not None
            and recovery.wake_pending
            and recovery.recovery_error is None
            and (recovery.not_before is None or recovery.not_before <= now)
        )
        return inbox.Waiting(row.id, row.delivery, row.wake_pending, continuation, armed)

    return [shape(row) for row in pending]


@dataclass(frozen=True, slots=True)
class Promoted:
    """Ids of the inputs that entered the transcript; `attempt` numbers the provider attempt that follows, which is not the
    first where a continuation takes up a step that was being tried again.
    """

    ids: tuple[str, ...]
    attempt: int = 1


def promote(unit: Unit, session_id: str, choice: inbox.Choice) -> Promoted:
    """Append the promotions and withdrawals of a choice; an input that cannot be decoded is withdrawn as failed
    (IN-14).
    """
    promoted = [row for message_id in choice.promote if (row := _promote_one(unit, session_id, message_id))]
    for superseded in choice.supersede if promoted else ():
        unit.append(events.PromptWithdrawn(session_id=session_id, message_id=superseded, reason="superseded"))
    continued = (unit.tx.recoveries.of_continuation(row.id) for row in promoted if row.kind == "synthetic")
    attempt = max((recovery.attempt for recovery in continued if recovery), default=0) or 1
    return Promoted(tuple(row.id for row in promoted), attempt)


def eligible(unit: Unit, session_id: str) -> inbox.Choice:
    """With no turn open: what may be promoted now."""
    return inbox.choose(waiting(unit.tx, session_id, unit.now), turn_open=False)


def promote_next(unit: Unit, session_id: str, choice: inbox.Choice) -> Promoted:
    """With no turn open: promote what is eligible, past inputs that cannot be decoded; no ids where nothing is."""
    while choice.promote:
        promoted = promote(unit, session_id, choice)
        if promoted.ids:
            return promoted
        choice = eligible(unit, session_id)
    return Promoted(())


def _promote_one(unit: Unit, session_id: str, message_id: str) -> rows.InputRow | None:
    """The input as it was, or None where it cannot be decoded and was withdrawn."""
    row = unit.tx.inbox.get(message_id)
    if row is None or not row.pending:
        msg = f"Input {message_id} is no longer pending"
        raise errors.LifecycleConflict(msg)
    try:
        prompt = codec.load(unit.tx.inbox.prompt(row), messages.Prompt)
    except errors.Undecodable as error:
        failure = messages.Failure(error.type, str(error))
        withdraw_failed(unit, session_id, message_id, failure)
        return None
    unit.append(
        events.PromptPromoted(
            session_id=session_id,
            message_id=message_id,
            kind=row.kind,
            prompt=prompt,
            delivery=row.delivery,
            time_created=row.time_created,
        )
    )
    return row


def withdraw_failed(unit: Unit, session_id: str, message_id: str, failure: messages.Failure) -> None:
    """Withdraw a pending input that can never run; with a continuation its execution ends, and the prompts of that."""
    recovery = unit.tx.recoveries.of_continuation(message_id)
    unit.append(events.PromptWithdrawn(session_id=session_id, message_id=message_id, reason="failed", error=failure))
    if recovery:
        ended = events.ExecutionEnded(
            session_id=session_id,
            execution_id=recovery.execution_id,
            outcome="failed",
            message_ids=settled_by_turn(unit.tx, session_id),
            error=failure,
            reason=failure.type,
        )
        unit.append(ended)


def running_since(tx: port.Tx, session_id: str) -> list[int]:
    """The seqs at which the inputs of the open turn were promoted; of a prompt that runs again, those of its retry input."""
    running = tx.inbox.running(session_id)
    return [row.promoted_seq for row in running if row.promoted_seq is not None and row.retried_by is None]


def settled_by_turn(tx: port.Tx, session_id: str) -> tuple[str, ...]:
    """The inputs an `execution.ended` of the open turn settles: those running, and the targets of running retry inputs."""
    running = tx.inbox.running(session_id)
    retries = (row for row in running if row.kind == "synthetic")
    targets = [target.id for one in retries if (target := tx.inbox.target_of(one.id)) and target.outcome is None]
    return tuple(dict.fromkeys([*(row.id for row in running), *targets]))
