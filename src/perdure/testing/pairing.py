"""The strict pairing check of a chat-completions history.

Lives here: one pure function over wire messages, as merciless as the strictest provider. Not here: the check over our
own request type (`core/request.py`); this one is written apart from it on purpose, so that one mistake is not made
twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where a call is not followed directly by exactly one result, in call order; empty means the history is sound."""
    found: list[str] = []
    owed: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            _settle(at, str(message.get("tool_call_id")), owed, found)
            continue
        if owed:
            found.append(f"message {at} stands before the results of {', '.join(owed)}")
        owed = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        if len(set(owed)) < len(owed):
            found.append(f"message {at} uses a call id twice: {', '.join(owed)}")
    if owed:
        found.append(f"the history ends before the results of {', '.join(owed)}")
    return found


def _settle(at: int, call_id: str, owed: list[str], found: list[str]) -> None:
    if call_id not in owed:
        found.append(f"message {at} is a result of {call_id}, which no call directly before it made")
        return
    if owed[0] != call_id:
        found.append(f"message {at} is the result of {call_id}, but {owed[0]} was called first")
    owed.remove(call_id)
