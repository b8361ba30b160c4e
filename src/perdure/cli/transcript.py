"""Reading transcripts: the whole of one, and the answer a prompt got in it."""

from __future__ import annotations

from perdure.cli.connect import Session
from perdure.core import answers, messages

PAGE = 200
END = 2**53
"""Beyond every seq."""


async def everything(session: Session) -> list[messages.Message]:
    """The whole transcript."""
    found: list[messages.Message] = []
    while True:
        page = await session.messages(after=found[-1].seq if found else -1, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found


async def last(session: Session, many: int, *, before: int = END) -> list[messages.Message]:
    """The last messages of the transcript, or those right before a seq."""
    found: list[messages.Message] = []
    while len(found) < many:
        wanted = min(PAGE, many - len(found))
        page = await session.messages(before=found[0].seq if found else before, limit=wanted)
        found[:0] = page
        if len(page) < wanted:
            break
    return found


async def answer(session: Session, receipt: answers.Receipt) -> str:
    """The text of the last message that answered a settled prompt, empty if none did."""
    said, after = "", receipt.promoted_seq
    end = receipt.settled_seq
    while after is not None:
        page = await session.messages(after=after, limit=PAGE)
        for message in page:
            if end is not None and message.seq > end:
                return said
            if isinstance(message, messages.Assistant):
                said = text_of(message) or said
        after = page[-1].seq if len(page) == PAGE else None
    return said


def text_of(message: messages.Assistant) -> str:
    """What an assistant said, its text parts one below the other."""
    return "\n\n".join(part.text for part in message.parts if isinstance(part, messages.TextPart) and part.text)


def prompt_text(prompt: messages.Prompt) -> str:
    """What a person asked; an image or file by its name."""
    parts = (part.text or "" if part.type == "text" else f"[{part.name or part.type}]" for part in prompt.parts)
    return "\n".join(parts)
