"""One step: a model call and the settlement of its tool calls, ending in a closed outcome.

Lives here: building the request, reading the stream, running local calls beside it, and the facts the step ends with.
Not here: committing those (its caller does, together with what follows), promotion, the end of a turn. Calls start
while the model still streams, run side by side, and all settle before the one terminal fact (RUN-3).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from perdure import agent as agents
from perdure import errors, telemetry
from perdure.core import events, lowering, messages, request
from perdure.log.unit import Unit
from perdure.models import port
from perdure.runner import approval, arguments, loops, publisher, spending, tool_progress, tools
from perdure.runner.turn import Approved, Turn
from perdure.session import claims
from perdure.store import claims as rows
from perdure.store import port as store

LAST_STEP = "This is the last step allowed: answer now, without calling tools."
CUT_SHORT = messages.Failure("incomplete", "The answer ended before this call was complete; nothing was called")
FILTERED = "The provider's content filter stopped the answer"
_logger = logging.getLogger("perdure.runner")


@dataclass(frozen=True, slots=True)
class Ended:
    """The step is complete; `owes` says that its calls want another step. `facts` end with its terminal fact."""

    facts: tuple[Any, ...]
    owes: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. `visible`: a reader saw something of it, so that it cannot simply be made again."""

    facts: tuple[Any, ...]
    failure: messages.Failure
    error: errors.ModelError | None = None
    visible: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Calls of the step wait for a person; everything else of it is settled, the step stays open."""

    facts: tuple[Any, ...]
    calls: tuple[str, ...]


Outcome = Ended | Failed | Waiting


async def run(turn: Turn) -> Outcome:
    """Run the step whose `step.started` is durable. Raises `ClaimLost`, `Interrupted` and cancellation; then nothing is
    settled.
    """
    step = _Step(turn)
    turn.publisher = step.publisher
    turn.parts.live[turn.session_id] = step.publisher
    try:
        return await _unwrapped(step)
    finally:
        step.publisher.stop_announcing()
        turn.parts.live.pop(turn.session_id, None)
        del step.publisher  # it knows the step too: what goes round in a circle waits for the garbage collector


async def _unwrapped(step: _Step) -> Outcome:
    """Run the step's tasks; of several failures the first that says how the turn goes on is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            outcome = await step.pipeline(group)
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    return outcome


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    lost, rest = group.split(errors.ClaimLost)
    error: BaseException = (lost or rest or group).exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", error)) if isinstance(error, BaseExceptionGroup) else error


class _Step:
    """The step while it runs."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.publisher = publisher.Publisher(
            turn.session_id, turn.message_id, turn, turn.parts.clock, self._start_call, spawn=self._spawn
        )
        self._group: asyncio.TaskGroup | None = None
        self._calls: list[asyncio.Task[None]] = []
        self._called = False
        self._results: dict[str, tuple[str, bool]] = {}

    async def pipeline(self, group: asyncio.TaskGroup) -> Outcome:
        """Stream, settle, end."""
        self._group = group
        if self.turn.resumed is not None:
            return await self._finish_resumed(group, self.turn.resumed)
        failure = await self._stream()
        if failure:
            self.publisher.end_open(self._words(failure))
            self.publisher.withdraw_questions(self._words(failure))
        await self._settle_calls()
        await self.publisher.stop_drafting()
        if failure:
            return self._fail(failure)
        return self._wait() if self.publisher.waiting() else self._end()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run something beside the stream, as long as the step goes on."""
        assert self._group is not None  # noqa: S101, set before the stream is read
        try:
            return self._group.create_task(work)
        except RuntimeError:  # another task of the group failed and the rest are being cancelled
            work.close()
            return None

    async def _finish_resumed(self, group: asyncio.TaskGroup, calls: tuple[Approved, ...]) -> Outcome:
        """Run exactly the approved calls, then end the step that asked for them; no model call in between (APR-2)."""
        self._called = True
        self.publisher.finish = port.Finish("tool_calls", messages.Tokens(), 0)
        self._results = await self._outcomes_before()
        for call in calls:
            self.publisher.take_up(call.call_id, call.name)
        for call in calls:
            self._results[call.call_id] = (loops.key(call.name, call.input), True)
            if call.name in self.turn.ready.toolbox:
                self._calls.append(group.create_task(self._run_call(call.call_id, call.name, call.input)))
            else:
                await self._refuse(call.call_id, "unknown_tool", f"There is no tool {call.name!r} any more")
        await self._settle_calls()
        return self._end()

    async def _outcomes_before(self) -> dict[str, tuple[str, bool]]:
        """The calls of this step in their order, and whether they failed before it was taken up again."""
        held = await self.turn.parts.histories.load(self.turn.session_id)
        message = held.freeze().message(self.turn.message_id)
        parts = message.parts if isinstance(message, messages.Assistant) else ()
        ids_of_calls = [part.call_id for part in parts if isinstance(part, messages.ToolPart)]
        return dict.fromkeys(ids_of_calls, ("", False)) | {
            part.call_id: outcome
            for part in parts
            if isinstance(part, messages.ToolPart)
            for outcome in loops.outcomes([part])
        }

    def _wait(self) -> Outcome:
        """Calls wait: what the model used so far is recorded now, as the step ends later and perhaps elsewhere."""
        finish = self.publisher.finish
        used = events.UsageRecorded(
            session_id=self.turn.session_id,
            source="step.waiting",
            tokens=finish.tokens if finish else None,
            cost=spending.cost(self.turn, finish),
        )
        return Waiting((*self.publisher.pending, used), self.publisher.waiting())

    # -- the stream --------------------------------------------------------------------------------------------------------

    async def _stream(self) -> Exception | None:
        """One attempt; what stopped it early, if anything."""
        model = self.turn.model
        with telemetry.chat(self.turn.session_id, model.provider, model.name) as span:
            failure = await self._read()
            if self.publisher.finish:
                finish = self.publisher.finish
                span.used(finish.reason, finish.tokens, spending.cost(self.turn, finish))
            if failure:
                span.failed(failure)
            return failure

    async def _read(self) -> Exception | None:
        """Read the whole stream."""
        try:
            asked = await self._request()
            async with aclosing(cast("Any", self.turn.model.stream(asked))) as stream:
                await self.publisher.read(stream)
        except (claims.Interrupted, errors.ClaimLost, errors.StoreError):
            raise
        except errors.PerdureError as error:
            if isinstance(error, errors.Defect):
                _logger.exception("step failed by a defect", extra={"session_id": self.turn.session_id})
            return error
        except Exception as error:
            _logger.exception("step failed by a defect", extra={"session_id": self.turn.session_id})
            return error
        if self.publisher.finish is None:
            return errors.ModelError(errors.ModelErrorKind.INCOMPLETE, "The model's stream ended without its end")
        if self.publisher.finish.reason == "content_filter":
            return errors.ModelError(errors.ModelErrorKind.CONTENT_FILTER, FILTERED)
        return None

    async def _request(self) -> request.Request:
        turn = self.turn
        held = await turn.parts.histories.current(turn.session_id)
        draft = turn.parts.histories.derived(turn.session_id, lowering.Lowering).draft(held, turn.speaker)
        if draft.problem:
            raise errors.Defect(draft.problem)
        content = await _read_content(turn, draft.hashes) if draft.hashes else {}
        lowered = draft.fill(content.get)
        if turn.last_step:
            lowered = (*lowered, request.UserMessage((request.TextContent(LAST_STEP),)))
        return request.Request(
            session_id=turn.session_id,
            model=turn.model.name,
            system=turn.baseline,
            messages=lowered,
            tools=tuple(bound.spec for bound in turn.ready.toolbox.values()),
            tool_choice="none" if turn.last_step else "auto",
            settings=turn.ready.agent.settings,
        )

    # -- calls -------------------------------------------------------------------------------------------------------------

    async def _start_call(self, call_id: str, name: str, raw: str) -> None:
        """Decide about a call whose input is complete: fail it at once, or make it durable and start it."""
        self._called = True
        bound = self.turn.ready.toolbox.get(name)
        given = arguments.object_of(raw)
        self._results[call_id] = (f"{name} {raw}" if given is None else loops.key(name, given), True)
        if self.turn.last_step:
            await self._refuse(call_id, "not_allowed", "No tool may be called in the last step")
        elif bound is None:
            known = ", ".join(self.turn.ready.toolbox) or "none"
            await self._refuse(call_id, "unknown_tool", f"There is no tool {name!r}; there are: {known}")
        elif given is None:
            await self._refuse(call_id, "invalid_arguments", "The arguments are not a JSON object, or name a key twice")
        else:
            await self._run_or_ask(call_id, bound.tool, given)

    async def _run_or_ask(self, call_id: str, tool: agents.Tool, given: messages.JsonObject) -> None:
        need = approval.need(tool, given, self.turn.policy, await self._unknown_calls())
        if need == "deny":
            await self._refuse(call_id, "denied", "The outcome of this very call is unknown; it may not be made again")
        elif need == "ask":
            wait = tool.approval_timeout_s
            deadline = None if wait is None else self.turn.parts.clock.now_ms() + int(wait * 1000)
            await self.publisher.ask(call_id, given, deadline)
        else:
            await self.publisher.call(call_id, given, tool.effect)
            assert self._group is not None  # noqa: S101, set before the stream is read
            self._calls.append(self._group.create_task(self._run_call(call_id, tool.name, given)))

    async def _unknown_calls(self) -> frozenset[str]:
        """Calls of the session whose outcome is unknown; looked up once a turn, as only a dead owner leaves new ones."""
        if self.turn.unknown is None:
            histories = self.turn.parts.histories
            held = await histories.current(self.turn.session_id)
            self.turn.unknown = histories.derived(self.turn.session_id, approval.UnknownCalls).of(held)
        return self.turn.unknown

    def _note_unknown(self, name: str, given: messages.JsonObject, error: messages.Failure) -> None:
        """A write call that ran out of time may have happened; from here on it counts as one of unknown outcome."""
        if error.type in approval.UNKNOWN and self.turn.unknown is not None:
            self.turn.unknown |= {loops.key(name, given)}

    async def _refuse(self, call_id: str, kind: str, words: str) -> None:
        await self.publisher.fail_call(call_id, messages.Failure(kind, words))

    async def _run_call(self, call_id: str, name: str, given: messages.JsonObject) -> None:
        turn, show = self.turn, functools.partial(self.publisher.show_progress, call_id)
        progress = tool_progress.Progress(turn.parts.clock, show, self.publisher.flush, self._spawn)
        context = agents.ToolContext(
            turn.session_id, call_id, turn.message_id, turn.held.owner_id, report=progress.report
        )

        def cut(result: tools.Result) -> None:
            progress.close()
            self.publisher.settle_call(call_id, result.content, result.structured, result.error)

        try:
            with telemetry.tool(turn.session_id, name, call_id) as span:
                bound = turn.ready.toolbox[name]
                result = await tools.run(bound, given, context, keep=self._keep, on_cut=cut, leaving=self._leaving)
                if result.error:
                    span.failed(result.error.type)
        finally:
            progress.close()
            progress.cancel()
        await progress.ended()  # what it was writing is durable now, and no longer waits
        if result.error:
            self._note_unknown(name, given, result.error)
            await self.publisher.fail_call(call_id, result.error, result.content, result.structured)
        else:
            self._results[call_id] = ("", False)
            await self.publisher.succeed_call(call_id, result.content, result.structured)

    def _leaving(self) -> bool:
        return self.turn.parts.claims.stopping

    async def _keep(self, data: bytes) -> str:
        """Bytes that are too many for the log, in the content table; fenced like everything a turn writes."""

        def work(unit: Unit, claim: rows.ClaimRow) -> str:
            digest = unit.tx.content.put(data)
            unit.tx.content.use(claim.session_id, digest)
            return digest

        return await self.turn.commit(work)

    async def _settle_calls(self) -> None:
        if self._calls:
            await asyncio.gather(*self._calls)

    # -- the end -----------------------------------------------------------------------------------------------------------

    def _end(self) -> Outcome:
        finish = self.publisher.finish
        assert finish is not None  # noqa: S101, `_stream` answers a failure otherwise
        for call_id, name in self.publisher.end_open(CUT_SHORT):
            self._called, self._results[call_id] = True, (f"{name} cut short", True)
        ended = events.StepEnded(
            session_id=self.turn.session_id,
            assistant_message_id=self.turn.message_id,
            finish=finish.reason,
            tokens=finish.tokens,
            cost=spending.cost(self.turn, finish),
        )
        self.turn.streak = loops.streak(self._results.values(), self.turn.streak)
        return Ended((*self.publisher.pending, ended), owes=self._called)

    def _fail(self, error: Exception) -> Outcome:
        """The attempt failed; where it told no usage and was not refused outright, that is said (RUN-8)."""
        failure, finish = self._words(error), self.publisher.finish
        failed = events.StepFailed(
            session_id=self.turn.session_id,
            assistant_message_id=self.turn.message_id,
            error=failure,
            tokens=finish.tokens if finish else None,
            cost=spending.cost(self.turn, finish),
        )
        nothing_used = finish is None and spending.refused(error, said=self.publisher.visible)
        lost = spending.nothing(finish) and not nothing_used
        unknown = [events.UsageRecorded(session_id=self.turn.session_id, source="step.failed")] if lost else []
        model_error = error if isinstance(error, errors.ModelError) else None
        return Failed((*self.publisher.pending, *unknown, failed), failure, model_error, self.publisher.visible)

    @staticmethod
    def _words(error: Exception) -> messages.Failure:
        if isinstance(error, errors.ModelError):
            return messages.Failure(error.kind.value, str(error))
        if isinstance(error, errors.PerdureError):
            return messages.Failure(error.type, str(error))
        return messages.Failure("defect", f"{type(error).__name__}: {error}")


async def _read_content(turn: Turn, hashes: frozenset[str]) -> dict[str, bytes]:
    def work(tx: store.Tx) -> dict[str, bytes]:
        return {digest: data for digest in hashes if (data := tx.content.get(digest)) is not None}

    return await turn.parts.log.store.read(work)
