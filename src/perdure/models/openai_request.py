"""A provider-neutral request, lowered to the body of a chat-completions request.

Lives here: one pure function over `core.request`, and the shapes only this wire format knows. Not here: HTTP, and what
comes back (`openai_stream.py`). The body's own keys win over `settings`: a setting can tune a request, never turn it
into another one.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from perdure.core import request as requests

Body = dict[str, Any]


def body(request: requests.Request, *, include_usage: bool = True, echo_reasoning: bool = False) -> Body:
    """Build the JSON body. `echo_reasoning` sends reasoning back under the field it came in, which few providers
    accept.
    """
    messages: list[Body] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        match message:
            case requests.UserMessage():
                messages.append({"role": "user", "content": _user_content(message)})
            case requests.AssistantMessage():
                if lowered := _assistant(message, echo_reasoning=echo_reasoning):
                    messages.append(lowered)
            case requests.ResultMessage():
                messages.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
    made: Body = {key: value for key, value in request.settings.items() if value is not None}
    made |= {"model": request.model, "messages": messages, "stream": True}
    if include_usage:
        made["stream_options"] = {"include_usage": True}
    if request.tools:
        made |= {"tools": [_tool(tool) for tool in request.tools], "tool_choice": request.tool_choice}
    return made


def _tool(tool: requests.ToolSpec) -> Body:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _user_content(message: requests.UserMessage) -> str | list[Body]:
    """Plain text wherever that is enough: not every server understands a list of parts."""
    texts = [part.text for part in message.content if isinstance(part, requests.TextContent)]
    if len(texts) == len(message.content):
        return "\n".join(texts)
    return [
        {"type": "text", "text": part.text} if isinstance(part, requests.TextContent) else _media(part)
        for part in message.content
    ]


def _media(part: requests.MediaContent) -> Body:
    if part.kind == "file" and (text := _readable(part)) is not None:
        heading = f"File {part.name}:\n" if part.name else ""
        return {"type": "text", "text": heading + text}
    url = f"data:{part.mime};base64,{base64.b64encode(part.data).decode()}"
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}


def _readable(part: requests.MediaContent) -> str | None:
    """The text of a file that is text; only some models take files, all of them read."""
    if not (part.mime.startswith("text/") or part.mime in {"application/json", "application/xml"}):
        return None
    try:
        return part.data.decode()
    except UnicodeDecodeError:
        return None


def _assistant(message: requests.AssistantMessage, *, echo_reasoning: bool) -> Body | None:
    text, calls, reasoning = "", list[Body](), dict[str, str]()
    for part in message.content:
        match part:
            case requests.TextContent():
                text += part.text
            case requests.CallContent():
                calls.append(_call(part))
            case requests.ReasoningContent():
                field = (part.provider_metadata or {}).get("field", "reasoning_content")
                reasoning[field] = reasoning.get(field, "") + part.text
    if not text and not calls:
        return None
    made: Body = {"role": "assistant", "content": text or None}
    if calls:
        made["tool_calls"] = calls
    return made | reasoning if echo_reasoning else made


def _call(call: requests.CallContent) -> Body:
    function = {"name": call.name, "arguments": msgspec.json.encode(call.input).decode()}
    return {"id": call.call_id, "type": "function", "function": function}
