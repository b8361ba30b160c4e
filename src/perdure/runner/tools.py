"""Running one tool call.

Lives here: from a durable call to what is recorded of it: arguments checked, the function run with its timeout, its
result made recordable and bounded. Not here: when a call may start (`publisher.py` waits for its fact), schemas
(`tools/function.py`). Whatever goes wrong is a result the model sees; only cancellation passes through.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from perdure import agent
from perdure.core import codec, messages, text
from perdure.tools import function

MAX_TEXT = 50_000
GRACE_S = 2.0
_logger = logging.getLogger("perdure.runner")


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave: content and perhaps structured data, or an error."""

    content: tuple[messages.JsonObject, ...] = ()
    structured: messages.JsonObject | None = None
    error: messages.Failure | None = None


Toolbox = Mapping[str, function.Bound]


def failed(kind: str, words: str) -> Result:
    """An error for the model."""
    return Result(error=messages.Failure(kind, text.clean_text(words)[:MAX_TEXT]))


async def run(bound: function.Bound, given: messages.JsonObject, context: agent.ToolContext) -> Result:
    """Run the call to its end. Raises only `CancelledError`, and then at most the grace period later."""
    try:
        arguments = bound.arguments(given, context)
    except function.BadArguments as error:
        return failed("invalid_arguments", f"The arguments do not fit: {error}")
    try:
        async with asyncio.timeout(bound.tool.timeout_s):
            value = await _call(bound.tool, arguments)
    except TimeoutError:
        return failed(
            "timeout", f"The tool gave no result within {bound.tool.timeout_s} s; what it did so far is unknown"
        )
    except asyncio.CancelledError:
        raise
    except Exception as error:
        _logger.warning("tool failed", extra={"tool": bound.tool.name, "call_id": context.call_id}, exc_info=True)
        return failed("tool_error", f"{type(error).__name__}: {error}")
    return of_value(value)


async def _call(tool: agent.Tool, arguments: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(tool.function):
        value = await asyncio.to_thread(tool.function, **arguments)
        return await value if inspect.isawaitable(value) else value
    task = asyncio.ensure_future(tool.function(**arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # A tool may refuse to be cancelled; the turn does not wait for it longer than this.
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
        task.add_done_callback(_forget)
        raise


def _forget(late: asyncio.Future[Any]) -> None:
    """Take the exception of a tool that ended after its turn, so that nobody is told of it twice."""
    if not late.cancelled():
        late.exception()


def of_value(value: Any) -> Result:
    """A Python value as a result: text for the model, structured data where it is an object."""
    if isinstance(value, Result):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    elif callable(dump := getattr(value, "model_dump", None)):
        value = dump(mode="json")
    cleaned, replaced = text.clean(value)
    structured = cast("messages.JsonObject", cleaned) if isinstance(cleaned, dict) else None
    words = cleaned if isinstance(cleaned, str) else ("" if cleaned is None else codec.dump(cleaned))
    return Result(_bounded(words, replaced=replaced), structured)


def _bounded(words: str, *, replaced: bool) -> tuple[messages.JsonObject, ...]:
    if len(words) > MAX_TEXT:
        words = f"{words[:MAX_TEXT]}\n[{len(words) - MAX_TEXT} more characters were cut off]"
    part: messages.JsonObject = {"type": "text", "text": words}
    return ({**part, "replaced": True} if replaced else part,)
