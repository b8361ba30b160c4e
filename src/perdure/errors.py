"""The one tree of errors.

Lives here: every exception Perdure raises on purpose. A class's first docstring line is its default message, `type` is
the stable slug that problem documents carry, `fault` says whose it is and `remedy` what to do about it. Not here: HTTP
statuses (`server/problems.py` maps classes to them) and model error kinds' retry policy (`runner/retry.py`). Nothing in
Perdure decides by message text; whoever catches, catches a class.
"""

from __future__ import annotations

from typing import ClassVar

from perdure.faults import Fault, ModelErrorKind


class PerdureError(Exception):
    """Perdure failed."""

    type: ClassVar[str] = "error"
    fault: ClassVar[Fault] = Fault.BUG
    remedy: ClassVar[str] = "Report this with the server's log."

    def __init__(self, detail: str | None = None) -> None:
        """Say `detail`, or the class's own first docstring line where there is nothing to add."""
        super().__init__(detail or (type(self).__doc__ or type(self).__name__).strip().splitlines()[0])


# -- the caller's --------------------------------------------------------------------------------------------------------


class InvalidInput(PerdureError):
    """The request is not valid."""

    type = "invalid-input"
    fault = Fault.CALLER
    remedy = "Correct the named field and send the request again."


class MalformedJson(InvalidInput):
    """The body is not JSON that every store keeps alike."""

    type = "malformed-json"
    remedy = "Send one JSON value in UTF-8, without NaN, lone surrogates or nesting beyond 64 levels."


class InvalidId(InvalidInput):
    """The id is not valid."""

    type = "invalid-id"
    remedy = "Use 1 to 200 characters of A-Z a-z 0-9 . _ : @ ~ + - without a reserved prefix."


class TooLarge(InvalidInput):
    """The request is larger than the server accepts."""

    type = "too-large"
    remedy = "Send less, or raise the server's limit."


class CursorBeyondEnd(InvalidInput):
    """The cursor lies beyond the end of the log."""

    type = "cursor-beyond-end"
    remedy = "Start again from the last sequence named here."

    def __init__(self, after: int, last_seq: int) -> None:
        """Name both ends; `last_seq` is -1 for an empty log."""
        super().__init__(f"Cursor {after} lies beyond the end of the log, whose last sequence is {last_seq}")
        self.after, self.last_seq = after, last_seq


class UnknownAgent(InvalidInput):
    """No agent of that name exists here."""

    type = "unknown-agent"
    remedy = "Name one of the agents this server was started with."


class UnknownModel(InvalidInput):
    """No model of that name exists here."""

    type = "unknown-model"
    remedy = "Name a model as PROVIDER:NAME, for instance openai:gpt-5."


class NotFound(PerdureError):
    """Nothing of that id exists."""

    type = "not-found"
    fault = Fault.CALLER
    remedy = "Check the id."


class SessionNotFound(NotFound):
    """No session of that id exists."""

    type = "session-not-found"
    remedy = "Create the session first, or list the sessions there are."


class PromptNotFound(NotFound):
    """No prompt of that id was ever admitted to this session."""

    type = "prompt-not-found"
    remedy = "Send the prompt: under this id it was never seen."


class RecoveryNotFound(NotFound):
    """No recovery of that execution is waiting."""

    type = "recovery-not-found"
    remedy = "List the recoveries there are."


class ApprovalNotFound(NotFound):
    """No approval of that call is waiting."""

    type = "approval-not-found"
    remedy = "List the approvals there are."


class Unauthorized(PerdureError):
    """A valid bearer token is required."""

    type = "unauthorized"
    fault = Fault.CALLER
    remedy = "Send the header 'Authorization: Bearer TOKEN'."


class Forbidden(PerdureError):
    """This host or origin is not allowed."""

    type = "forbidden"
    fault = Fault.CALLER
    remedy = "Call the server by the name it was started with."


class ConfigError(PerdureError):
    """The configuration is not usable."""

    type = "config"
    fault = Fault.CALLER
    remedy = "Correct the setting and start again."


# -- conflicts -----------------------------------------------------------------------------------------------------------


class Conflict(PerdureError):
    """The request conflicts with what is already recorded."""

    type = "conflict"
    fault = Fault.CONFLICT
    remedy = "Read the current state and decide again."


class PromptConflict(Conflict):
    """A different prompt is already recorded under that id."""

    type = "prompt-conflict"
    remedy = "Use a fresh id for a different prompt."

    def __init__(self, session_id: str, message_id: str) -> None:
        """Name the session asked for and the id that is taken."""
        super().__init__(f"Message id {message_id} is already taken by a different prompt (session {session_id})")
        self.session_id, self.message_id = session_id, message_id


class SessionConflict(Conflict):
    """A session of that id exists with different settings."""

    type = "session-conflict"
    remedy = "Use a fresh id, or leave the settings out."


class LifecycleConflict(Conflict):
    """That state cannot take this change."""

    type = "lifecycle-conflict"


class SessionAlreadyProjected(Conflict):
    """A session of that id is already projected."""

    type = "session-already-projected"


class SessionBusy(Conflict):
    """The session is busy."""

    type = "session-busy"
    remedy = "Wait until the session is idle, or interrupt it."


class AlreadyDecided(Conflict):
    """That approval is already decided."""

    type = "already-decided"


class SessionGone(Conflict):
    """The session is deleted, or being deleted."""

    type = "session-gone"
    remedy = "Create a new session."


# -- claims --------------------------------------------------------------------------------------------------------------


class ClaimRefused(PerdureError):
    """Another owner executes this session."""

    type = "claim-refused"
    fault = Fault.CLAIM
    remedy = "Nothing: the owner goes on, or its lease ends and the session is recovered."

    def __init__(self, session_id: str, owner_id: str) -> None:
        """Name the session and the owner whose claim stands."""
        super().__init__(f"Session {session_id} is executed by {owner_id}")
        self.session_id, self.owner_id = session_id, owner_id


class ClaimLost(PerdureError):
    """The claim this work was fenced by is no longer held."""

    type = "claim-lost"
    fault = Fault.CLAIM
    remedy = "Nothing: whoever recovers the session goes on."


class SourceUnavailable(PerdureError):
    """A context source cannot be read now."""

    type = "source-unavailable"
    fault = Fault.ENVIRONMENT
    remedy = "Make the source readable; until then its last value is used."


class ContextBlocked(SourceUnavailable):
    """A source of the context cannot be read, and nothing is known to use instead."""

    type = "context-blocked"
    remedy = "Make the named source readable; the session goes on by itself."


# -- the log -------------------------------------------------------------------------------------------------------------


class InvalidDurableEvent(PerdureError):
    """The event cannot enter the log."""

    type = "invalid-durable-event"
    fault = Fault.LOG
    remedy = "Nothing was written. Compare the event with the log it should extend."


class Undecodable(PerdureError):
    """A stored record cannot be decoded."""

    type = "undecodable"
    fault = Fault.LOG
    remedy = "Run 'perdure doctor' on the database."


class MessageUndecodable(Undecodable):
    """A stored message cannot be decoded."""

    type = "message-undecodable"

    def __init__(self, session_id: str, message_id: str, why: str) -> None:
        """Name the session, the message and the decoder's complaint."""
        super().__init__(f"Message {message_id} of session {session_id} cannot be decoded: {why}")
        self.session_id, self.message_id = session_id, message_id


class SessionUndecodable(Undecodable):
    """The stored row of a session cannot be decoded."""

    type = "session-undecodable"
    remedy = "Run 'perdure rebuild SESSION', which makes the row again from the session's log; it may be deleted, too."

    def __init__(self, session_id: str, why: str) -> None:
        """Name the session and the decoder's complaint."""
        super().__init__(f"Session {session_id} cannot be decoded: {why}")
        self.session_id = session_id


class EventUndecodable(Undecodable):
    """A stored event cannot be decoded."""

    type = "event-undecodable"
    remedy = "Run 'perdure doctor' on the database; what comes after the event can be read from behind its place."

    def __init__(self, session_id: str, seq: int, position: int, why: str) -> None:
        """Name the place: in the log of its session, and among the events of all, 0 where that is not known."""
        where = f"sequence {seq}, position {position}" if position else f"sequence {seq}"
        super().__init__(f"The event of session {session_id} at {where} cannot be decoded: {why}")
        self.session_id, self.seq, self.position = session_id, seq, position


class SubscriberOverflow(PerdureError):
    """This subscriber read too slowly and was dropped."""

    type = "subscriber-overflow"
    fault = Fault.CALLER
    remedy = "Reconnect with the last sequence you saw."


# -- the store -----------------------------------------------------------------------------------------------------------


class StoreError(PerdureError):
    """The database failed."""

    type = "store"
    fault = Fault.ENVIRONMENT
    remedy = "Look at the disk and the database; the request may be sent again."


class StoreBusy(StoreError):
    """The database stayed busy beyond the deadline."""

    type = "store-busy"
    remedy = "Send the request again; another process holds the database."


class StoreFull(StoreError):
    """The disk is full."""

    type = "store-full"
    remedy = "Free some disk space; service goes on by itself."


class StoreFailed(StoreError):
    """The disk failed to read or write."""

    type = "store-failed"


class StoreCorrupt(StoreError):
    """The database file is damaged."""

    type = "store-corrupt"
    remedy = "Restore the last backup; without one, save what 'perdure export --skip-damaged' can still read."


class StoreUnusable(StoreError):
    """The database cannot be opened."""

    type = "store-unusable"
    remedy = "Check the path, its permissions and PERDURE_DATABASE_URL."


class SchemaTooNew(StoreUnusable):
    """The database was written by a newer Perdure."""

    type = "schema-too-new"
    remedy = "Upgrade Perdure; nothing was changed."


# -- the model -----------------------------------------------------------------------------------------------------------


class ModelError(PerdureError):
    """The model provider refused or failed."""

    type = "model"
    fault = Fault.MODEL
    remedy = "See the provider's message; a failed prompt can be run again with retry."

    def __init__(
        self, kind: ModelErrorKind, detail: str, *, status: int | None = None, retry_after_ms: int | None = None
    ) -> None:
        """Carry the kind, the provider's own words, its HTTP status and how long it asked to be left alone (ms)."""
        super().__init__(detail)
        self.kind, self.status, self.retry_after_ms = kind, status, retry_after_ms


# -- ours ----------------------------------------------------------------------------------------------------------------


class Defect(PerdureError):
    """Perdure or an adapter broke one of its own rules."""

    type = "defect"


class IllegalTransition(Defect):
    """A state machine has no such transition."""

    type = "illegal-transition"


class ProviderOrder(Defect):
    """A model adapter sent its events in an impossible order."""

    type = "provider-order"
