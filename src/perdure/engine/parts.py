"""What a prompt is made of, as a caller gives it.

Lives here: `Part`, and the words and numbers a verb takes. Not here: what the log keeps of it (`core/messages.py`), admission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from perdure import errors
from perdure.core import messages
from perdure.session import admission


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt: text, or the bytes of an image or file."""

    type: str
    text: str | None = None
    data: bytes | None = None
    mime: str | None = None
    name: str | None = None

    def store(self, unit: admission.Unit, session_id: str) -> messages.PromptPart:
        """Keep the bytes under their hash for the session and give the part that refers to them."""
        if self.type == "text":
            return messages.PromptPart("text", text=self.text or "")
        kind = "image" if self.type == "image" else "file"
        digest = unit.tx.content.put(self.data or b"")
        unit.tx.content.use(session_id, digest)
        return messages.PromptPart(kind, mime=self.mime, name=self.name, hash=digest)


def of(prompt: str | Sequence[Part]) -> list[Part]:
    """A prompt as parts. Raises `InvalidInput` for one that is empty or made of something else."""
    parts = [Part("text", text=prompt)] if isinstance(prompt, str) else list(prompt)
    for part in cast("list[Any]", parts):
        if not isinstance(part, Part):
            raise errors.InvalidInput(f"A prompt is text or a list of parts; a {type(part).__name__} is neither")
        if part.type not in {"text", "image", "file"} or (part.type != "text" and not isinstance(part.data, bytes)):
            raise errors.InvalidInput(f"A part is text, or an image or file with data; not {part.type!r}")
    if not any(part.text or part.data for part in parts):
        raise errors.InvalidInput("The prompt is empty")
    return parts


def check_delivery(delivery: str) -> None:
    """Raise `InvalidInput` for what is no delivery."""
    if delivery not in {"steer", "queue"}:
        raise errors.InvalidInput(f"delivery must be steer or queue, not {delivery!r}")


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` for a page of nothing."""
    if limit < 1:
        raise errors.InvalidInput(f"limit must be 1 or more, not {limit}")
