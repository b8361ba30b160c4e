"""When and where to cut an over-long conversation, and what is asked of the model then: pure (CMP-1).

Lives here: the estimate, the cut, the words. Not here: asking (`runner/compaction.py`), what a completed compaction
hides (`request.py`). The estimate starts from what the provider itself counted last, so that it costs only what came
after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core import budget, messages

CHARS_PER_TOKEN = 4
BUFFER_TOKENS = 8_000
KEEP_TOKENS = 8_000

SUMMARISE = (
    "Summarise the conversation above so that the work can go on from the summary alone. Keep: what was asked, decisions "
    "and their reasons, facts, names, ids and numbers that will be needed, what was done and with what result, what is "
    "still open. Be complete and brief. Do not call tools."
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A model's context window and how much of it must stay free, in tokens."""

    context: int
    buffer: int = BUFFER_TOKENS

    @property
    def usable(self) -> int:
        """What a request may fill; at least half of a small window."""
        return max(self.context - self.buffer, self.context // 2)

    @property
    def keep(self) -> int:
        """How much stays verbatim behind a summary; in a small window at most half of what a request may fill."""
        return min(KEEP_TOKENS, self.usable // 2)


def estimate(visible: Sequence[messages.Message]) -> int:
    """Tokens the next request will take: the provider's last count, and a guess for everything after it.

    What it counted before a summary took the place of much of it says nothing any more.
    """
    tokens, since = 0, visible[0].seq if visible and isinstance(visible[0], messages.Compaction) else -1
    for message in reversed(visible):
        counted = isinstance(message, messages.Assistant) and message.seq > since and _counted(message)
        if isinstance(message, messages.Assistant) and counted:
            return tokens + counted + _results(message) // CHARS_PER_TOKEN
        tokens += length(message) // CHARS_PER_TOKEN + 1
    return tokens


def _counted(message: messages.Assistant) -> int:
    """What the provider counted for a whole answer, 0 where it did not."""
    return 0 if message.finish == "error" or message.tokens is None else budget.total(message.tokens)


def length(message: messages.Message) -> int:
    """Characters of a message that a model sees."""
    match message:
        case messages.User():
            return sum(len(part.text or "") for part in message.prompt.parts)
        case messages.Synthetic() | messages.System():
            return len(message.text)
        case messages.Compaction():
            return len(message.summary or "")
        case messages.Assistant():
            said = sum(len(part.text) for part in message.parts if not isinstance(part, messages.ToolPart))
            return said + _results(message)
        case _:
            return 0


def _results(message: messages.Assistant) -> int:
    total = 0
    for part in message.parts:
        if isinstance(part, messages.ToolPart):
            state = part.state
            total += len(str(state.input))
            if not isinstance(state, messages.Pending):
                total += sum(len(str(item.get("text", ""))) for item in state.content)
    return total


def cut(visible: Sequence[messages.Message], keep_tokens: int = KEEP_TOKENS) -> int:
    """Index of the first message kept verbatim: the first user boundary with at most `keep_tokens` behind it, else the
    newest one.

    Everything before goes into the summary. 0 means that there is nothing to summarise: a summary alone gets no
    shorter by another one.
    """
    kept, best = 0, 0
    for index in range(len(visible) - 1, 0, -1):
        kept += length(visible[index]) // CHARS_PER_TOKEN + 1
        if kept > keep_tokens and best:
            break
        if isinstance(visible[index], messages.User):
            if best and not _worth(visible[:index]):
                break
            best = index
    return best if _worth(visible[:best]) else 0


def _worth(prefix: Sequence[messages.Message]) -> bool:
    """Whether anything in it is not yet in a summary."""
    return any(length(message) for message in prefix if not isinstance(message, messages.Compaction))


def transcript_text(prefix: Sequence[messages.Message]) -> str:
    """A conversation as plain text for the summary request, so that no call in it needs a tool to be declared."""
    return "\n\n".join(words for message in prefix if (words := _as_text(message)))


def _as_text(message: messages.Message) -> str:
    match message:
        case messages.User():
            return f"User: {message.prompt.text}"
        case messages.Synthetic() | messages.System():
            return f"Note: {message.text}"
        case messages.Compaction() if message.status == "completed":
            return f"Summary so far: {message.summary}"
        case messages.Assistant():
            return "\n".join(_part_text(part) for part in message.parts)
        case _:
            return ""


def _part_text(part: messages.Part) -> str:
    if isinstance(part, messages.TextPart):
        return f"Assistant: {part.text}"
    if isinstance(part, messages.ReasoningPart):
        return ""
    match part.state:
        case messages.Completed():
            result = " ".join(str(item.get("text", "")) for item in part.state.content)
        case messages.Errored():
            result = f"failed: {part.state.error.message}"
        case _:
            result = "no result"
    return f"Tool {part.name}({part.state.input}) -> {result[:4000]}"
