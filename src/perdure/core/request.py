"""What a model is asked, free of any provider: the nouns of a request and how a transcript is lowered to one.

Lives here: `Request` and its parts, `lower` (transcript → request messages, MSG-9) and the strict pairing check. Not
here: wire formats (each adapter in `models/` owns its own) and prompts' admission. Lowering is pure, so a request can
be replayed.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from perdure.core import messages, transcript
from perdure.core.value import Value, field

ToolChoice = Literal["auto", "none"]


class TextContent(Value):
    """Plain text."""

    text: str


class MediaContent(Value):
    """An image or a file, its bytes read from the content table."""

    kind: Literal["image", "file"]
    mime: str
    data: bytes
    name: str | None = None


class ReasoningContent(Value):
    """The model's own reasoning; `provider_metadata` (signatures and the like) only ever goes back to the same provider
    and model.
    """

    text: str
    provider_metadata: dict[str, Any] | None = None


class CallContent(Value):
    """A tool call the model made."""

    call_id: str
    name: str
    input: dict[str, Any]
    provider_executed: bool = False


class UserMessage(Value):
    """What the user side says (user, synthetic and system facts alike)."""

    content: tuple[TextContent | MediaContent, ...]


class AssistantMessage(Value):
    """What the model said before."""

    content: tuple[TextContent | ReasoningContent | CallContent, ...]


class ResultMessage(Value):
    """The one result of one call; stands after the assistant message that holds the call, in call order."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = UserMessage | AssistantMessage | ResultMessage


class ToolSpec(Value):
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Value):
    """One provider request. `model` is the provider's own name for it, without our `provider:` prefix."""

    session_id: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


# -- from a transcript to a request ------------------------------------------------------------------------------------------

UNANSWERED = "No result was recorded: the outcome of this call is unknown."
MAY_REPEAT = " It changes nothing that matters when repeated, so it may be made again."
CHECK_FIRST = " It may have happened. Check its effect before making it again."
STOPPED = "The answer was stopped here. Do not go on with it unless that is asked for."


class Speaker(Value):
    """Whom a request is for; provider metadata only ever goes back to the same one."""

    provider: str
    model: str


Bytes = Callable[[str], bytes | None]
"""Gives the bytes of a content hash."""


def lower(held: transcript.Transcript, speaker: Speaker, content: Bytes) -> tuple[Message, ...]:
    """What the model sees of a transcript, since its last completed compaction (MSG-9)."""
    lowered: list[Message] = []
    seen = visible(held)
    out = left_out(seen, speaker)
    for message in seen:
        lowered += lower_message(message, speaker, no_bytes if message.id in out else content)
    return tuple(lowered)


def no_bytes(_: str) -> None:
    """The bytes of what is not sent."""
    return


def left_out(seen: Sequence[messages.Message], speaker: Speaker) -> set[str]:
    """Prompts whose images and files this model refused before the next prompt came: each further request would be
    refused with them. Until then they stay, for whoever runs the refused prompt again.
    """
    out, refused, new = set[str](), list[str](), list[str]()
    for message in seen:
        if isinstance(message, messages.User):
            out.update(refused)
            refused.clear()
            new += [message.id] if message.prompt.has_media else []
        elif isinstance(message, messages.Assistant) and message.finish:
            if _refused(message, speaker):
                refused += new
            elif message.error is None:
                refused.clear()
            else:
                continue  # nobody looked at them
            new.clear()
    return out


def _refused(message: messages.Assistant, speaker: Speaker) -> bool:
    """Whether the speaker would not take the request at all, and would not take it again."""
    final = message.error is not None and message.error.type in {"invalid_request", "context_overflow"}
    return final and not message.parts and message.model == f"{speaker.provider}:{speaker.model}"


def visible(held: transcript.Transcript) -> Sequence[messages.Message]:
    """The last completed compaction, behind the prompts it names; what it kept verbatim (from the message its `recent` names,
    without an older summary that stands there), and all that came after.
    """
    found = held.messages
    start = next((i for i in range(len(found) - 1, -1, -1) if is_summary(found[i])), None)
    if start is None:
        return found
    summary = found[start]
    assert isinstance(summary, messages.Compaction)  # noqa: S101, `is_summary` has looked
    name = summary.recent
    kept = next((i for i in range(start - 1, -1, -1) if found[i].id == name), start) if name else start
    prompts = [one for seq in summary.prompts or () if (one := _prompt_at(found, seq, kept))]
    recent = [one for one in found[kept:start] if not is_summary(one)]
    return (*prompts, summary, *recent, *found[start + 1 :])


def _prompt_at(found: Sequence[messages.Message], seq: int, before: int) -> messages.User | None:
    """The prompt with that seq, found without reading the turn that follows it."""
    index = bisect.bisect_left(found, seq, hi=before, key=lambda message: message.seq)
    one = found[index] if index < before else None
    return one if isinstance(one, messages.User) and one.seq == seq else None


def is_summary(message: messages.Message) -> bool:
    """Whether what came before is replaced by this message."""
    return isinstance(message, messages.Compaction) and message.status == "completed"


def lower_message(message: messages.Message, speaker: Speaker, content: Bytes) -> list[Message]:
    """One message as the model sees it: none, one, or an assistant with its results behind it."""
    match message:
        case messages.User():
            user = lower_user(message, content)
            return [user] if user.content else []
        case messages.Synthetic() | messages.System():
            return [UserMessage((TextContent(message.text),))] if message.text else []
        case messages.Compaction() if message.summary:
            return [UserMessage((TextContent(f"Summary of the conversation so far:\n{message.summary}"),))]
        case messages.Assistant():
            return _assistant(message, speaker)
        case _:
            return []


def lower_user(message: messages.User, content: Bytes) -> UserMessage:
    """A prompt as the model sees it, without its empty parts."""
    return UserMessage(tuple(part for one in message.prompt.parts if (part := _prompt_part(one, content))))


def _prompt_part(part: messages.PromptPart, content: Bytes) -> TextContent | MediaContent | None:
    if part.type == "text":
        return TextContent(part.text) if part.text else None
    data = content(part.hash) if part.hash else None
    if data is None:
        return TextContent(f"[{part.type} {part.name or ''} is no longer available]")
    return MediaContent(part.type, part.mime or "application/octet-stream", data, part.name)


def _assistant(message: messages.Assistant, speaker: Speaker) -> list[Message]:
    same = message.model == f"{speaker.provider}:{speaker.model}"
    said: list[TextContent | ReasoningContent | CallContent] = []
    results: list[Message] = []
    for part in message.parts:
        if isinstance(part, messages.ToolPart):
            said.append(CallContent(part.call_id, part.name, _input(part), part.provider_executed))
            results.append(_result(part))
        elif part.text and isinstance(part, messages.TextPart):
            said.append(TextContent(part.text))
        elif part.text or (same and isinstance(part, messages.ReasoningPart) and part.provider_metadata):
            said.append(_reasoning(part, same=same))
    if message.error and message.error.type == "interrupted":
        results.append(UserMessage((TextContent(STOPPED),)))
    return [AssistantMessage(tuple(said)), *results] if said else results


def _reasoning(part: messages.Part, *, same: bool) -> ReasoningContent | TextContent:
    assert isinstance(part, messages.ReasoningPart)  # noqa: S101, the caller has looked
    return ReasoningContent(part.text, part.provider_metadata) if same else TextContent(part.text)


def _input(part: messages.ToolPart) -> messages.JsonObject:
    return {} if isinstance(part.state, messages.Pending) else part.state.input


def _result(part: messages.ToolPart) -> ResultMessage:
    match part.state:
        case messages.Completed():
            return ResultMessage(part.call_id, part.name, _words(part.state.content))
        case messages.Errored() if part.state.error.type != "unknown":
            return ResultMessage(part.call_id, part.name, part.state.error.message, is_error=True)
        case messages.Errored():
            words = part.state.error.message + "." + _advice(part)
            return ResultMessage(part.call_id, part.name, words, is_error=True)
        case _:
            return ResultMessage(part.call_id, part.name, UNANSWERED + _advice(part), is_error=True)


def _advice(part: messages.ToolPart) -> str:
    return CHECK_FIRST if part.effect == "write" else MAY_REPEAT


def _words(content: tuple[messages.JsonObject, ...]) -> str:
    return "\n".join(str(part.get("text", "")) for part in content)


def check_pairs(lowered: Sequence[Message]) -> str | None:
    """What is wrong with the pairing of calls and results, None if every call is followed directly by its one result,
    in order.
    """
    owed: list[str] = []
    for message in lowered:
        if isinstance(message, ResultMessage):
            if not owed or owed.pop(0) != message.call_id:
                return f"Result of {message.call_id} stands where no call asks for it"
            continue
        if owed:
            return f"Call {owed[0]} has no result directly after it"
        if isinstance(message, AssistantMessage):
            owed = [part.call_id for part in message.content if isinstance(part, CallContent)]
    return f"Call {owed[0]} has no result directly after it" if owed else None
