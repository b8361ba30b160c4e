"""A line being typed: keys in, finished lines out.

Lives here: the text, the cursor, the lines typed before, and what the bytes of a terminal mean. Not here: reading them
(`terminal.py`) and showing the line (`screen.py`). A paste is one piece of text, its line ends included.
"""

from __future__ import annotations

import codecs
import re

PASTE, PASTED = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_KEPT = 200


class Editor:
    """The line; `feed` gives the lines that Enter finished. `left` is set by Ctrl-D on an empty line."""

    def __init__(self) -> None:
        """An empty line."""
        self.text, self.cursor, self.left = "", 0, False
        self._past: list[str] = []
        self._back, self._kept = 0, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    def feed(self, data: bytes) -> list[str]:
        """Take what was typed."""
        self._waiting += self._decoder.decode(data)
        done: list[str] = []
        while self._waiting:
            taken = self._take(done)
            if not taken:
                break
            self._waiting = self._waiting[taken:]
        return done

    def _take(self, done: list[str]) -> int:
        """Act on what comes first; how many characters that was, 0 where there is more to come."""
        if self._waiting.startswith(PASTE):
            end = self._waiting.find(PASTED)
            if end < 0:
                return 0
            self._insert(self._waiting[len(PASTE) : end].replace("\r\n", "\n").replace("\r", "\n"))
            return end + len(PASTED)
        if self._waiting[0] != "\x1b":
            self._key(self._waiting[0], done)
            return 1
        found = _SEQUENCE.match(self._waiting)
        if found is None:
            return 0
        self._sequence(found[0])
        return found.end()

    def _key(self, key: str, done: list[str]) -> None:
        match key:
            case "\r" | "\n":  # what was typed before the terminal gave every key comes with the other one
                if self.text.strip():
                    done.append(self.text.strip())
                    self._past = [*self._past[-_KEPT:], self.text.strip()]
                self.clear()
            case "\x7f" | "\x08":
                if self.cursor:
                    self._replace(self.cursor - 1, self.cursor)
            case "\x04":
                if not self.text:
                    self.left = True
                self._replace(self.cursor, self.cursor + 1)
            case "\x15":
                self._replace(0, self.cursor)
            case "\x0b":
                self._replace(self.cursor, len(self.text))
            case "\x17":
                self._replace(self.text[: self.cursor].rstrip().rfind(" ") + 1, self.cursor)
            case "\x01":
                self.cursor = 0
            case "\x05":
                self.cursor = len(self.text)
            case _:
                if key.isprintable():
                    self._insert(key)

    def _sequence(self, keys: str) -> None:
        match keys[-1], keys:
            case "D", _:
                self.cursor = max(0, self.cursor - 1)
            case "C", _:
                self.cursor = min(len(self.text), self.cursor + 1)
            case ("H", _) | (_, "\x1b[1~"):
                self.cursor = 0
            case ("F", _) | (_, "\x1b[4~"):
                self.cursor = len(self.text)
            case "A", _:
                self._recall(1)
            case "B", _:
                self._recall(-1)
            case _, "\x1b[3~":
                self._replace(self.cursor, self.cursor + 1)
            case (("\r" | "\n"), _):  # Alt-Enter
                self._insert("\n")
            case _:
                pass

    def _recall(self, by: int) -> None:
        """Another of the lines typed before; the one that was begun is kept below them."""
        back = min(max(self._back + by, 0), len(self._past))
        if back == self._back:
            return
        if self._back == 0:
            self._kept = self.text
        self._back = back
        self.text = self._past[-back] if back else self._kept
        self.cursor = len(self.text)

    def _insert(self, text: str) -> None:
        text = "".join(one for one in text if one.isprintable() or one in "\n\t")
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _replace(self, start: int, end: int) -> None:
        self.text, self.cursor = self.text[:start] + self.text[end:], start

    def clear(self) -> None:
        """Begin anew."""
        self.text, self.cursor, self._back, self._kept = "", 0, 0, ""
