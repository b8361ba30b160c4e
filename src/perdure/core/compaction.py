"""When and where to cut an over-long conversation, and what is asked of the model then: pure (CMP-1).

Lives here: the estimate, the cut, the words. Not here: asking (`runner/compaction.py`), what a completed compaction
hides (`request.py`). The estimate starts from what the provider itself counted last, so that it costs only what came
after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from perdure.core import budget, messages

CHARS_PER_TOKEN = 4
BUFFER_TOKENS = 8_000
KEEP_TOKENS = 8_000
WORTH = 0.125  # of what is visible a summary within a turn must replace

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


UNKNOWN = Limit(200_000)
"""Where nobody knows the window and no provider has complained."""


def refused(visible: Sequence[messages.Message], known: Limit | None) -> Limit:
    """The window as the refusal of a request shows it: no larger than what did not fit."""
    size = sum(map(_size, visible))
    context = min(size, known.context) if known else size
    return Limit(context, context // 4)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a summary ends: `index` is that of the first message kept verbatim behind it. `prompts` are the seqs of older ones
    that stay before it: what the turn was asked that the cut parts.
    """

    index: int
    prompts: tuple[int, ...] = ()


def estimate(visible: Sequence[messages.Message]) -> int:
    """Tokens the next request will take: the provider's last count, and a guess for everything after it.

    What it counted before a summary took the place of much of it says nothing any more.
    """
    tokens, since = 0, _leading_summary(visible)[1]
    for message in reversed(visible):
        counted = isinstance(message, messages.Assistant) and message.seq > since and _counted(message)
        if isinstance(message, messages.Assistant) and counted:
            return tokens + counted + _results(message) // CHARS_PER_TOKEN
        tokens += length(message) // CHARS_PER_TOKEN + 1
    return tokens


def _counted(message: messages.Assistant) -> int:
    """What the provider counted for a whole answer, 0 where it did not."""
    return 0 if message.finish == "error" or message.tokens is None else budget.total(message.tokens)


def _size(message: messages.Message) -> int:
    return -(-length(message) // CHARS_PER_TOKEN)


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


def cut(visible: Sequence[messages.Message], limit: Limit) -> Cut | None:
    """The first boundary with no more behind it than is to be kept, else the newest one. None: there is nothing to summarise,
    since a summary alone gets no shorter by another one.

    A boundary is a user message, and the begin of a settled step of the newest turn, whose prompts stay. The newest step
    stays too, which the model may not have seen yet, unless it does not fit.
    """
    return _Measured(visible, limit).cut()


class _Measured:
    """What a model sees, with the size of each message in tokens; a summary's counts apart, as another will take its place."""

    def __init__(self, visible: Sequence[messages.Message], limit: Limit) -> None:
        self._visible = visible
        self._front, _ = _leading_summary(visible)
        self._limit = limit
        self._sizes = [*map(_size, visible)]
        self._behind = [*accumulate(reversed(self._sizes), initial=0)][::-1]
        self._summary = self._sizes[self._front] if self._front >= 0 else 0
        self._turn = _newest_turn(visible)
        self._answered = max((index for index, one in enumerate(visible) if _is_answer(one)), default=-1)

    def cut(self) -> Cut | None:
        """The best boundary that is worth a summary."""
        boundaries = [*filter(self._is_boundary, range(max(self._front + 1, 1), len(self._visible)))]
        steps = [index for index in range(max(self._turn, self._front + 1), len(self._visible)) if self._is_step(index)]
        if steps:
            newest = steps[-1]
            fits = self._behind[newest] <= self._limit.keep or self._stays(newest) <= self._limit.usable
            boundaries = [one for one in boundaries if one <= newest] if fits else [newest + 1]
        fitting = (one for one in boundaries if self._behind[one] <= self._limit.keep and self._is_worth(one))
        best = next(fitting, boundaries[-1] if boundaries else 0)
        if not self._is_worth(best):
            return None
        if self._turn > self._front and self._gone(self._turn) == self._gone(best):
            return Cut(self._turn)  # of the turn itself nothing would go
        return Cut(best, tuple(self._visible[one].seq for one in self._prompts(best)))

    def _is_boundary(self, index: int) -> bool:
        return isinstance(self._visible[index], messages.User) or (index > self._turn and self._is_step(index))

    def _is_step(self, index: int) -> bool:
        """Whether it is a settled answer that says something."""
        message = self._visible[index]
        return isinstance(message, messages.Assistant) and messages.message_is_settled(message) and bool(message.parts)

    def _prompts(self, index: int) -> list[int]:
        """What the turn was asked before `index`: all that no model has answered yet, of the rest what there is room for, the
        newest first.
        """
        room, found = self._limit.usable, list[int]()
        for one in range(index - 1, self._turn - 1, -1):
            if isinstance(self._visible[one], messages.User) and (self._sizes[one] <= room or one > self._answered):
                room -= self._sizes[one]
                found.insert(0, one)
        return found

    def _stays(self, index: int) -> int:
        """How much there will be, the new summary taken for as long as the old one."""
        return self._behind[index] + self._summary + sum(self._sizes[one] for one in self._prompts(index))

    def _gone(self, index: int) -> int:
        return self._behind[0] - self._stays(index)

    def _is_worth(self, index: int) -> bool:
        """Whether enough goes: anything where older turns go alone, more within a turn, whose next step would soon ask for the
        next summary.
        """
        return self._gone(index) > (WORTH * self._behind[0] if index > self._turn else 0)


def _leading_summary(visible: Sequence[messages.Message]) -> tuple[int, int]:
    """Index and seq of the summary that leads it, which stands before any answer; -1 where there is none."""
    for index, message in enumerate(visible):
        if isinstance(message, messages.Compaction) and message.status == "completed":
            return index, message.seq
        if isinstance(message, messages.Assistant):
            break
    return -1, -1


def _is_answer(message: messages.Message) -> bool:
    """Whether a model has surely seen what came before: it answered to its end."""
    return isinstance(message, messages.Assistant) and message.finish is not None and message.error is None


def _newest_turn(visible: Sequence[messages.Message]) -> int:
    """Index of the newest turn's first prompt; 0 where it began before all that is visible."""
    prompt, following = None, None
    for index in range(len(visible) - 1, -1, -1):
        message = visible[index]
        if isinstance(message, messages.User):
            prompt = index
        elif isinstance(message, messages.Assistant) and prompt is not None and _ends_turn(message, following):
            return prompt
        if isinstance(message, messages.User | messages.Assistant | messages.Synthetic):
            following = message
    return 0


def _ends_turn(message: messages.Assistant, following: messages.Message | None) -> bool:
    """Whether an answer was its turn's last. Behind one that failed a turn goes on by words of the engine; an owner's death
    does not end it at all.
    """
    if message.error:
        return isinstance(following, messages.User) and message.error.type != "unknown"
    return _is_answer(message) and all(
        part.provider_executed for part in message.parts if isinstance(part, messages.ToolPart)
    )


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
