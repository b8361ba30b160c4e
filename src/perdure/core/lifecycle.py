"""Every state machine of Perdure, as tables.

Lives here: the states and transitions of a tool call, a step, an execution, an input and a claim's phase, once. An
illegal move is a missing key. Folds ask `advance` (a missing key changes nothing: late and stray facts stay in the
log), writers ask `require` (a missing key is a bug and raises). The diagrams in the docs and a good part of the tests
are made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure import errors

Table = Mapping[str, Mapping[str, str]]

TOOL: Table = {
    "pending": {
        "input_ended": "pending",
        "approval_requested": "pending",
        "approval_resolved": "pending",
        "called": "running",
        "failed": "error",
        "closed": "error",
    },
    "running": {"progress": "running", "succeeded": "completed", "failed": "error", "closed": "error"},
    "completed": {},
    "error": {},
}
"""A tool call. `closed` is what an interrupt or a recovery does to it."""

STEP: Table = {
    "new": {"started": "open"},
    "open": {
        "started": "open",
        "retry_scheduled": "open",
        "ended": "ended",
        "failed": "failed",
        "interrupted": "interrupted",
        "recovered": "recovered",
        "superseded": "superseded",
    },
    "ended": {},
    "failed": {},
    "interrupted": {},
    "recovered": {},
    "superseded": {},
}
"""A step, that is an assistant message. A second `started` is its next attempt."""

EXECUTION: Table = {
    "new": {"started": "open"},
    "open": {"parked": "parked", "ended": "ended", "recovered": "recovered"},
    "parked": {"resumed": "open", "ended": "ended"},
    "recovered": {"ended": "ended"},
    "ended": {},
}
"""A turn under one claim, or a manual compaction."""

INPUT: Table = {
    "new": {"admitted": "pending", "promoted": "running"},
    "pending": {
        "execution_requested": "pending",
        "delivery_changed": "pending",
        "promoted": "running",
        "withdrawn": "settled",
    },
    "running": {"settled": "settled"},
    "settled": {"retried": "running", "reopened": "pending"},
}
"""An input. `retried` runs it again by a retry input, `reopened` where it was never promoted."""

PHASE: Table = {
    "safe": {"wait": "ready", "send": "unknown"},
    "ready": {"wait": "ready", "send": "unknown"},
    "unknown": {"wait": "ready", "send": "unknown", "settle": "continue"},
    "continue": {"wait": "ready", "send": "unknown"},
}
"""A claim: what a crash now would mean. `send` precedes whatever leaves for a provider, `wait` is preparation that has
to wait, `settle` is the end of a step that owes another.
"""

TABLES: Mapping[str, Table] = {"tool": TOOL, "step": STEP, "execution": EXECUTION, "input": INPUT, "phase": PHASE}


def advance(table: Table, state: str, move: str) -> str | None:
    """The next state, or None where there is no such transition."""
    return table[state].get(move)


def require(table: Table, state: str, move: str) -> str:
    """The next state. Raises `IllegalTransition`."""
    following = advance(table, state, move)
    if following is None:
        name = next((name for name, known in TABLES.items() if known is table), "machine")
        msg = f"A {name} that is {state!r} cannot take {move!r}"
        raise errors.IllegalTransition(msg)
    return following


def terminal(table: Table) -> frozenset[str]:
    """States nothing leads out of."""
    return frozenset(state for state, moves in table.items() if not moves)
