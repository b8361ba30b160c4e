"""Lowering kept per settled message, so that a step pays for what is new and not for its whole history (MSG-9).

Lives here: `Lowering`, which remembers the lowered front of one transcript for one speaker, and `Draft`, a request's
messages before the bytes of its images and files are read. Not here: what a message lowers to (`request.py`): a draft
filled is always equal to `request.lower`. Bytes are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core import messages, request, transcript
from perdure.core.value import Value


class Draft(Value):
    """A request's messages; those in `media`, by index, wait for bytes. `problem` is what `check_pairs` found."""

    messages: tuple[request.Message, ...]
    media: tuple[tuple[int, messages.User], ...]  # without those that are left out
    problem: str | None

    @property
    def hashes(self) -> frozenset[str]:
        """The content hashes whose bytes are wanted."""
        return frozenset(part.hash for _, user in self.media for part in user.prompt.parts if part.hash)

    def fill(self, content: request.Bytes) -> tuple[request.Message, ...]:
        """The messages with their bytes."""
        if not self.media:
            return self.messages
        filled = [*self.messages]
        for index, user in self.media:
            filled[index] = request.lower_user(user, content)
        return tuple(filled)


class Lowering:
    """The lowered settled front of one transcript, as the last draft left it."""

    __slots__ = ("_count", "_front", "_last", "_media", "_speaker")

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._speaker: request.Speaker | None = None
        self._forget()

    def _forget(self) -> None:
        self._count, self._last = 0, None
        self._front: list[request.Message] = []
        self._media: list[tuple[int, messages.User]] = []

    def draft(self, held: transcript.Either, speaker: request.Speaker) -> Draft:
        """What the model sees of the transcript; the front that no fact can change any more is kept for the next time."""
        fresh = self._fresh(held, speaker)
        settled = next((i for i, message in enumerate(fresh) if not messages.message_is_settled(message)), len(fresh))
        problem = self._add(fresh[:settled], speaker)
        front, media = len(self._front), len(self._media)
        problem = self._add(fresh[settled:], speaker) or problem
        out = request.left_out(request.visible(held.freeze()), speaker) if self._media else ()
        draft = Draft(tuple(self._front), tuple(one for one in self._media if one[1].id not in out), problem)
        del self._front[front:], self._media[media:]
        self._keep(held, fresh[settled:], sound=problem is None)
        return draft

    def _fresh(self, held: transcript.Either, speaker: request.Speaker) -> Sequence[messages.Message]:
        """The messages behind the front; all visible ones where the front is another's, or a summary has replaced it."""
        if speaker == self._speaker and self._count:
            found = held.since(self._count - 1)
            if found[:1] == (self._last,) and not any(map(request.is_summary, found[1:])):
                return found[1:]
        self._forget()
        self._speaker = speaker
        return request.visible(held.freeze())

    def _add(self, fresh: Sequence[messages.Message], speaker: request.Speaker) -> str | None:
        """Lower onto the front; what is wrong with its pairs. Every message brings its own, so the new ones suffice."""
        before = len(self._front)
        for message in fresh:
            if isinstance(message, messages.User) and message.prompt.has_media:
                self._media.append((len(self._front), message))
            self._front += request.lower_message(message, speaker, request.no_bytes)
        return request.check_pairs(self._front[before:])

    def _keep(self, held: transcript.Either, rest: Sequence[messages.Message], *, sound: bool) -> None:
        """Note where the front ends, if what lies behind it is simply the transcript's end."""
        count = held.size - len(rest)
        found = held.since(max(count - 1, 0))
        if sound and count and found[1:] == tuple(rest):
            self._count, self._last = count, found[0]
        else:
            self._forget()
