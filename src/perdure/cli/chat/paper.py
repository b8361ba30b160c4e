"""What is printed once and stays: things said, and messages of a transcript."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from perdure.cli import render, transcript
from perdure.cli.chat.view import Said
from perdure.core import messages

_MARKS = {
    "done": ("  ✓ ", "green"),
    "failed": ("  ✗ ", "red"),
    "note": ("  · ", "dim"),
    "error": ("  ! ", "bold red"),
}


def printed(said: Said) -> RenderableType:
    """How it looks."""
    text = render.clean(said.text)
    match said.kind:
        case "user":
            return Padding(Text.assemble(("▸ ", "bold cyan"), (text, "bold")), (1, 0, 0, 0), expand=False)
        case "text":
            return Padding(markdown(text), (1, 0, 0, 0), expand=False)
        case "reasoning":
            return Padding(Text(text, style="dim italic"), (1, 0, 0, 2), expand=False)
        case _:
            mark, style = _MARKS[said.kind]
            return Text.assemble((mark, style), (text, "dim" if said.kind in {"note", "done"} else ""))


def markdown(text: str) -> Markdown:
    """Markdown as a terminal shows it; links by their text, so that no escape sequence carries a foreign address."""
    return Markdown(text, hyperlinks=False)


def put(console: Console, message: messages.Message) -> None:
    """Print a message of a transcript."""
    for said in of(message):
        console.print(printed(said))


def of(message: messages.Message) -> list[Said]:
    """What a message says."""
    match message:
        case messages.User():
            return [Said("user", transcript.prompt_text(message.prompt))]
        case messages.Assistant():
            found = [one for part in message.parts for one in _part(part)]
            if message.error is None:
                return found
            why = message.error.message  # of a step whose process died it is a part as well, for the model to read
            return [*(one for one in found if one != Said("text", why)), Said("error", why)]
        case messages.Synthetic() | messages.System():
            return [Said("note", render.clip(message.text, 200))]
        case messages.AgentSwitched():
            return [Said("note", f"{message.agent} answers from here on")]
        case messages.ModelSwitched():
            return [Said("note", f"{message.model} answers from here on")]
        case messages.Compaction():
            return [Said("note", f"summary of the older part: {message.status}")]


def _part(part: messages.Part) -> list[Said]:
    match part:
        case messages.TextPart():
            return [Said("text", part.text)] if part.text.strip() else []
        case messages.ReasoningPart():
            return [Said("reasoning", part.text)] if part.text.strip() else []
        case messages.ToolPart():
            return [_tool(part)]


def _tool(part: messages.ToolPart) -> Said:
    match part.state:
        case messages.Completed(input=given, content=content, structured=structured):
            return Said("done", f"{render.call(part.name, given)} → {render.result(content, structured)}")
        case messages.Errored(input=given, error=error):
            return Said("failed", f"{render.call(part.name, given)} → {render.clip(error.message)}")
        case messages.Running(input=given):
            return Said("note", f"{render.call(part.name, given)} runs")
        case messages.Pending():
            waits = part.approval is not None and part.approval.decision is None
            given = part.approval.input if part.approval else {}
            return Said("note", f"{render.call(part.name, given)} {'waits for a decision' if waits else 'waits'}")
