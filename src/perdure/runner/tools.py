"""Running one tool call.

Lives here: from a durable call to what is recorded of it: arguments checked, the function run with its timeout, and how
it is stopped. Not here: when a call may start (`publisher.py` waits for its fact), schemas (`tools/function.py`), what a
value looks like in the log (`tool_results.py`), what a call shows meanwhile (`tool_progress.py`). Whatever goes wrong is
a result the model sees; only cancellation passes through, at most the grace period later, whatever the tool does.

A synchronous function gets a thread of its own: no pool that a few hung tools could fill, and a daemon, so that one
which never returns does not hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from perdure import agent
from perdure.core import messages
from perdure.runner import arguments, tool_results
from perdure.runner.tool_results import Result, failed
from perdure.tools import function

GRACE_S = 2.0
# Where the whole engine stops: long enough to end a command's processes, and within a second after the grace of steps.
LEAVING_S = 0.75
_logger = logging.getLogger("perdure.runner")

Toolbox = Mapping[str, function.Bound]


class Escaped(Exception):
    """A tool raised what must not leave it, such as SystemExit."""


async def run(
    bound: function.Bound,
    given: messages.JsonObject,
    context: agent.ToolContext,
    *,
    keep: tool_results.Keep | None = None,
    on_cut: Callable[[Result], None] | None = None,
    leaving: Callable[[], bool] | None = None,
) -> Result:
    """Run the call to its end. Raises only `CancelledError`, and then at most the grace period later.

    `keep` stores bytes that are too many for the log; `on_cut` hears of a result that came while the call was being
    stopped, before the cancellation goes on. `leaving` says whether the engine stops, which has less time.
    """
    try:
        named = bound.arguments(arguments.copied(given), context)
    except function.BadArguments as error:
        return failed("invalid_arguments", f"The arguments do not fit: {error}")
    until = None if bound.tool.timeout_s is None else asyncio.get_running_loop().time() + bound.tool.timeout_s
    running = _start(bound.tool.function, named)
    try:
        if not await _ended(running, until):
            await _stop(running, context, GRACE_S)
            late = "it was stopped" if running.done() else "it does not stop"
            return failed(
                "timeout", f"The tool gave no result within {bound.tool.timeout_s} s, {late}; what it did is unknown"
            )
    except asyncio.CancelledError:
        await _stop(running, context, LEAVING_S if leaving and leaving() else GRACE_S)
        if on_cut and running.done() and not running.cancelled() and not running.exception():
            on_cut(await tool_results.of_value(running.result(), None))
        raise
    return await _outcome(running, bound.tool.name, context, keep)


async def _outcome(
    ended: asyncio.Future[Any], name: str, context: agent.ToolContext, keep: tool_results.Keep | None
) -> Result:
    """What a call that ended by itself gave."""
    if ended.cancelled():
        return failed("tool_error", "The tool cancelled itself")
    error = ended.exception()
    if isinstance(error, agent.ToolError):
        return failed("tool_error", str(error))
    if error:
        _logger.warning("tool failed", extra={"tool": name, "call_id": context.call_id}, exc_info=error)
        words = str(error) if isinstance(error, Escaped) else tool_results.words_of(error)
        return failed("tool_error", words)
    return await tool_results.of_value(ended.result(), keep)


async def _ended(running: asyncio.Future[Any], until: float | None) -> bool:
    """Wait for the end without passing on a cancellation; False at the time-out."""
    timeout = None if until is None else max(until - asyncio.get_running_loop().time(), 0)
    done, _ = await asyncio.wait({running}, timeout=timeout)
    return bool(done)


async def _stop(running: asyncio.Future[Any], context: agent.ToolContext, grace_s: float) -> None:
    """Ask the call to stop; nobody waits for it longer than that."""
    context.cancelled.set()
    if not running.done():
        running.cancel()
        try:
            await asyncio.wait({running}, timeout=grace_s)
        finally:
            running.add_done_callback(_forget)


def _forget(late: asyncio.Future[Any]) -> None:
    """Take the exception of a tool that ended after its call, so that nobody is told of it twice."""
    if not late.cancelled():
        late.exception()


# -- starting ----------------------------------------------------------------------------------------------------------------


class _ThreadEnd(asyncio.Future[Any]):
    """The end of a thread, which no cancellation brings about."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse."""
        return False


def _start(function: agent.Function, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """The function's end, as a future of its own: no cancellation of the caller is mixed up with the tool's."""
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None)):  # noqa: B004
        return asyncio.ensure_future(_contained(function(**arguments)))
    return _in_thread(function, arguments)


async def _contained(awaitable: Awaitable[Any]) -> Any:
    """Await it; what would end the event loop becomes an ordinary error."""
    try:
        return await awaitable
    except (SystemExit, GeneratorExit) as error:
        raise Escaped(tool_results.words_of(error)) from error


def _in_thread(function: agent.Function, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """Run a synchronous function in a daemon thread with the caller's context variables."""
    loop = asyncio.get_running_loop()
    end = _ThreadEnd(loop=loop)
    context = contextvars.copy_context()

    def body() -> None:
        try:
            value = context.run(function, **arguments)
        except BaseException as error:  # noqa: BLE001, whatever it is, it is the tool's
            ordinary = isinstance(error, Exception) and not isinstance(error, StopIteration)
            tell(end.set_exception, error if ordinary else Escaped(tool_results.words_of(error)))
        else:
            tell(end.set_result, value)

    def tell(settle: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(settle, value)

    threading.Thread(target=body, name=f"perdure tool {getattr(function, '__name__', '')}", daemon=True).start()
    return end
