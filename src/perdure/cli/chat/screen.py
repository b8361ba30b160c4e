"""The living end of the conversation: what is under way and the line being typed, below everything that was said.

Lives here: drawing. Not here: what there is to draw (`view.py`, `editor.py`), when (`conversation.py`). What was said
scrolls away as in any terminal; only the last few lines are drawn again and again, never more than fit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from perdure.cli import render
from perdure.cli.chat import paper
from perdure.cli.chat.editor import Editor
from perdure.cli.chat.view import Said, Stream, View

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SHOWN_PENDING = 3


class Screen:
    """The terminal's last lines. `away` says that the server is gone, `hint` is a word for the person."""

    def __init__(self, console: Console, view: View, editor: Editor) -> None:
        """Draw nothing yet."""
        self.away, self.hint = False, ""
        self._console, self._view, self._editor = console, view, editor
        self._live = Live(
            console=console, auto_refresh=False, transient=True, vertical_overflow="visible", get_renderable=self._draw
        )

    def __enter__(self) -> Screen:  # noqa: PYI034, the class is final by use
        """Begin to draw."""
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave only what was said."""
        self._live.stop()

    def say(self, several: Iterable[Said]) -> None:
        """Print for good."""
        if found := list(several):
            self._live.refresh()  # what is drawn below a print is what was drawn last, which may hold the same words
            self._console.print(*(paper.printed(said) for said in found), sep="\n")

    def refresh(self) -> None:
        """Draw again."""
        self._live.refresh()

    # -- drawing -----------------------------------------------------------------------------------------------------------

    def _draw(self) -> RenderableType:
        below = [*self._running(), *self._pending(), self._status(), self._line()]
        room = max(3, self._console.height - 2 - sum(self._height(one) for one in below))
        streams = [_Tail(_stream(one), room) for one in self._view.streams.values() if one.rest.strip()]
        return Group(*streams[-1:], *below)

    def _height(self, one: Text) -> int:
        return len(one.wrap(self._console, self._console.width))

    def _running(self) -> list[Text]:
        mark = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
        return [
            Text.assemble((f"  {mark} ", "cyan"), render.clip(line, 70), (f"  {progress}" if progress else "", "dim"))
            for line, progress in self._view.running.values()
        ]

    def _pending(self) -> list[Text]:
        waiting = list(self._view.pending.values())
        lines = [
            Text(f"  … {'next' if delivery == 'steer' else 'later'}: {render.clip(text, 70)}", "dim")
            for text, delivery in waiting[:SHOWN_PENDING]
        ]
        more = len(waiting) - SHOWN_PENDING
        return [*lines, Text(f"  … and {more} more", "dim")] if more > 0 else lines

    def _status(self) -> Text:
        if self.away:
            return Text("  the server is away; waiting for it to come back", "yellow")
        if self.hint:
            return Text(f"  {self.hint}", "yellow")
        if self._view.busy and not self._view.asks:
            mark = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
            return Text(f"  {mark} {self._view.activity or 'working'}", "dim")
        return Text()

    def _line(self) -> Text:
        text, at = render.clean(self._editor.text), min(self._editor.cursor, len(self._editor.text))
        asked = next(iter(self._view.asks.values()), None)
        head = ("▸ ", "bold cyan") if asked is None else (f"allow {render.clip(asked, 70)}? [y/n] ", "bold yellow")
        return Text.assemble(head, text[:at], (text[at : at + 1].replace("\n", " ") or " ", "reverse"), text[at + 1 :])


def _stream(stream: Stream) -> RenderableType:
    rest = render.clean(stream.rest)
    return paper.printed(Said("reasoning", rest)) if stream.kind == "reasoning" else paper.markdown(rest)


class _Tail:
    """The last lines of something."""

    def __init__(self, inner: RenderableType, room: int) -> None:
        self._inner, self._room = inner, room

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._inner, options, pad=False)[-self._room :]:
            yield from line
            yield Segment.line()
