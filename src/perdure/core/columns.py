"""What stands in the columns of a row, or in an earlier fact that it names, is left out of its JSON.

Lives here: the JSON of facts, messages, parts and usage as rows hold it, there and back (DB). Not here: JSON in itself
(`codec.py`), which of a long part's body stands in a fact (`bodies.py`). What was left out is put back into the text before
that is decoded, so a text that does not begin as it must is refused: it could read as something that says nothing. So is
one that says otherwise further on.
"""

from __future__ import annotations

import typing
from typing import Any

from perdure import errors
from perdure.core import codec, events, messages, value

STEP_STARTED = codec.versioned(events.StepStarted)
ADMITTED = codec.versioned(events.PromptAdmitted)
PROMOTED = codec.versioned(events.PromptPromoted)
_TIME = '{"time":{'
_ASSISTANT = '{"assistant_message_id":"'
_TOKENS = value.names(messages.Tokens)
_HEADERS = {
    kind: [name for name in value.names(kind) if name not in {"id", "seq", "time", "parts"}]
    for kind in typing.get_args(messages.Message)
}
_PROMPT = '"prompt":'
_WANTED = ',"request_execution":'


def without_session(data: str, session_id: str) -> str:
    """A fact's JSON without the session id that it begins with, for a row that tells it; any other text behind a space, by
    which `with_session` knows the one from the other.
    """
    rest = without(data, f'{{"session_id":"{session_id}"')
    return f" {data}" if rest is None else rest


def with_session(data: str, session_id: str) -> str:
    """The text that `without_session` was given, to the last character."""
    return data[1:] if data.startswith(" ") else _with(data, f'{{"session_id":"{session_id}"')


def without(data: str, head: str) -> str | None:
    """JSON of an object without the fields that it begins with, for a row that tells them; None for any other text."""
    if data.startswith(head):
        if data.startswith(',"', len(head)):
            return f"{{{data[len(head) + 1 :]}"
        if data == f"{head}}}":
            return "{}"
    return None


def _with(data: str, head: str) -> str:
    return f"{head}}}" if data == "{}" else f"{head},{data[1:]}"


# What an earlier fact of the log says. All of it about facts without the session id that they begin with.


def promoted(admitted: str, created: int) -> str | None:
    """What is said when an admitted prompt, of that time, enters the transcript as it was admitted."""
    head, found, tail = admitted.rpartition(_WANTED)
    return f'{head},"time_created":{created}}}' if found and tail in {"true}", "false}"} else None


def with_earlier(data: str, kind: str, session_id: str, earlier: str | None, created: int | None) -> str:
    """A whole fact of that stored type from what is stored of it and what an earlier one, of that time, says for it; no JSON
    where that says nothing of the kind.
    """
    if kind != PROMOTED:
        return behind(data, head(session_id, earlier))
    said = promoted(earlier, created) if data == "{}" and earlier and created is not None else None
    return with_session(said, session_id) if said else ""


def head(session_id: str, earlier: str | None) -> str:
    """How the facts of a step begin, by the one that the step began with; nothing where that is no such fact."""
    if earlier is None or not earlier.startswith(_ASSISTANT):
        return ""
    end = earlier.find('"', len(_ASSISTANT))
    return f'{{"session_id":"{session_id}",{earlier[1:end]}"'


def behind(data: str, head: str) -> str:
    """A whole fact of a step; no JSON without a head."""
    return _with(data, head) if head and data.startswith("{") else ""


def dump_message(message: messages.Message, *, prompt: bool = True) -> str:
    """A message's header, without what stands in columns: id, seq and the time it was created; a user's without its
    `prompt`, where that stands in a fact.
    """
    completed = message.time.completed
    held: dict[str, Any] = {"time": {} if completed is None else {"completed": completed}}
    for name in _HEADERS[message.__class__]:
        item = getattr(message, name)
        if name == "prompt":  # nothing else that a header says has fields that may be None
            item = codec.bare(item) if prompt else None
        if item is not None:
            held[name] = item
    return codec.dump(held)


def load_message(session_id: str, message_id: str, kind: str, data: str, *, seq: int, created: int) -> messages.Message:
    """Decode such a header. Raises `MessageUndecodable`."""
    if not data.startswith(_TIME):
        raise errors.MessageUndecodable(session_id, message_id, "it does not begin with its time")
    rest = data[len(_TIME) :]
    head = f'{{"id":{codec.dump(message_id)},"seq":{seq},"time":{{"created":{created}'
    text = f"{head}{'' if rest.startswith('}') else ','}{rest}"
    message = codec.load_message(session_id, message_id, kind, text)
    if (message.id, message.seq) != (message_id, seq):  # whoever pages by seq would go in a circle
        raise errors.MessageUndecodable(session_id, message_id, "its columns and its data name different messages")
    return message


def leaves_prompt(kind: str, data: str) -> bool:
    """Whether a message's header leaves its prompt to a fact. What else a user's says holds no text that could look so."""
    return kind == "user" and _PROMPT not in data


def load_prompted(
    session_id: str, message_id: str, data: str, *, seq: int, created: int, prompt: messages.Prompt
) -> messages.Message:
    """Decode the header of a user message that leaves its prompt to a fact. Raises `MessageUndecodable`."""
    text = f'{data[:-1]},{_PROMPT}{{"parts":[]}}}}'
    message = load_message(session_id, message_id, "user", text, seq=seq, created=created)
    return value.replace(message, prompt=prompt) if isinstance(message, messages.User) else message


def dump_usage(usage: messages.Usage | None) -> str | None:
    """What was used, without what is 0; None stays None."""
    if usage is None:
        return None
    tokens = {name: count for name in _TOKENS if (count := getattr(usage.tokens, name))}
    held: dict[str, Any] = {"tokens": tokens} if tokens else {}
    for name in ("cost", "unknown_cost", "unknown_tokens"):
        if count := getattr(usage, name):
            held[name] = count
    return codec.dump(held)


def dump_part(part: messages.Part) -> str:
    """A part as its row holds it: without its id, which stands in a column, and what most calls are."""
    if isinstance(part, messages.TextPart):
        return codec.dump({"text": part.text, "ended": part.ended})
    if isinstance(part, messages.ReasoningPart):
        held = codec.bare(part)
        del held["id"]
        return codec.dump(held)
    held = {"name": part.name, "state": codec.bare(part.state), "time": codec.bare(part.time)}
    if part.effect != "write":
        held["effect"] = part.effect
    if part.provider_executed:
        held["provider_executed"] = True
    if part.approval:
        held["approval"] = codec.bare(part.approval)
    held["status"] = messages.tool_status(part)
    return codec.dump(held)


def load_part(session_id: str, message_id: str, kind: str, part_id: str, data: str) -> messages.Part:
    """Decode such a part. Raises `MessageUndecodable`."""
    named, first = ("call_id", '{"name":') if kind == "tool" else ("id", '{"text":')
    if not data.startswith(first):  # whatever else it is would read as a part that says nothing
        raise errors.MessageUndecodable(session_id, message_id, f"{kind} {part_id} does not begin with {first}")
    part = codec.load_part(session_id, message_id, kind, f'{{"{named}":{codec.dump(part_id)},{data[1:]}')
    if messages.part_key(part)[1] != part_id:
        raise errors.MessageUndecodable(session_id, message_id, f"the data of {kind} {part_id} names another part")
    return part
