"""A provider-neutral request as pydantic-ai's messages, parameters and settings.

Lives here: pure functions over `core.request`. Not here: HTTP, and what comes back (`pydantic_ai_stream.py`). Turns are
merged where ours are finer than theirs, since not every provider takes two user messages in a row. What a provider sealed
goes back to the same provider and model only (MSG-9); another one reads a call that was run for it as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai import messages as theirs
from pydantic_ai import models, native_tools, tools
from pydantic_ai.settings import ModelSettings

from perdure.core import request as requests
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import pydantic_ai_keepsake as keepsake

_RENAMED = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
NATIVE_TOOLS = "native_tools"


def messages(request: requests.Request, speaker: requests.Speaker, system: str) -> list[theirs.ModelMessage]:
    """The history; `system` is pydantic-ai's own name of the provider, by which it knows its parts again."""
    made: list[theirs.ModelMessage] = []
    asked: list[theirs.ModelRequestPart] = [theirs.SystemPromptPart(request.system)] if request.system else []
    native: set[str] = set()
    for at, message in enumerate(request.messages):
        match message:
            case requests.UserMessage():
                asked.append(theirs.UserPromptPart(_user_content(message)))
            case requests.ResultMessage():
                if message.call_id not in native:
                    asked.append(_result(message))
            case requests.AssistantMessage():
                native = {
                    call.call_id
                    for call in message.content
                    if isinstance(call, requests.CallContent)
                    if call.provider_executed
                }
                said = _assistant(message, _results(request.messages[at + 1 :]), speaker)
                if said:
                    if asked:
                        made.append(theirs.ModelRequest(asked))
                        asked = []
                    made.append(theirs.ModelResponse(said, provider_name=system, model_name=speaker.model))
    return [*made, theirs.ModelRequest(asked)] if asked else made


def parameters(request: requests.Request) -> models.ModelRequestParameters:
    """The tools, ours and the provider's own (`settings["native_tools"]`: names, or names with their configuration)."""
    functions = [
        tools.ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in request.tools
    ]
    named: Any = request.settings.get(NATIVE_TOOLS) or ()
    configured = cast("dict[str, Any]", named) if isinstance(named, dict) else {str(name): None for name in named}
    return models.ModelRequestParameters(
        function_tools=functions, native_tools=[_native_tool(name, given) for name, given in configured.items()]
    )


def settings(request: requests.Request, idle_timeout_s: float) -> ModelSettings:
    """Settings in their words, unknown ones as they are; retries are off whatever anyone says (RUN-4)."""
    made: dict[str, Any] = {"timeout": idle_timeout_s}
    for name, value in request.settings.items():
        if value is not None and name != NATIVE_TOOLS:
            made[_RENAMED.get(name, name)] = value
    if request.tools and request.tool_choice == "none":
        made["tool_choice"] = "none"
    if isinstance(made.get("stop_sequences"), str):
        made["stop_sequences"] = [made["stop_sequences"]]
    return cast("ModelSettings", cast("object", made | {"max_retries": 0}))


def _native_tool(name: str, given: Any) -> native_tools.AbstractNativeTool:
    kind: Any = native_tools.NATIVE_TOOL_TYPES.get(name)
    try:
        if kind is None:
            raise TypeError(f"there are {', '.join(sorted(native_tools.NATIVE_TOOL_TYPES))}")
        return kind(**(given or {}))
    except TypeError as refusal:
        detail = f"The provider's own tool {name!r} cannot be asked for: {refusal}"
        raise ModelError(ModelErrorKind.INVALID_REQUEST, detail) from None


def _user_content(message: requests.UserMessage) -> str | list[theirs.UserContent]:
    texts = [part.text for part in message.content if isinstance(part, requests.TextContent)]
    if len(texts) == len(message.content):
        return "\n".join(texts)
    return [part.text if isinstance(part, requests.TextContent) else _media(part) for part in message.content]


def _media(part: requests.MediaContent) -> theirs.UserContent:
    """A file that is text as text: only some models take files, all of them read."""
    if part.kind == "file" and (part.mime.startswith("text/") or part.mime in {"application/json", "application/xml"}):
        try:
            return (f"File {part.name}:\n" if part.name else "") + part.data.decode()
        except UnicodeDecodeError:
            pass
    return theirs.BinaryContent(part.data, media_type=part.mime)


def _result(message: requests.ResultMessage) -> theirs.ToolReturnPart:
    outcome = "failed" if message.is_error else "success"
    return theirs.ToolReturnPart(message.name, message.text, message.call_id, outcome=outcome)


def _results(following: Sequence[requests.Message]) -> dict[str, str]:
    """The results that stand directly behind an assistant message."""
    found: dict[str, str] = {}
    for message in following:
        if not isinstance(message, requests.ResultMessage):
            break
        found[message.call_id] = message.text
    return found


def _assistant(
    message: requests.AssistantMessage, results: Mapping[str, str], speaker: requests.Speaker
) -> list[theirs.ModelResponsePart]:
    sealed = _sealed(message, speaker)
    parts: list[theirs.ModelResponsePart] = []
    for part in message.content:
        match part:
            case requests.TextContent():
                parts.append(theirs.TextPart(part.text))
            case requests.ReasoningContent():
                _reasoning(part, parts, speaker)
            case requests.CallContent(provider_executed=True):
                parts += sealed.get(part.call_id) or (theirs.TextPart(_told(part, results.get(part.call_id, ""))),)
            case requests.CallContent():
                parts.append(theirs.ToolCallPart(part.name, part.input, part.call_id))
    return parts


def _sealed(message: requests.AssistantMessage, speaker: requests.Speaker) -> dict[str, keepsake.Native]:
    """The calls the provider ran itself, by the id they have here, where they may go back as they were."""
    found: dict[str, keepsake.Native] = {}
    for part in message.content:
        if isinstance(part, requests.ReasoningContent) and part.provider_metadata:
            kept = keepsake.unpack(speaker, part.provider_metadata, "native")
            if kept and (pair := keepsake.native(kept)):
                found[str(part.provider_metadata.get("call_id"))] = pair
    return found


def _reasoning(
    part: requests.ReasoningContent, parts: list[theirs.ModelResponsePart], speaker: requests.Speaker
) -> None:
    packed = part.provider_metadata or {}
    thought = keepsake.unpack(speaker, packed, "thinking") if packed else {}
    if thought is not None:
        if part.text or thought:
            parts.append(theirs.ThinkingPart(part.text, **thought))
    elif (kept := keepsake.unpack(speaker, packed, "text")) is not None:
        if not (parts and isinstance(parts[-1], theirs.TextPart)):
            parts.append(theirs.TextPart(""))
        _restore(parts[-1], kept)
    elif (kept := keepsake.unpack(speaker, packed, "call")) is not None:
        for call in parts:
            if isinstance(call, theirs.ToolCallPart) and call.tool_call_id == packed.get("call_id"):
                _restore(call, kept)
    elif part.text:
        parts.append(theirs.TextPart(part.text))


def _restore(part: theirs.ModelResponsePart, kept: Mapping[str, Any]) -> None:
    for name, value in kept.items():
        setattr(part, name, value)


def _told(call: requests.CallContent, result: str) -> str:
    return f"[{call.name} was run by the provider with {json.dumps(call.input, ensure_ascii=False)}]\n{result}"
