"""The closed inventory of what can become true in a session.

Lives here: durable facts (`Fact`: sequenced, stored, replayable) and ephemeral signals (`Signal`: live only), two
unions of frozen values gathered from the declarations beside this file. Everyone says `events.StepEnded`. Not here:
JSON (`codec.py`), what a fact does to a transcript (`fold.py`) or to rows (`log/projections.py`).
"""

from __future__ import annotations

from perdure.core.event_kinds import (
    Announced,
    Definition,
    Event,
    Recorded,
    durable,
    ephemeral,
    replace,
)
from perdure.core.session_facts import (
    AgentSwitched,
    Budget,
    Changes,
    ExecutionEnded,
    ExecutionInterruptRequested,
    ExecutionParked,
    ExecutionResumed,
    ExecutionStarted,
    ModelSwitched,
    Origin,
    Policy,
    PromptAdmitted,
    PromptDeliveryChanged,
    PromptExecutionRequested,
    PromptPromoted,
    PromptRetried,
    PromptWithdrawn,
    Purpose,
    Retrying,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from perdure.core.step_facts import (
    CompactionDelta,
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    ContextUpdated,
    Phase,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    RetryScheduled,
    StepEnded,
    StepFailed,
    StepInterrupted,
    StepRecovered,
    StepStarted,
    SyntheticAdded,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCalled,
    ToolFailed,
    ToolInputDelta,
    ToolInputEnded,
    ToolInputStarted,
    ToolProgress,
    ToolSucceeded,
    UsageRecorded,
)

Fact = (
    SessionCreated
    | SessionUpdated
    | SessionDeleted
    | AgentSwitched
    | ModelSwitched
    | PromptAdmitted
    | PromptExecutionRequested
    | PromptPromoted
    | PromptWithdrawn
    | PromptDeliveryChanged
    | PromptRetried
    | ExecutionStarted
    | ExecutionInterruptRequested
    | ExecutionParked
    | ExecutionResumed
    | ExecutionEnded
    | StepStarted
    | StepEnded
    | StepFailed
    | StepInterrupted
    | StepRecovered
    | RetryScheduled
    | TextStarted
    | TextEnded
    | ReasoningStarted
    | ReasoningEnded
    | ToolInputStarted
    | ToolInputEnded
    | ToolCalled
    | ToolApprovalRequested
    | ToolApprovalResolved
    | ToolProgress
    | ToolSucceeded
    | ToolFailed
    | SyntheticAdded
    | ContextUpdated
    | CompactionStarted
    | CompactionEnded
    | CompactionFailed
    | UsageRecorded
)

Signal = TextDelta | ReasoningDelta | ToolInputDelta | CompactionDelta

__all__ = [
    "AgentSwitched",
    "Announced",
    "Budget",
    "Changes",
    "CompactionDelta",
    "CompactionEnded",
    "CompactionFailed",
    "CompactionStarted",
    "ContextUpdated",
    "Definition",
    "Event",
    "ExecutionEnded",
    "ExecutionInterruptRequested",
    "ExecutionParked",
    "ExecutionResumed",
    "ExecutionStarted",
    "Fact",
    "ModelSwitched",
    "Origin",
    "Phase",
    "Policy",
    "PromptAdmitted",
    "PromptDeliveryChanged",
    "PromptExecutionRequested",
    "PromptPromoted",
    "PromptRetried",
    "PromptWithdrawn",
    "Purpose",
    "ReasoningDelta",
    "ReasoningEnded",
    "ReasoningStarted",
    "Recorded",
    "RetryScheduled",
    "Retrying",
    "SessionCreated",
    "SessionDeleted",
    "SessionUpdated",
    "Signal",
    "StepEnded",
    "StepFailed",
    "StepInterrupted",
    "StepRecovered",
    "StepStarted",
    "SyntheticAdded",
    "TextDelta",
    "TextEnded",
    "TextStarted",
    "ToolApprovalRequested",
    "ToolApprovalResolved",
    "ToolCalled",
    "ToolFailed",
    "ToolInputDelta",
    "ToolInputEnded",
    "ToolInputStarted",
    "ToolProgress",
    "ToolSucceeded",
    "UsageRecorded",
    "durable",
    "ephemeral",
    "replace",
]
