"""Identifiers: how they are minted and which of them a caller may choose.

Lives here: the prefixes, `mint`, the validity rule of IN-10 and the ids that recovery derives. Minting takes entropy as
an argument, so that a simulated run mints the same ids again. Ids carry no order: order is `seq`, always.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perdure import errors

Entropy = Callable[[int], bytes]
"""`entropy(n)` gives n random bytes."""

RESERVED = ("msg_recovered_", "msg_continue_", "msg_retry_", "evt_")
_DIGITS = b"0123456789abcdefghijklmnopqrstuv" * 8
_PLACE = re.compile(r"evt_(.*)/(0|[1-9][0-9]{0,17})\Z", re.DOTALL)
_VALID = re.compile(r"[A-Za-z0-9._:@~+-]{1,200}\Z")


def mint(prefix: str, entropy: Entropy) -> str:
    """Make a fresh id such as `ses_5k2…`: the prefix and 100 random bits in base 32, five of a byte."""
    return f"{prefix}_{entropy(20).translate(_DIGITS).decode()}"


def check(what: str, value: str) -> str:
    """Return `value` if a caller may choose it as an id, else raise `InvalidId` (IN-10)."""
    check_shape(what, value)
    if reserved := next((prefix for prefix in RESERVED if value.startswith(prefix)), None):
        msg = f"{what} {value[:40]!r} must not start with {reserved!r}: that prefix is reserved"
        raise errors.InvalidId(msg)
    return value


def check_shape(what: str, value: str) -> str:
    """Return `value` if it can be an id at all, the engine's own included, else raise `InvalidId`."""
    if not _VALID.match(value) or value in {".", ".."}:
        shown = value[:40] + "…" if len(value) > 40 else value
        msg = f"{what} {shown!r} must be 1 to 200 characters of A-Z a-z 0-9 . _ : @ ~ + - and not '.' or '..'"
        raise errors.InvalidId(msg)
    return value


def recovered_message(execution_id: str) -> str:
    """Id of the synthetic message that tells of a recovery without an assistant (MSG-7)."""
    return f"msg_recovered_{execution_id}"


def recovered_part(execution_id: str) -> str:
    """Id of the text part that tells of a recovery inside an assistant (MSG-7)."""
    return f"recovery:{execution_id}"


def continue_message(execution_id: str) -> str:
    """Id of the one continuation a recovery admits (REC-2)."""
    return f"msg_continue_{execution_id}"


def retry_message(message_id: str, n: int) -> str:
    """Id of the n-th retry input of a prompt (IN-12)."""
    return f"msg_retry_{message_id}_{n}"


def event_at(aggregate_id: str, seq: int) -> str:
    """Id of the event at that place, unless another was chosen (LOG-4)."""
    return f"evt_{aggregate_id}/{seq}"


def place_of(event_id: str) -> tuple[str, int] | None:
    """The place whose event goes by that id unless it has another; None for an id that names no place."""
    found = _PLACE.match(event_id)
    return (found[1], int(found[2])) if found else None


def recovered_event(execution_id: str) -> str:
    """Event id of `step.recovered` (REC-2)."""
    return f"evt_recovered_{execution_id}"


def continue_event(execution_id: str) -> str:
    """Event id of the continuation's admission (REC-2)."""
    return f"evt_continue_{execution_id}"


def execution_requested_event(message_id: str, earlier: int) -> str:
    """Event id of `prompt.execution_requested` after `earlier` such requests of that input (IN-5)."""
    suffix = f"#{earlier}" if earlier else ""
    return f"evt_prompt_execution_{message_id}{suffix}"
