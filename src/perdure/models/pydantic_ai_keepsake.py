"""What a provider wants back with its own words: signatures, item ids, the sealed results of its own tools.

Lives here: how such a thing is written into the `provider_metadata` of a reasoning part and read back, and to whom it
may go. Not here: the stream it comes from (`pydantic_ai_stream.py`) and the request it returns in
(`pydantic_ai_request.py`). Reasoning is the only part of ours that carries metadata, so what belongs to a text or a
call rides on an empty reasoning part directly behind it. It is marked with provider and model and opened for no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import pydantic
from pydantic_ai import messages as theirs
from pydantic_core import to_jsonable_python

from perdure.core import request as requests

Kind = Literal["thinking", "text", "call", "native"]
Native = tuple[theirs.NativeToolCallPart, theirs.NativeToolReturnPart]
NextId = Callable[[str], str]

_part: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(theirs.ModelResponsePart)
_FIELDS = ("id", "signature", "provider_name", "provider_details")


def of_part(part: theirs.ThinkingPart | theirs.TextPart | theirs.ToolCallPart) -> dict[str, Any]:
    """The fields a provider set for itself, empty where it set none worth sending back."""
    found = {name: value for name in _FIELDS if (value := getattr(part, name, None))}
    return {} if found.keys() <= {"provider_name"} else to_jsonable_python(found)


def of_native(call: theirs.NativeToolCallPart, result: theirs.NativeToolReturnPart) -> dict[str, Any]:
    """A call the provider ran itself and its result, whole: only so do they go back as what they were."""
    return {"call": _part.dump_python(call, mode="json"), "result": _part.dump_python(result, mode="json")}


def pack(speaker: requests.Speaker, kind: Kind, kept: dict[str, Any], call_id: str | None = None) -> dict[str, Any]:
    """The metadata of a reasoning part."""
    packed = {"provider": speaker.provider, "model": speaker.model, kind: kept}
    return packed | ({"call_id": call_id} if call_id else {})


def unpack(speaker: requests.Speaker, packed: dict[str, Any], kind: Kind) -> dict[str, Any] | None:
    """What was packed under that kind, None for another speaker."""
    mine = (packed.get("provider"), packed.get("model")) == (speaker.provider, speaker.model)
    return packed.get(kind) if mine else None


def native(kept: dict[str, Any]) -> Native | None:
    """The pair as it was; None where a newer library no longer reads it."""
    try:
        pair = _part.validate_python(kept.get("call")), _part.validate_python(kept.get("result"))
    except pydantic.ValidationError:
        return None
    call, result = pair
    is_pair = isinstance(call, theirs.NativeToolCallPart) and isinstance(result, theirs.NativeToolReturnPart)
    return cast("Native", pair) if is_pair else None


def plain(value: object) -> Any:
    """A result as JSON for a reader: without what is sealed, or absent."""
    value = to_jsonable_python(value)
    match value:
        case dict():
            fields = cast("dict[str, Any]", value).items()
            return {name: plain(one) for name, one in fields if one is not None and not name.startswith("encrypted_")}
        case list():
            return [plain(one) for one in cast("list[Any]", value)]
        case _:
            return value
