"""Where what is long stands: once, in the fact that brought it.

Lives here: which fact holds the whole body of a part, what the part is in its row without it, and the two put together
again; the same for the prompts of inputs and of user messages. A body is what may be long: a text, a reasoning with what its
provider wants back, what a call answered. A short one stays in the row, where reading it costs no second look-up, and so does
one that no single fact holds whole (MSG-6: what a call showed before it was closed). Not here: JSON (`codec.py`), statements
(`store/messages.py`, `store/inbox.py`).
"""

from __future__ import annotations

from typing import Any

from perdure import errors
from perdure.core import codec, columns, events, messages

INLINE = 256
"""Bodies of fewer characters stay in their row."""

Fact = tuple[str | None, str | None, int | None, str | None, int | None]
"""Of a fact: stored type, data, the seq of the earlier fact that it leaves something to; of that one: data, time. All None
where it is missing."""

MISSING: Fact = (None, None, None, None, None)

Row = tuple[messages.PartKind, str, str, int | None, str | None, str | None, int | None, str | None, int | None]
"""Of a part: kind, id, data, the seq of the fact that holds its body, and that fact."""

_WHOLE = {events.TextEnded, events.ReasoningEnded, events.ToolSucceeded}
_EVERYTHING = "{}"
"""What is left of a text or a reasoning: nothing that its fact does not say."""


def holder(recorded: events.Recorded[Any], part: messages.Part) -> int | None:
    """The seq of the fact that just changed the part, if it holds the whole body."""
    fact = recorded.data
    if fact.__class__ in _WHOLE:
        return recorded.seq
    if isinstance(fact, events.ToolFailed) and isinstance(part, messages.ToolPart):
        return recorded.seq if part == _answered(part, fact) else None
    return None


def dump(part: messages.Part, held_by: int | None) -> tuple[str, int | None]:
    """A part as a row holds it, and the seq of the fact that holds the rest."""
    if held_by is None or _length(part) < INLINE:
        return columns.dump_part(part), None
    return (columns.dump_part(_answered(part, None)) if isinstance(part, messages.ToolPart) else _EVERYTHING), held_by


def load(session_id: str, message_id: str, row: Row) -> messages.Part:
    """A part from its row. Raises `MessageUndecodable` where that cannot be read, or the fact that holds its body is missing,
    cannot be read or is another part's (MSG-8).
    """
    kind, part_id, data, held_by, stored_type, text, earlier, earlier_data, earlier_created = row
    if held_by is None:
        return columns.load_part(session_id, message_id, kind, part_id, data)
    part = columns.load_part(session_id, message_id, kind, part_id, data) if kind == "tool" else None
    try:
        fact = (stored_type, text, earlier, earlier_data, earlier_created)
        whole = _whole(message_id, part_id, part, _decoded(session_id, fact))
    except (errors.Undecodable, errors.InvalidDurableEvent) as error:
        why = f"its fact {held_by} should hold the body of {kind} {part_id}: {error}"
        raise errors.MessageUndecodable(session_id, message_id, why) from error
    return whole


def _decoded(session_id: str, fact: Fact) -> Any:
    """The fact itself. Raises `Undecodable`, `InvalidDurableEvent`."""
    stored_type, text, earlier, earlier_data, earlier_created = fact
    if stored_type is None or text is None:
        raise errors.Undecodable("it is missing")
    if earlier is None:
        text = columns.with_session(text, session_id)
    else:
        text = columns.with_earlier(text, stored_type, session_id, earlier_data, earlier_created)
    registry = codec.session_registry()
    return registry.upcast(registry.decode(stored_type, text))


def dump_prompt(prompt: str) -> str:
    """A prompt's JSON text as the row of its input holds it: nothing of a long one, which the fact holds that admitted it."""
    return prompt if len(prompt) < INLINE else ""


def load_prompt(session_id: str, message_id: str, seq: int, fact: Fact) -> messages.Prompt:
    """The prompt that the fact at `seq` holds. Raises `MessageUndecodable` where that is missing, cannot be read or is another
    message's (MSG-8).
    """
    try:
        said = _decoded(session_id, fact)
        if not isinstance(said, events.PromptAdmitted | events.PromptPromoted):
            raise errors.Undecodable("it holds no such thing")
        if said.message_id != message_id:
            raise errors.Undecodable("it is another message's")
    except (errors.Undecodable, errors.InvalidDurableEvent) as error:
        why = f"its fact {seq} should hold the prompt: {error}"
        raise errors.MessageUndecodable(session_id, message_id, why) from error
    return said.prompt


def dump_message(message: messages.Message) -> str:
    """A message's header as its row holds it: without a long prompt, which the fact of its own seq holds."""
    long = isinstance(message, messages.User) and not dump_prompt(codec.dump(message.prompt))
    return columns.dump_message(message, prompt=not long)


def _length(part: messages.Part) -> int:
    if isinstance(part, messages.TextPart):
        return len(part.text)
    if isinstance(part, messages.ReasoningPart):
        return len(part.text) + (len(codec.dump(part.provider_metadata)) if part.provider_metadata else 0)
    state = part.state
    return 0 if isinstance(state, messages.Pending) else len(codec.dump((state.structured, state.content)))


def _whole(message_id: str, part_id: str, part: messages.Part | None, fact: Any) -> messages.Part:
    """The part with the body that the fact holds. Raises `Undecodable` for a fact that is not this part's."""
    if isinstance(fact, events.TextEnded):
        named, whole = fact.text_id, messages.TextPart(fact.text_id, fact.text, ended=True)
    elif isinstance(fact, events.ReasoningEnded):
        named = fact.reasoning_id
        whole = messages.ReasoningPart(named, fact.text, fact.provider_metadata, ended=True)
    elif isinstance(fact, events.ToolSucceeded | events.ToolFailed) and isinstance(part, messages.ToolPart):
        named, whole = fact.call_id, _answered(part, fact)
    else:
        raise errors.Undecodable("it holds no such thing")
    if (fact.assistant_message_id, named) != (message_id, part_id):
        raise errors.Undecodable("it is another part's")
    return whole


def _answered(part: messages.ToolPart, fact: events.ToolSucceeded | events.ToolFailed | None) -> messages.ToolPart:
    """The call with what the fact says that it answered, and nothing else."""
    was = part.state
    structured, content = (fact.structured, fact.content or ()) if fact else (None, ())
    if isinstance(was, messages.Errored):
        state = messages.Errored(was.input, was.error, structured, content)
    elif isinstance(was, messages.Completed):
        state = messages.Completed(was.input, structured, content)
    else:
        return part
    return messages.ToolPart(
        part.call_id, part.name, state, part.time, part.effect, part.provider_executed, part.approval
    )
