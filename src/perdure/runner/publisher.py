"""From a model's stream to the facts of one step: the only writer of step facts (PUB-1).

Lives here: the order a stream must keep (PUB-2), open parts, live deltas, drafts, the moment each fact becomes durable.
Not here: what ends a step and what follows (`step.py`, `drain.py`). Facts are gathered in `pending` and become durable
together: at once where something waits for it (a call before it runs, a result while others still run), with the next
draft, or with the step's end, whichever comes first. So a plain answer costs the commit that ends it and nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from perdure import clock as clocks
from perdure import errors
from perdure.core import events, messages, text
from perdure.models import port
from perdure.runner import arguments
from perdure.runner.open_part import OpenCall, OpenPart
from perdure.store.context import DraftRow

DELTA_S = 0.05
# Snapshot to snapshot, so that with the commit behind it a crash loses at most 250 ms of what a reader saw (PUB-3).
DRAFT_MS = 200
_CALLED: dict[messages.PartKind, str] = {"text": "Text", "reasoning": "Reasoning", "tool": "Tool input"}


Growing = tuple["type[port.TextDelta | port.ReasoningDelta] | None", str, Callable[[str], object]]
"""What the last delta was, the id of its open part and what takes more of it, for as long as an announcement is due."""
NOTHING_GROWS: Growing = (None, "", len)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None] | None"]
"""Runs a coroutine as a task beside the step; None, and nothing runs, where the step is being given up."""


class Sink(Protocol):
    """Where a publisher's facts and signals go: the turn, fenced by its claim."""

    async def record(self, facts: Sequence[Any], drafts: Sequence[DraftRow], durable: Callable[[], None]) -> None:
        """Commit facts and drafts in one unit; `durable` is called once they are, even if the caller no longer waits."""
        ...

    def heard(self) -> bool:
        """Whether anybody would hear a signal now."""
        ...

    def announce(self, signal: Any) -> None:
        """Announce an ephemeral signal."""
        ...


class Publisher:
    """The facts of one assistant message."""

    def __init__(
        self,
        session_id: str,
        message_id: str,
        sink: Sink,
        clock: clocks.Clock,
        start: Callable[[str, str, str], Awaitable[None]],
        *,
        spawn: Spawn | None = None,
    ) -> None:
        """Publish for `message_id`; `start(call_id, name, input)` decides about a local call whose input is complete,
        `spawn` runs what keeps drafts beside the stream, once there is something to keep.
        """
        self.session_id, self.message_id = session_id, message_id
        self.pending: list[Any] = []
        self.finish: port.Finish | None = None
        self.visible = False
        self._sink, self._clock, self._start = sink, clock, start
        self._open: dict[tuple[messages.PartKind, str], OpenPart] = {}
        self._used: set[tuple[messages.PartKind, str]] = set()
        self._calls: dict[str, OpenCall] = {}
        self._flushing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._spawn, self._drafting = spawn, None
        self._growing = NOTHING_GROWS
        self._ended = False  # a part that readers saw ended, and is not durable yet

    # -- the stream --------------------------------------------------------------------------------------------------------

    async def read(self, stream: AsyncIterator[port.ModelEvent]) -> None:
        """Take a stream to its end. Raises what the stream does, and `ProviderOrder` for an event that cannot stand there."""
        event: Any
        async for event in stream:
            delta, part_id, add = self._growing
            if event.__class__ is delta and event.id == part_id:  # as of nearly every event
                add(event.text)
            elif (durable := self._on(event)) is not None:
                await durable

    def _on(self, event: port.ModelEvent) -> Awaitable[None] | None:
        """Take one event; what must be awaited before the next one, if anything: few events commit."""
        if self.finish:
            raise errors.ProviderOrder(f"{type(event).__name__} after the stream's end")
        match event:
            case port.TextDelta():
                self._growing = port.TextDelta, event.id, self._delta("text", event.id, event.text)
            case port.ReasoningDelta():
                self._growing = port.ReasoningDelta, event.id, self._delta("reasoning", event.id, event.text)
            case port.ToolInputDelta():
                self._delta("tool", event.call_id, event.text)
            case port.TextStart() | port.ReasoningStart():
                return self._part_start(event)
            case port.TextEnd() | port.ReasoningEnd():
                return self._part_end(event)
            case port.ToolInputStart():
                return self._input_start(event)
            case port.ToolInputEnd():
                return self._input_end(event)
            case port.ToolCall():
                return self._called(event)
            case port.ToolResult():
                return self._provider_result(event)
            case port.Finish():
                self.finish, self._growing = event, NOTHING_GROWS
        return None

    def _part_start(self, event: port.TextStart | port.ReasoningStart) -> None:
        kind: messages.PartKind = "text" if isinstance(event, port.TextStart) else "reasoning"
        if (kind, event.id) in self._used:
            raise errors.ProviderOrder(f"Duplicate {kind} start: {event.id}")
        self._begin(kind, event.id)
        if isinstance(event, port.TextStart):
            self._fact(events.TextStarted, text_id=event.id)
        else:
            self._fact(events.ReasoningStarted, reasoning_id=event.id)

    def _begin(self, kind: messages.PartKind, part_id: str) -> None:
        self._used.add((kind, part_id))
        self._open[kind, part_id] = OpenPart(kind, part_id)
        self.visible = True

    def _delta(self, kind: messages.PartKind, part_id: str, more: str) -> Callable[[str], object]:
        """Add to an open part, and see to it that what waits there is announced; what takes more until then."""
        part = self._open.get((kind, part_id))
        if part is None:
            raise errors.ProviderOrder(f"{_CALLED[kind]} delta before start: {part_id}")
        part.waiting.append(more)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELTA_S, self._announce_all)
        return part.waiting.append

    def _part_end(self, event: port.TextEnd | port.ReasoningEnd) -> None:
        kind: messages.PartKind = "text" if isinstance(event, port.TextEnd) else "reasoning"
        part = self._open.get((kind, event.id))
        if part is None:
            raise errors.ProviderOrder(f"{kind.capitalize()} end before start: {event.id}")
        metadata = event.provider_metadata if isinstance(event, port.ReasoningEnd) else None
        self._close(part, metadata)

    def _close(self, part: OpenPart, metadata: dict[str, Any] | None = None) -> None:
        """End an open part with its full text."""
        whole = part.text(ended=True)
        self._announce(part)
        self._ended = self._ended or bool(whole)
        self._growing = NOTHING_GROWS
        del self._open[part.kind, part.id]
        if part.kind == "text":
            self._fact(events.TextEnded, text_id=part.id, text=whole)
        elif part.kind == "reasoning":
            self._fact(events.ReasoningEnded, reasoning_id=part.id, text=whole, provider_metadata=metadata)
        else:
            self._fact(events.ToolInputEnded, call_id=part.id, text=whole)

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _input_start(self, event: port.ToolInputStart) -> None:
        if event.call_id in self._calls:
            raise errors.ProviderOrder(f"Duplicate tool input start: {event.call_id}")
        self._calls[event.call_id] = OpenCall(event.name)
        self._begin("tool", event.call_id)
        self._fact(events.ToolInputStarted, call_id=event.call_id, name=event.name)

    def _input_end(self, event: port.ToolInputEnd) -> None:
        part = self._open.get(("tool", event.call_id))
        if part is None:
            raise errors.ProviderOrder(f"Tool input end before start: {event.call_id}")
        self._calls[event.call_id].input = part.text(ended=True)
        self._calls[event.call_id].state = "written"
        self._close(part)

    async def _called(self, event: port.ToolCall) -> None:
        call = self._calls.get(event.call_id)
        if call is None or call.input is None:
            raise errors.ProviderOrder(f"Tool call before its input ended: {event.call_id}")
        if call.state != "written":
            raise errors.ProviderOrder(f"Tool called twice: {event.call_id}")
        if call.name != event.name:
            raise errors.ProviderOrder(f"Tool call {event.call_id} changed its name from {call.name} to {event.name}")
        if event.provider_executed:
            call.state, call.provider_executed = "running", True
            self._fact(
                events.ToolCalled,
                call_id=event.call_id,
                name=call.name,
                input=arguments.object_of(call.input) or {},
                effect="read",
                provider_executed=True,
            )
        else:
            await self._start(event.call_id, call.name, call.input)

    async def call(self, call_id: str, given: messages.JsonObject, effect: messages.Effect) -> None:
        """Make a local call durable; only then may it start."""
        call = self._calls[call_id]
        call.state = "running"
        self._fact(events.ToolCalled, call_id=call_id, name=call.name, input=given, effect=effect)
        await self.flush()

    async def ask(self, call_id: str, given: messages.JsonObject, deadline: int | None) -> None:
        """A local call waits for a person; durable at once, so that the question is seen while siblings still run."""
        self._calls[call_id].state = "waiting"
        self._fact(events.ToolApprovalRequested, call_id=call_id, input=given, deadline=deadline)
        await self.flush()

    def waiting(self) -> tuple[str, ...]:
        """Calls that wait for a person."""
        return tuple(call_id for call_id, call in self._calls.items() if call.state == "waiting")

    def take_up(self, call_id: str, name: str) -> None:
        """A call of this message that an earlier owner made durable runs here now."""
        self._calls[call_id] = OpenCall(name, "", "running")

    async def _provider_result(self, event: port.ToolResult) -> None:
        call = self._calls.get(event.call_id)
        if call is None or call.state in {"writing", "written"}:
            raise errors.ProviderOrder(f"Tool result before call: {event.call_id}")
        if call.state == "settled":
            if event.is_error:
                return
            raise errors.ProviderOrder(f"Tool result for a settled call: {event.call_id}")
        structured, _ = text.clean(event.structured)
        content = ({"type": "text", "text": text.clean_text(event.text)},)
        if event.is_error:
            await self.fail_call(event.call_id, messages.Failure("provider_tool_error", content[0]["text"]))
        else:
            await self.succeed_call(event.call_id, content, structured)

    async def succeed_call(
        self, call_id: str, content: tuple[messages.JsonObject, ...], structured: messages.JsonObject | None
    ) -> None:
        """A call gave its result."""
        self.settle_call(call_id, content, structured, None)
        await self._flush_while_others_run()

    async def fail_call(
        self,
        call_id: str,
        error: messages.Failure,
        content: tuple[messages.JsonObject, ...] = (),
        structured: messages.JsonObject | None = None,
    ) -> None:
        """A call failed, or never came to run."""
        self.settle_call(call_id, content, structured, error)
        await self._flush_while_others_run()

    def settle_call(
        self,
        call_id: str,
        content: tuple[messages.JsonObject, ...],
        structured: messages.JsonObject | None,
        error: messages.Failure | None,
    ) -> None:
        """The fact of a call's outcome, not durable yet. A failed call that gave nothing keeps what it showed last."""
        self._calls[call_id].state = "settled"
        if error is None:
            self._fact(events.ToolSucceeded, call_id=call_id, structured=structured, content=content)
        else:
            self._fact(events.ToolFailed, call_id=call_id, error=error, structured=structured, content=content or None)

    def show_progress(
        self, call_id: str, structured: messages.JsonObject | None, content: tuple[messages.JsonObject, ...]
    ) -> None:
        """The fact of what a running call shows, not durable yet."""
        if self._calls[call_id].state == "running":
            self._fact(events.ToolProgress, call_id=call_id, structured=structured, content=content)

    async def _flush_while_others_run(self) -> None:
        """A result is durable at once, unless the step ends with it: then its end takes it along (REC-9)."""
        if self.finish is None or any(call.state == "running" for call in self._calls.values()):
            await self.flush()

    # -- endings -----------------------------------------------------------------------------------------------------------

    def end_open(self, why: messages.Failure) -> list[tuple[str, str]]:
        """End what is open, fail what was never called, as a broken or interrupted stream leaves it (PUB-4).

        Answers id and name of the local calls that were never called.
        """
        self.stop_announcing()
        never: list[tuple[str, str]] = []
        for part in list(self._open.values()):
            self._close(part)
        for call_id, call in self._calls.items():
            # A call the provider runs has no task here that could still settle it.
            if call.state in {"writing", "written"} or (call.state == "running" and call.provider_executed):
                if not call.provider_executed:
                    never.append((call_id, call.name))
                call.state = "settled"
                self._fact(events.ToolFailed, call_id=call_id, error=why)
        return never

    def withdraw_questions(self, why: messages.Failure) -> None:
        """Nobody is to decide about calls of a step that fails: they are denied, and never run (APR-3)."""
        for call_id in self.waiting():
            self._calls[call_id].state = "settled"
            denied = {"decision": "deny", "by": "engine", "note": why.message}
            self._fact(events.ToolApprovalResolved, call_id=call_id, **denied)
            self._fact(events.ToolFailed, call_id=call_id, error=why)

    def snapshot(self) -> list[tuple[messages.PartKind, str, str]]:
        """Open text and reasoning as far as it was announced: what a reader that joins now starts from."""
        return [
            (part.kind, part.id, part.gathered[: part.announced]) for part in self._open.values() if part.kind != "tool"
        ]

    # -- durability --------------------------------------------------------------------------------------------------------

    async def flush(self, *, draft: bool = False) -> None:
        """Make pending facts durable, and with `draft` what readers have seen of open parts."""
        async with self._flushing:
            facts, self._ended = list(self.pending), False
            grown = [part for part in self._open.values() if part.grew()] if draft else []
            drafts = [DraftRow(self.message_id, part.id, part.kind, part.text()) for part in grown]

            def durable() -> None:
                del self.pending[: len(facts)]
                for part, row in zip(grown, drafts, strict=True):
                    part.drafted = len(row.text)

            if facts or drafts:
                await self._sink.record(facts, drafts, durable)

    async def draft(self) -> None:
        """Keep what readers see, until cancelled; the first of it was announced a moment ago."""
        due = self._clock.suspend_ms() + DRAFT_MS - int(DELTA_S * 1000)
        while True:
            await self._clock.sleep_ms(max(due - self._clock.suspend_ms(), 1))
            due = self._clock.suspend_ms() + DRAFT_MS
            if self._owes():
                await self.flush(draft=True)

    def _owes(self) -> bool:
        """Whether readers saw something that a crash would lose."""
        return self._ended or any(part.grew() for part in self._open.values())

    async def stop_drafting(self) -> None:
        """Keep no more drafts; one on its way takes pending facts along: they are not the end's any more."""
        self._spawn = None
        if self._drafting:
            self._drafting.cancel()
            await asyncio.wait({self._drafting})

    def _fact(self, kind: Callable[..., Any], **fields: Any) -> None:
        self.pending.append(kind(session_id=self.session_id, assistant_message_id=self.message_id, **fields))

    # -- live text ---------------------------------------------------------------------------------------------------------

    def _announce_all(self) -> None:
        self._timer, self._growing = None, NOTHING_GROWS
        for part in self._open.values():
            self._announce(part)
        if self._spawn and not self._drafting and self._owes():
            self._drafting = self._spawn(self.draft())

    def stop_announcing(self) -> None:
        """Announce what waits and start no further timer."""
        self._spawn = None
        if self._timer:
            self._timer.cancel()
        self._announce_all()

    def _announce(self, part: OpenPart) -> None:
        whole, offset = part.text(), part.announced
        if len(whole) == offset:
            return
        part.announced = len(whole)
        if not self._sink.heard():
            return
        common: dict[str, Any] = {
            "session_id": self.session_id,
            "assistant_message_id": self.message_id,
            "delta": whole[offset:],
            "offset": offset,
        }
        if part.kind == "text":
            self._sink.announce(events.TextDelta(text_id=part.id, **common))
        elif part.kind == "reasoning":
            self._sink.announce(events.ReasoningDelta(reasoning_id=part.id, **common))
        else:
            self._sink.announce(events.ToolInputDelta(call_id=part.id, **common))
