"""What a tool gave, as the log keeps it: always recordable, bounded, and honest about both.

Lives here: `Result` and how any Python value becomes one (SEC-2). Not here: running (`tools.py`). Whatever the value is,
the tool ran, so something is recorded: what JSON cannot hold is replaced and the part says `replaced`; of a long text
the model sees both ends, since a command says what went wrong last, and the whole is kept in the content table under the
hash that the note names. Bytes of images and files go there too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from perdure import agent
from perdure.core import codec, messages, text
from perdure.core.value import Value

MAX_TEXT = 50_000
MAX_KEPT = 32 * 2**20
MAX_PROGRESS = 10_000

Content = tuple[messages.JsonObject, ...]
Keep = Callable[[bytes], Awaitable[str]]
"""Stores bytes in the content table; their hash."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave: content and perhaps structured data, or an error."""

    content: Content = ()
    structured: messages.JsonObject | None = None
    error: messages.Failure | None = None


def failed(kind: str, words: str) -> Result:
    """An error for the model."""
    words = text.clean_text(words)
    return Result(error=messages.Failure(kind, words if len(words) <= MAX_TEXT else text.ends(words, MAX_TEXT)))


def words_of(error: BaseException) -> str:
    """An exception in one line; its text may be of someone else's making and fail itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001
        return type(error).__name__


async def of_value(value: Any, keep: Keep | None) -> Result:
    """A Python value as a result: text for the model, structured data where it is an object."""
    given = value if isinstance(value, agent.ToolResult) else _plain(value)
    structured, replaced = clean_object(given.structured)
    parts: list[Any] = [{"type": "text", "text": given.content}] if isinstance(given.content, str) else [*given.content]
    if not parts and structured is not None:
        parts = [{"type": "text", "text": codec.dump(structured)}]
    words: list[messages.JsonObject] = []
    media: list[messages.JsonObject] = []
    for part in parts:
        if isinstance(part, dict) and isinstance(data := cast("dict[str, Any]", part).get("data"), bytes):
            media.append(await _kept(data, cast("dict[str, Any]", part), keep))
        else:
            words.append(_part(part))
    if structured is not None and len(codec.dump(structured)) > MAX_TEXT:
        structured = None  # its text is in the content, whole
    shown = await _bounded(words, keep)
    if shown and replaced:
        shown[0] = {**shown[0], "replaced": True}
    if given.failed:
        message = "\n".join(part["text"] for part in shown if part["text"]) or "The tool failed without a word"
        return Result(tuple(media), structured, messages.Failure("tool_error", message))
    return Result((*shown, *media), structured)


def _plain(value: Any) -> agent.ToolResult:
    """Any value but a `ToolResult`: an object is structured data, a text is a text, the rest is shown as JSON."""
    try:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        elif isinstance(value, Value):
            value = codec.load_object(codec.dump(value))
        elif callable(dump := getattr(value, "model_dump", None)):
            value = dump(mode="json")
        cleaned, replaced = text.clean(value)
        if isinstance(cleaned, dict):
            return agent.ToolResult(structured=cast("messages.JsonObject", value))
        words = cleaned if isinstance(cleaned, str) else ("" if cleaned is None else codec.dump(cleaned))
    except Exception as error:  # noqa: BLE001, the value's own code may do anything
        words, replaced = f"[{type(value).__name__} that cannot be written down: {words_of(error)}]", True
    return agent.ToolResult([{"type": "text", "text": words, **({"replaced": True} if replaced else {})}])


def clean_object(value: Any) -> tuple[messages.JsonObject | None, bool]:
    """Structured data made recordable, and whether anything had to be replaced."""
    if value is None:
        return None, False
    try:
        cleaned, replaced = text.clean(value)
    except Exception:  # noqa: BLE001, as above
        return None, True
    found = cast("messages.JsonObject", cleaned) if isinstance(cleaned, dict) else {"value": cleaned}
    return found, replaced


def _part(part: Any) -> messages.JsonObject:
    """One text part made recordable; what is no part is shown as it is."""
    cleaned, replaced = clean_object(part if isinstance(part, dict) else {"type": "text", "text": part})
    found = cleaned or {"type": "text"}
    words = found.get("text", "" if found.get("type") == "text" else codec.dump(found))
    found["text"] = words if isinstance(words, str) else codec.dump(words)
    return {**found, "replaced": True} if replaced else found


async def _bounded(parts: list[messages.JsonObject], keep: Keep | None) -> list[messages.JsonObject]:
    """The parts as they are, or where they are too long both ends of their text and a file part for the whole."""
    if sum(len(part["text"]) for part in parts) <= MAX_TEXT and len(codec.dump(parts)) <= 8 * MAX_TEXT:
        return parts
    whole = "\n".join(part["text"] for part in parts)
    shown: messages.JsonObject = {"type": "text", "text": text.ends(whole, MAX_TEXT)}
    if any(part.get("replaced") for part in parts):
        shown["replaced"] = True
    return [shown, await _kept(whole.encode(), {"type": "file", "mime": "text/plain; charset=utf-8"}, keep)]


async def _kept(data: bytes, part: messages.JsonObject, keep: Keep | None) -> messages.JsonObject:
    """A part for bytes in the content table, with the words the model reads in their place."""
    kind = "image" if part.get("type") == "image" else "file"
    mime = text.clean_text(str(part.get("mime") or "application/octet-stream"))
    found: messages.JsonObject = {"type": kind, "mime": mime, "size": len(data)}
    if keep and len(data) <= MAX_KEPT:
        found["hash"] = await keep(data)
        return {**found, "text": f"[{kind}, {mime}, {len(data)} bytes, kept whole under {found['hash']}]"}
    return {**found, "text": f"[{kind}, {mime}, {len(data)} bytes, not kept]"}


# -- progress ----------------------------------------------------------------------------------------------------------------


def of_progress(
    structured: messages.JsonObject | None, content: str | Sequence[messages.JsonObject]
) -> tuple[messages.JsonObject | None, Content]:
    """What a running call shows, made recordable and small: it is written several times a second."""
    cleaned, _ = clean_object(structured)
    if cleaned is not None and len(codec.dump(cleaned)) > MAX_PROGRESS:
        cleaned = None
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    shown = [_part(part) for part in parts if not (isinstance(part.get("data"), bytes))]
    if sum(len(part["text"]) for part in shown) > MAX_PROGRESS:
        shown = [{"type": "text", "text": "\n".join(part["text"] for part in shown)[-MAX_PROGRESS:]}]
    return cleaned, tuple(part for part in shown if part["text"])
