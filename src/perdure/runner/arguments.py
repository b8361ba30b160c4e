"""What a model wrote as the arguments of a call.

Lives here: raw text into an object, and that object for code that is not ours. Not here: whether the arguments fit the tool
(`tools/function.py`).
"""

from __future__ import annotations

import json
from typing import Any

from perdure import errors
from perdure.core import codec, messages


def object_of(raw: str) -> messages.JsonObject | None:
    """A call's raw arguments as an object; None where they are no JSON object, or name a key twice, so that nobody knows
    which value was meant. No arguments at all are an empty one.
    """
    if not raw.strip():
        return {}
    try:
        given = codec.load(raw, dict[str, Any])
        _pairs.decode(raw)
    except (errors.Undecodable, ValueError, RecursionError):
        return None
    return given


def _named_once(pairs: list[tuple[str, Any]]) -> messages.JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


_pairs = json.JSONDecoder(object_pairs_hook=_named_once)


def copied(given: messages.JsonObject) -> messages.JsonObject:
    """The same for code that is not ours: whatever that does with it, what is recorded stays."""
    return codec.load_object(codec.dump(given)) or {}
