"""How the demo looks: the story as it happens, then a table.

Lives here: rendering for a terminal (live text as the reader sees it, colours unless NO_COLOR) and for a file or pipe
(plain lines), and silence for `--json`. Not here: what happens (`story.py`) and whether it is good (`verdict.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from perdure.cli.demo import scenes, verdict

INDENT = 3
SCREEN_LINES = 4
LEGEND = """\
answers  prompts answered exactly once, of those accepted
effects  refunds in the ledger, of those asked for
saw      characters a reader saw before the kill; the next process has kept so
         many of them and lost the others, at most those of the last 250 ms (<=)
back     from the start of the next process to its first new fact
notice   the transcript says that the step's outcome is unknown"""


class Silent:
    """Tells nobody: the figures say it all."""

    def scene(self, scene: scenes.Scene) -> None:
        """A new scene begins."""

    def say(self, words: str) -> None:
        """Something happened."""

    def text(self, text: str) -> None:
        """The reader's screen shows this now."""

    def figures(self, figures: verdict.Figures) -> None:
        """A scene has ended."""


class Narrator:
    """Tells a person."""

    def __init__(self, console: Console) -> None:
        """Print on `console`."""
        self._console = console
        self._live: Live | None = None

    def scene(self, scene: scenes.Scene) -> None:
        """A new scene begins."""
        self._console.print()
        self._console.print(Text.assemble((f"{scene.key}  ", "bold cyan"), (scene.moment, "bold")))
        self._console.print(Padding(Text(scene.told, "italic"), (0, 0, 0, INDENT)))
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=20)
            self._live.start()

    def say(self, words: str) -> None:
        """Something happened."""
        style = "red" if words.startswith("kill") else "green" if words.startswith("a new process") else ""
        self._line(words, style)

    def text(self, text: str) -> None:
        """The reader's screen shows this now."""
        if self._live:
            shown = Text(text[-SCREEN_LINES * (self._console.width - 8) :])
            self._live.update(Panel(shown, title="what a reader sees", title_align="left", border_style="dim"))

    def figures(self, figures: verdict.Figures) -> None:
        """A scene has ended."""
        self.close()
        words = (
            f"{figures.answered} of {figures.prompts} answered, {figures.resumed_s:.1f} s after its start it went on"
        )
        notice = "; the transcript says what is unknown" if figures.notice else ""
        self._line(words + notice)

    def _line(self, words: str, style: str = "") -> None:
        self._console.print(Padding(Text(words, style), (0, 0, 0, INDENT)))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live:
            self._live.stop()
            self._live = None

    def table(self, figures: Sequence[verdict.Figures], violations: int, seconds: float, found: Sequence[str]) -> None:
        """The figures, and the verdict."""
        self._console.print()
        if figures:
            self._console.print(_table(figures))
            self._console.print()
            self._console.print(Text(LEGEND, "dim"))
            self._console.print()
        self._console.print(
            Text(
                f"{violations} histories refused by the provider for a call without its result; {seconds:.0f} s in all"
            )
        )
        for problem in found:
            self._console.print(Text(f"✗ {problem}", "bold red"))
        if not found:
            words = "✓ nothing was lost, nothing was answered twice, nothing was done twice"
            self._console.print(Text(words, "bold green"))


def _table(figures: Sequence[verdict.Figures]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("killed")
    for heading in ("answers", "effects", "saw", "kept", "lost", "back", "notice"):
        table.add_column(heading, justify="right")
    for one in figures:
        table.add_row(
            f"{one.kill}  {one.moment}",
            f"{one.answered} of {one.prompts}",
            f"{one.effects} of {one.effects_due}" if one.effects_due or one.effects else "-",
            f"{one.saw}" if one.saw else "-",
            f"{one.kept}" if one.saw else "-",
            f"{one.lost} (<={one.recent})" if one.saw else "-",
            f"{one.resumed_s:.1f} s",
            "yes" if one.notice else "NO",
        )
    return table
