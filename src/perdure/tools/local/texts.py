"""Text and its bytes, so that an edit changes what it says and nothing else.

Lives here: which encoding a file is in and the way back to it. Not here: files. UTF-8 first, UTF-16 by its mark, and what
is neither, yet no binary, as Latin-1, in which any bytes survive the round trip.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from perdure.agent import ToolError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LOOK = 8192


@dataclass(frozen=True, slots=True)
class Text:
    """A decoded file: its text, line ends as they are, and how it was written."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def crlf(self) -> bool:
        """Whether its lines end with CR LF."""
        return "\r\n" in self.text

    def encode(self, changed: str) -> bytes:
        """A changed text in the same encoding. Raises `ToolError` where that lacks a character."""
        try:
            return self.mark + changed.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = changed[error.start]
            raise ToolError(f"The file is in {self.encoding}, which cannot hold {bad!a}; nothing was changed") from None


def decode(path: str, data: bytes) -> Text:
    """The text of a file. Raises `ToolError` for a binary one."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return Text(data[len(mark) :].decode(encoding), encoding, mark)
            except UnicodeDecodeError:
                break
    if b"\0" in data[:_LOOK]:
        raise ToolError(f"{path} is a binary file of {len(data)} bytes")
    try:
        return Text(data.decode())
    except UnicodeDecodeError:
        return Text(data.decode("latin-1"), "latin-1")
