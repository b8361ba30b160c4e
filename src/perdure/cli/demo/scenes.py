"""The five moments at which the demo kills its server.

Lives here: for each moment what is asked, what the scripted model answers, how the moment is recognised and what the
dead process must have left for the kill to count as one at that moment. Not here: the killing (`story.py`). No moment
is guessed with a timer: the stage waits for something that has happened (a receipt, text on the reader's screen, a line
in the ledger, a request at the provider) and a gate or a hanging provider keeps the next thing from happening.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from perdure.cli.demo import shop
from perdure.cli.demo.autopsy import Remains
from perdure.session import recovery
from perdure.testing import provider_script as script

STORY = (
    "Once upon a time a process wrote everything down before it believed it. People laughed, for it was slower than "
    "the others by the width of a hair. Then, one night, somebody pulled the plug. The others woke up with nothing but "
    "a spinner that turned and turned. This one read its own notes, saw where it had stopped, said so, and went on. "
) * 4


class Stage(Protocol):
    """What a scene may wait for."""

    async def reader_saw(self, characters: int) -> None:
        """Wait for live text on the reader's screen."""
        ...

    async def ledger_line(self) -> None:
        """Wait until the tool has had its side effect."""
        ...

    async def provider_asked(self, gate: str) -> None:
        """Wait until a request waits at the provider."""
        ...

    async def prompt(self, text: str, delivery: str) -> None:
        """Send a prompt and wait for its receipt."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """One kill. `effects`: refunds that are due, however often the process dies."""

    key: str
    moment: str
    ask: str
    rules: tuple[script.Rule, ...]
    until: Callable[[Stage], Awaitable[None]]
    struck: Callable[[Remains], bool]
    told: str
    gate: str | None = None
    prompts: int = 1
    effects: int = 0
    unknown_call: bool = False


def _continued(*reply: script.Item) -> script.Rule:
    return script.Rule(reply, equals=recovery.CONTINUE_TEXT)


def _open_step(left: Remains) -> bool:
    return left.claim is not None and left.claim.phase == "unknown" and left.claim.assistant_message_id is not None


def _just_begun(left: Remains) -> bool:
    """What the prompt's own commit made: the prompt, the claim and a step that has said nothing."""
    said = [one for one in left.messages if getattr(one, "parts", ())]
    return _open_step(left) and len(left.messages) == 2 and not said


# -- a -----------------------------------------------------------------------------------------------------------------------


async def _at_once(stage: Stage) -> None:
    """The receipt is all there is to wait for: the closed gate keeps the writer from any further commit."""


ADMITTED = Scene(
    key="a",
    moment="accepted, nothing said",
    ask="Where is order 3?",
    rules=(
        script.Rule((script.Text("Order 3 is on its way.", size=6, delay_ms=10),), contains="order 3"),
        _continued(script.Text("Order 3 is on its way, as before.", size=6, delay_ms=10)),
    ),
    gate=shop.WRITER_GATE,
    until=_at_once,
    struck=_just_begun,
    told="A prompt was accepted: 202 and a receipt. The process dies before it has said a word.",
)

# -- b -----------------------------------------------------------------------------------------------------------------------


async def _in_the_stream(stage: Stage) -> None:
    await stage.reader_saw(240)


STREAMING = Scene(
    key="b",
    moment="in mid-answer",
    ask="Tell me a story.",
    rules=(
        script.Rule((script.Text(STORY, size=5, delay_ms=12),), contains="story"),
        _continued(script.Text("And that is how it ended: nobody had to start again.", size=6, delay_ms=10)),
    ),
    until=_in_the_stream,
    struck=_open_step,
    told="The model streams, a reader watches the words appear, and the process dies between two of them.",
)

# -- c -----------------------------------------------------------------------------------------------------------------------


def _refund(order: str) -> tuple[script.Item, ...]:
    words = script.Text(f"I refund order {order} for you. ", size=6, delay_ms=10)
    return (words, script.Call("refund", {"order": order, "cents": 500}))


async def _in_the_tool(stage: Stage) -> None:
    await stage.ledger_line()


IN_THE_TOOL = Scene(
    key="c",
    moment="tool acted, no result",
    ask="Refund order 7, please.",
    rules=(
        script.Rule(_refund("7"), contains="order 7", step=0),
        _continued(script.Text("I cannot tell whether order 7 was refunded, so I do not do it again: I ask.", size=6)),
    ),
    gate=shop.TOOL_GATE,
    until=_in_the_tool,
    struck=lambda left: _open_step(left) and left.calls() == ["running"],
    told="The money has left, the tool has not said so yet, and the process dies. Did the refund happen?",
    effects=1,
    unknown_call=True,
)

# -- d -----------------------------------------------------------------------------------------------------------------------


async def _before_the_next_byte(stage: Stage) -> None:
    await stage.provider_asked("second step")


AFTER_THE_TOOL = Scene(
    key="d",
    moment="result in, no answer",
    ask="Refund order 8, please.",
    rules=(
        script.Rule(_refund("8"), contains="order 8", step=0),
        script.Rule((script.Hang("second step"),), contains="order 8", step=1),
        _continued(script.Text("Order 8 is refunded.", size=6, delay_ms=10)),
    ),
    until=_before_the_next_byte,
    struck=lambda left: _open_step(left) and left.calls() == ["completed"] and not left.parts,
    told="The refund is recorded and the model was asked what to say. The process dies before the first byte of the answer.",
    effects=1,
)

# -- e -----------------------------------------------------------------------------------------------------------------------

FIRST_WORDS = (
    "We are open from Monday to Friday, nine to six, and you need no appointment. Orders that you want to collect are "
    "ready two hours after you placed them; bring the number, please. Returns are taken at the counter on the left, "
    "and refunds go to the card you paid with. On Saturdays we open at ten and close at"
)


async def _with_a_second_prompt(stage: Stage) -> None:
    await stage.reader_saw(len(FIRST_WORDS))
    await stage.prompt("And on Sunday?", "queue")


QUEUED = Scene(
    key="e",
    moment="second prompt queued",
    ask="When are you open?",
    rules=(
        script.Rule((script.Text(FIRST_WORDS, size=5, delay_ms=12), script.Hang("first answer")), contains="open?"),
        _continued(script.Text("… to two. I was interrupted there.", size=6, delay_ms=10)),
        script.Rule((script.Text("On Sunday we are closed.", size=6, delay_ms=10),), contains="Sunday"),
    ),
    until=_with_a_second_prompt,
    struck=lambda left: _open_step(left) and [one.delivery for one in left.pending] == ["queue"],
    told="While the first answer streams, a second prompt is accepted and queued. The process dies with both of them open.",
    prompts=2,
)

SCENES = (ADMITTED, STREAMING, IN_THE_TOOL, AFTER_THE_TOOL, QUEUED)
