"""The one fold: what a fact does to a transcript.

Lives here: one small rule a fact and `changes(view, recorded)`, pure and total over `events.Fact`. A view answers five
small questions and is either a `Transcript` in memory or a transaction on rows (`log/projections.py`), so the very same
rules serve both and cannot drift apart (MSG-1), and no fact costs more than the parts it touches. Not here: SQL, the
inbox, what the model is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import ids
from perdure.core import events, lifecycle, messages
from perdure.core.value import replace
from perdure.core.view import Change, Insert, PutPart, Update, View

INTERRUPTED = "Tool execution interrupted"
TOOL_UNKNOWN = "Tool execution outcome unknown after server restart"
STEP_UNKNOWN = "Provider Step outcome unknown after server restart"
STEP_RESTARTED = "Session execution interrupted by server restart"


Recorded = events.Recorded[Any]
Rule = Callable[[View, Recorded], list[Change]]


def _current(view: View, message_id: str) -> messages.Assistant | None:
    """The current assistant, if it is the one named (MSG-4)."""
    newest = view.newest_assistant()
    return newest if newest and newest.id == message_id and newest.time.completed is None else None


# -- messages ----------------------------------------------------------------------------------------------------------------


def _nothing(view: View, recorded: Recorded) -> list[Change]:
    del view, recorded
    return []


def _promoted(view: View, recorded: Recorded) -> list[Change]:
    del view
    fact: events.PromptPromoted = recorded.data
    time = messages.MessageTime(fact.time_created)
    if fact.kind == "synthetic":
        return [Insert(messages.Synthetic(fact.message_id, recorded.seq, time, fact.prompt.text))]
    return [Insert(messages.User(fact.message_id, recorded.seq, time, fact.prompt, fact.delivery))]


def _agent_switched(view: View, recorded: Recorded) -> list[Change]:
    del view
    fact: events.AgentSwitched = recorded.data
    return [Insert(messages.AgentSwitched(fact.message_id, recorded.seq, _now(recorded), fact.agent))]


def _model_switched(view: View, recorded: Recorded) -> list[Change]:
    del view
    fact: events.ModelSwitched = recorded.data
    return [Insert(messages.ModelSwitched(fact.message_id, recorded.seq, _now(recorded), fact.model, fact.previous))]


def _synthetic(view: View, recorded: Recorded) -> list[Change]:
    del view
    return [Insert(messages.Synthetic(recorded.data.message_id, recorded.seq, _now(recorded), recorded.data.text))]


def _context_updated(view: View, recorded: Recorded) -> list[Change]:
    del view
    return [Insert(messages.System(recorded.data.message_id, recorded.seq, _now(recorded), recorded.data.text))]


def _now(recorded: Recorded) -> messages.MessageTime:
    return messages.MessageTime(recorded.created)


# -- steps -------------------------------------------------------------------------------------------------------------------


def _completed(message: messages.Assistant, at: int, **changes: Any) -> Update:
    time = messages.MessageTime(message.time.created, at)
    return Update(replace(message, time=time, retry=None, **changes))


def _step_started(view: View, recorded: Recorded) -> list[Change]:
    fact: events.StepStarted = recorded.data
    newest = view.newest_assistant()
    current = newest if newest and newest.time.completed is None else None
    if current and current.id == fact.assistant_message_id:
        return [Update(replace(current, retry=None))]
    if isinstance(view.message(fact.assistant_message_id), messages.Assistant):
        return []
    fresh = messages.Assistant(fact.assistant_message_id, recorded.seq, _now(recorded), fact.agent, fact.model)
    superseded: list[Change] = []
    if current:
        superseded = [Update(replace(current, time=messages.MessageTime(current.time.created, recorded.created)))]
    return [*superseded, Insert(fresh)]


def _step_ended(view: View, recorded: Recorded) -> list[Change]:
    fact: events.StepEnded = recorded.data
    current = _current(view, fact.assistant_message_id)
    if not current:
        return []
    return [_completed(current, recorded.created, finish=fact.finish, tokens=fact.tokens, cost=fact.cost)]


def _step_failed(view: View, recorded: Recorded) -> list[Change]:
    fact: events.StepFailed = recorded.data
    current = _current(view, fact.assistant_message_id)
    if not current:
        return []
    done = _completed(current, recorded.created, finish="error", error=fact.error, tokens=fact.tokens, cost=fact.cost)
    return [done]


def _step_interrupted(view: View, recorded: Recorded) -> list[Change]:
    fact: events.StepInterrupted = recorded.data
    current = _current(view, fact.assistant_message_id)
    if not current:
        return []
    closed = _close_tools(view, current.id, recorded.created, INTERRUPTED)
    return [_completed(current, recorded.created, finish="error", error=fact.error), *closed]


def _step_recovered(view: View, recorded: Recorded) -> list[Change]:
    fact: events.StepRecovered = recorded.data
    if fact.phase == "continue":
        return []
    text = STEP_UNKNOWN if fact.phase == "unknown" else STEP_RESTARTED
    if fact.assistant_message_id is None:
        message_id = ids.recovered_message(fact.execution_id)
        if view.message(message_id):
            return []
        return [Insert(messages.Synthetic(message_id, recorded.seq, _now(recorded), text))]
    current = _current(view, fact.assistant_message_id)
    if not current:
        return []
    notice = messages.TextPart(ids.recovered_part(fact.execution_id), text, ended=True)
    return [
        _completed(current, recorded.created, finish="error", error=messages.Failure("unknown", text)),
        *_close_tools(view, current.id, recorded.created, TOOL_UNKNOWN),
        PutPart(current.id, view.next_ordinal(current.id), notice),
    ]


def _retry_scheduled(view: View, recorded: Recorded) -> list[Change]:
    fact: events.RetryScheduled = recorded.data
    current = _current(view, fact.assistant_message_id)
    return [Update(replace(current, retry=messages.Retry(fact.attempt, fact.at, fact.error)))] if current else []


def _close_tools(view: View, message_id: str, at: int, text: str) -> list[Change]:
    """Open calls become errors: an object input is kept, raw text becomes `{}` (MSG-6, MSG-7)."""
    failure = messages.Failure("unknown", text)
    return [
        PutPart(message_id, ordinal, _settled(part, _error_state(part, failure), at))
        for ordinal, part in view.open_parts(message_id)
        if isinstance(part, messages.ToolPart) and _moved(part, "closed")
    ]


# -- text and reasoning ------------------------------------------------------------------------------------------------------


def _append(view: View, message_id: str, part: messages.Part) -> list[Change]:
    return [PutPart(message_id, view.next_ordinal(message_id), part)] if _current(view, message_id) else []


def _text_started(view: View, recorded: Recorded) -> list[Change]:
    fact: events.TextStarted = recorded.data
    return _append(view, fact.assistant_message_id, messages.TextPart(fact.text_id))


def _text_ended(view: View, recorded: Recorded) -> list[Change]:
    fact: events.TextEnded = recorded.data
    found = _owned(view, fact.assistant_message_id, "text", fact.text_id)
    if not found:
        return []
    part = messages.TextPart(fact.text_id, fact.text, ended=True)
    return [PutPart(fact.assistant_message_id, found[0], part)]


def _reasoning_started(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ReasoningStarted = recorded.data
    return _append(view, fact.assistant_message_id, messages.ReasoningPart(fact.reasoning_id))


def _reasoning_ended(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ReasoningEnded = recorded.data
    found = _owned(view, fact.assistant_message_id, "reasoning", fact.reasoning_id)
    if not found:
        return []
    part = messages.ReasoningPart(fact.reasoning_id, fact.text, fact.provider_metadata, ended=True)
    return [PutPart(fact.assistant_message_id, found[0], part)]


def _owned(view: View, message_id: str, kind: messages.PartKind, part_id: str) -> tuple[int, messages.Part] | None:
    return view.last_part(message_id, kind, part_id) if _current(view, message_id) else None


# -- tools -------------------------------------------------------------------------------------------------------------------


def _moved(part: messages.ToolPart, move: str) -> bool:
    return lifecycle.advance(lifecycle.TOOL, messages.tool_status(part), move) is not None


def _tool(view: View, recorded: Recorded, move: str) -> tuple[int, messages.ToolPart] | None:
    """The call a fact names, if it is the current assistant's and can take the move."""
    found = _owned(view, recorded.data.assistant_message_id, "tool", recorded.data.call_id)
    if found and isinstance(found[1], messages.ToolPart) and _moved(found[1], move):
        return found[0], found[1]
    return None


def _settled(part: messages.ToolPart, state: messages.ToolState, at: int) -> messages.ToolPart:
    return replace(part, state=state, time=messages.PartTime(part.time.created, part.time.ran, at))


def _input_started(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolInputStarted = recorded.data
    time = messages.PartTime(recorded.created)
    return _append(
        view, fact.assistant_message_id, messages.ToolPart(fact.call_id, fact.name, messages.Pending(), time)
    )


def _input_ended(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolInputEnded = recorded.data
    found = _tool(view, recorded, "input_ended")
    if not found:
        return []
    return [PutPart(fact.assistant_message_id, found[0], replace(found[1], state=messages.Pending(fact.text)))]


def _called(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolCalled = recorded.data
    found = _tool(view, recorded, "called")
    if not found:
        return []
    part = replace(
        found[1],
        name=fact.name,
        effect=fact.effect,
        provider_executed=fact.provider_executed,
        state=messages.Running(fact.input),
        time=messages.PartTime(found[1].time.created, recorded.created, found[1].time.completed),
    )
    return [PutPart(fact.assistant_message_id, found[0], part)]


def _approval_requested(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolApprovalRequested = recorded.data
    found = _tool(view, recorded, "approval_requested")
    if not found or found[1].approval:
        return []
    part = replace(found[1], approval=messages.Approval(fact.input, fact.deadline))
    return [PutPart(fact.assistant_message_id, found[0], part)]


def _approval_resolved(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolApprovalResolved = recorded.data
    found = _tool(view, recorded, "approval_resolved")
    if not found or not found[1].approval or found[1].approval.decision:
        return []
    asked = found[1].approval
    approval = messages.Approval(asked.input, asked.deadline, fact.decision, fact.by, fact.note)
    return [PutPart(fact.assistant_message_id, found[0], replace(found[1], approval=approval))]


def _progress(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolProgress = recorded.data
    found = _tool(view, recorded, "progress")
    if not found or not isinstance(found[1].state, messages.Running):
        return []
    state = messages.Running(found[1].state.input, fact.structured, fact.content)
    return [PutPart(fact.assistant_message_id, found[0], replace(found[1], state=state))]


def _succeeded(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolSucceeded = recorded.data
    found = _tool(view, recorded, "succeeded")
    if not found or not isinstance(found[1].state, messages.Running):
        return []
    state = messages.Completed(found[1].state.input, fact.structured, fact.content)
    return [PutPart(fact.assistant_message_id, found[0], _settled(found[1], state, recorded.created))]


def _failed(view: View, recorded: Recorded) -> list[Change]:
    fact: events.ToolFailed = recorded.data
    found = _tool(view, recorded, "failed")
    if not found:
        return []
    state = _error_state(found[1], fact.error)
    if fact.structured is not None:
        state = replace(state, structured=fact.structured)
    if fact.content is not None:
        state = replace(state, content=fact.content)
    return [PutPart(fact.assistant_message_id, found[0], _settled(found[1], state, recorded.created))]


def _error_state(part: messages.ToolPart, failure: messages.Failure) -> messages.Errored:
    if isinstance(part.state, messages.Running):
        return messages.Errored(part.state.input, failure, part.state.structured, part.state.content)
    return messages.Errored(part.approval.input if part.approval else {}, failure)


# -- compaction --------------------------------------------------------------------------------------------------------------


def _compaction_started(view: View, recorded: Recorded) -> list[Change]:
    del view
    fact: events.CompactionStarted = recorded.data
    return [Insert(messages.Compaction(fact.message_id, recorded.seq, _now(recorded), fact.reason))]


def _compaction(view: View, recorded: Recorded, **changes: Any) -> list[Change]:
    message = view.message(recorded.data.message_id)
    if not isinstance(message, messages.Compaction) or message.status != "running":
        return []
    time = messages.MessageTime(message.time.created, recorded.created)
    return [Update(replace(message, time=time, **changes))]


def _compaction_ended(view: View, recorded: Recorded) -> list[Change]:
    fact: events.CompactionEnded = recorded.data
    told = {"summary": fact.summary, "recent": fact.recent, "prompts": fact.prompts}
    return _compaction(view, recorded, status="completed", **told)


def _compaction_failed(view: View, recorded: Recorded) -> list[Change]:
    return _compaction(view, recorded, status="failed", error=recorded.data.error)


# -- the table---------------------------------------------------------------------------------------------------------------

RULES: dict[type[Any], Rule] = {
    events.SessionCreated: _nothing,
    events.SessionUpdated: _nothing,
    events.SessionDeleted: _nothing,
    events.AgentSwitched: _agent_switched,
    events.ModelSwitched: _model_switched,
    events.PromptAdmitted: _nothing,
    events.PromptExecutionRequested: _nothing,
    events.PromptPromoted: _promoted,
    events.PromptWithdrawn: _nothing,
    events.PromptDeliveryChanged: _nothing,
    events.PromptRetried: _nothing,
    events.ExecutionStarted: _nothing,
    events.ExecutionInterruptRequested: _nothing,
    events.ExecutionParked: _nothing,
    events.ExecutionResumed: _nothing,
    events.ExecutionEnded: _nothing,
    events.StepStarted: _step_started,
    events.StepEnded: _step_ended,
    events.StepFailed: _step_failed,
    events.StepInterrupted: _step_interrupted,
    events.StepRecovered: _step_recovered,
    events.RetryScheduled: _retry_scheduled,
    events.TextStarted: _text_started,
    events.TextEnded: _text_ended,
    events.ReasoningStarted: _reasoning_started,
    events.ReasoningEnded: _reasoning_ended,
    events.ToolInputStarted: _input_started,
    events.ToolInputEnded: _input_ended,
    events.ToolCalled: _called,
    events.ToolApprovalRequested: _approval_requested,
    events.ToolApprovalResolved: _approval_resolved,
    events.ToolProgress: _progress,
    events.ToolSucceeded: _succeeded,
    events.ToolFailed: _failed,
    events.SyntheticAdded: _synthetic,
    events.ContextUpdated: _context_updated,
    events.CompactionStarted: _compaction_started,
    events.CompactionEnded: _compaction_ended,
    events.CompactionFailed: _compaction_failed,
    events.UsageRecorded: _nothing,
}
"""One rule a fact; a test holds this table total over the union."""


def changes(view: View, recorded: Recorded) -> list[Change]:
    """What the fact changes in the transcript that `view` shows. Facts of other aggregates change nothing."""
    kind: type[Any] = recorded.data.__class__
    rule = RULES.get(kind)
    return rule(view, recorded) if rule else []
