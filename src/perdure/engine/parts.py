"""What a caller's prompt is made of: text, and the bytes of images and files.

Lives here: a part as a caller gives it, and putting it away. Not here: admission (`session/admission.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def store(self, unit: admission.Unit) -> messages.PromptPart:
        """Keep the bytes under their hash and give the part that refers to them."""
        if self.type == "text":
            return messages.PromptPart("text", text=self.text or "")
        if self.type not in {"image", "file"} or self.data is None:
            raise errors.InvalidInput(f"A part is text, or an image or file with data; not {self.type!r}")
        kind = "image" if self.type == "image" else "file"
        return messages.PromptPart(kind, mime=self.mime, name=self.name, hash=unit.tx.content.put(self.data))
