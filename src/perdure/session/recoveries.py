"""What a person may do about a turn that lost its owner (REC-7, REC-13).

Lives here: listing what waits, going on with it, dismissing it; each verb is one unit. Not here: recovery itself
(`recovery.py`), ringing. Two kinds wait: a recovered turn whose continuation is neither promoted nor withdrawn, and a
dead claim whose recovery failed.
"""

from __future__ import annotations

from perdure import errors
from perdure.core import messages
from perdure.core.answers import Recovery
from perdure.log.unit import Unit
from perdure.session import admission, recovery, sessions
from perdure.store import claims as rows
from perdure.store import port

DISMISSED = "dismissed"


def listed(tx: port.Tx) -> list[Recovery]:
    """Everything that waits, the most hopeful first."""
    recovered = [
        Recovery(
            row.execution_id,
            row.session_id,
            row.phase,
            row.wake_pending,
            row.wake_attempts,
            row.time_created,
            row.recovery_error,
            row.not_before,
        )
        for row in tx.recoveries.list()
    ]
    failing = [
        Recovery(
            claim.id,
            claim.session_id,
            claim.phase,
            armed=True,
            attempts=claim.recovery_attempts,
            time_created=claim.time_created,
            error=claim.recovery_error,
            not_before=claim.recovery_not_before,
        )
        for claim in tx.claims.all()
        if claim.recovery_error
    ]
    return recovered + failing


def retry(unit: Unit, execution_id: str) -> str:
    """Want a waiting turn to go on; the session to ring. Raises `RecoveryNotFound`, `LifecycleConflict`, `SessionGone`."""
    if failing := _failing(unit.tx, execution_id):
        sessions.usable(unit.tx, failing.session_id)
        unit.tx.claims.try_again(failing.id)
        return failing.session_id
    session_id, message_id = _waiting(unit.tx, execution_id)
    sessions.usable(unit.tx, session_id)
    admission.request_execution(unit, session_id, message_id)
    return session_id


def dismiss(unit: Unit, execution_id: str) -> str:
    """End a waiting turn for good; the session to ring. Raises as `retry`."""
    if failing := _failing(unit.tx, execution_id):
        failure = messages.Failure(DISMISSED, f"Dismissed; its recovery failed: {failing.recovery_error}")
        recovery.abandon(unit, failing, DISMISSED, failure)
        return failing.session_id
    session_id, _ = _waiting(unit.tx, execution_id)
    recovery.withdraw(unit, session_id, execution_id, reason=DISMISSED)
    return session_id


def _failing(tx: port.Tx, execution_id: str) -> rows.ClaimRow | None:
    claim = tx.claims.get(execution_id)
    return claim if claim and claim.recovery_error else None


def _waiting(tx: port.Tx, execution_id: str) -> tuple[str, str]:
    """Session and continuation of a recovery that waits."""
    row = tx.recoveries.get(execution_id)
    if row is None:
        msg = f"There is no recovery of execution {execution_id}"
        raise errors.RecoveryNotFound(msg)
    continuation = tx.inbox.get(row.continuation_message_id)
    if continuation is None or not continuation.pending:
        msg = f"The recovery of execution {execution_id} is settled"
        raise errors.LifecycleConflict(msg)
    return row.session_id, row.continuation_message_id
