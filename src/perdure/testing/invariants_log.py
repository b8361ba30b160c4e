"""What must hold of the order of a session's facts, read from the log alone.

Lives here: one pass over the facts that keeps what is open and names every fact that may not stand where it stands. Not
here: rows and the world outside (`invariants.py`, which is the door).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure import ids
from perdure.core import events

Facts = Sequence[events.Recorded[Any]]
TERMINAL = (events.StepEnded, events.StepFailed, events.StepInterrupted)


def problems(log: Facts) -> list[str]:
    """What may not be so at any time."""
    return _walked(log).wrong


def unfinished(log: Facts) -> Iterator[str]:
    """What may not be so once all is quiet."""
    walk = _walked(log)
    if walk.open:
        yield f"REC-11 execution {walk.open} has neither an end nor a recovery"
    if walk.recovered:
        yield f"REC-11 execution {walk.recovered} was recovered, and nothing settles what it ran"
    for message_id in walk.running:
        yield f"IN-12 {message_id} was promoted and has no outcome"


@dataclass
class _Walk:
    """Where a session stands after some facts. `recovered` is a dead execution whose prompts nobody settled yet; `cut` an
    execution that somebody interrupted, until its end.
    """

    wrong: list[str] = field(default_factory=list[str])
    open: str | None = None
    parked: bool = False
    compacting: bool = False
    recovered: str | None = None
    cut: str | None = None
    started: set[str] = field(default_factory=set[str])
    ended: set[str] = field(default_factory=set[str])
    running: dict[str, bool] = field(default_factory=dict[str, bool])
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    runs: dict[str, int] = field(default_factory=dict[str, int])
    targets: dict[str, str] = field(default_factory=dict[str, str])
    closed: set[str] = field(default_factory=set[str])
    calls: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def says(self, words: str) -> None:
        self.wrong.append(words)


def _walked(log: Facts) -> _Walk:
    walk = _Walk()
    for recorded in log:
        before = len(walk.wrong)
        _inbox(walk, recorded.data)
        _execution(walk, recorded.data)
        _steps(walk, recorded.data)
        walk.wrong[before:] = [f"{words} (seq {recorded.seq})" for words in walk.wrong[before:]]
    return walk


# -- inbox -------------------------------------------------------------------------------------------------------------------


def _inbox(walk: _Walk, fact: Any) -> None:
    """Each input is promoted at most once, and each run of a prompt has one outcome (IN-8, IN-12)."""
    match fact:
        case events.PromptAdmitted():
            walk.runs.setdefault(fact.message_id, 1)
            continuing = fact.message_id.startswith(ids.RESERVED[1])
            if continuing and fact.message_id != ids.continue_message(walk.recovered or ""):
                walk.says(f"REC-2 continuation {fact.message_id} of no recovery")
        case events.PromptPromoted():
            if fact.message_id in walk.running or walk.outcomes.get(fact.message_id):
                walk.says(f"IN-8 {fact.message_id} is promoted again")
            if walk.cut:
                walk.says(f"EX-8 {fact.message_id} joins a turn that was interrupted")
            walk.running[fact.message_id] = False
        case events.PromptWithdrawn():
            if fact.message_id in walk.running:
                walk.says(f"IN-12 {fact.message_id} is withdrawn though it runs")
            _outcome(walk, fact.message_id)
            if (target := walk.targets.get(fact.message_id)) and _lacks_outcome(walk, target):
                _outcome(walk, target)
        case events.PromptRetried():
            walk.runs[fact.message_id] = walk.runs.get(fact.message_id, 1) + 1
            if fact.retry_message_id:
                walk.targets[fact.retry_message_id] = fact.message_id
            else:
                walk.outcomes.pop(fact.message_id, None)
                walk.runs[fact.message_id] = 1
        case _:
            pass


def _lacks_outcome(walk: _Walk, message_id: str) -> bool:
    return walk.outcomes.get(message_id, 0) < walk.runs.get(message_id, 1)


def _outcome(walk: _Walk, message_id: str) -> None:
    walk.running.pop(message_id, None)
    if not _lacks_outcome(walk, message_id):
        walk.says(f"IN-12 {message_id} has a second outcome in one run")
    walk.outcomes[message_id] = walk.outcomes.get(message_id, 0) + 1


# -- executions --------------------------------------------------------------------------------------------------------------


def _execution(walk: _Walk, fact: Any) -> None:
    """One open turn at most, closed once; an interrupted one never goes on (EX-1, EX-8, REC-11)."""
    match fact:
        case events.ExecutionStarted():
            if walk.open:
                walk.says(f"EX-1 {fact.execution_id} starts while {walk.open} is open")
            if fact.execution_id in walk.started:
                walk.says(f"EX-1 {fact.execution_id} starts twice")
            if walk.cut:
                walk.says(f"EX-8 {fact.execution_id} starts before {walk.cut}, which was interrupted, has ended")
            walk.started.add(fact.execution_id)
            walk.open, walk.parked = fact.execution_id, False
            walk.compacting = fact.purpose == "compaction"
        case events.ExecutionInterruptRequested():
            walk.cut = walk.open or walk.recovered
        case events.ExecutionParked() | events.ExecutionResumed():
            resumed = isinstance(fact, events.ExecutionResumed)
            if fact.execution_id != walk.open or walk.parked is not resumed:
                walk.says(f"APR-1 {fact.execution_id} is {'resumed' if resumed else 'parked'} and was not open so")
            if walk.cut:
                walk.says(f"EX-8 {fact.execution_id} was interrupted and goes on")
            walk.parked = not resumed
        case events.StepRecovered():
            _close(walk, fact.execution_id)
            if walk.cut == fact.execution_id:
                walk.says(f"EX-8 {fact.execution_id} was interrupted and is to be continued")
            walk.recovered = fact.execution_id
        case events.ExecutionEnded():
            _ended(walk, fact)
        case _:
            pass


def _close(walk: _Walk, execution_id: str) -> None:
    if execution_id == walk.open:
        walk.open, walk.parked = None, False
    elif execution_id != walk.recovered:
        walk.says(f"REC-11 {execution_id} is closed and was not open")


def _ended(walk: _Walk, fact: events.ExecutionEnded) -> None:
    _close(walk, fact.execution_id)
    if fact.execution_id in walk.ended:
        walk.says(f"REC-11 {fact.execution_id} ends twice")
    walk.ended.add(fact.execution_id)
    if walk.cut == fact.execution_id and fact.outcome != "interrupted":
        walk.says(f"EX-8 {fact.execution_id} was interrupted and ends {fact.outcome}")
    walk.cut = None
    for message_id in fact.message_ids:
        if message_id not in walk.running and message_id not in walk.targets.values():
            walk.says(f"IN-12 {message_id} is settled by a turn that it was not part of")
        elif fact.outcome == "succeeded" and not walk.running.get(message_id, True):
            walk.says(f"IN-12 {message_id} succeeded and the model was not asked since it joined")
        _outcome(walk, message_id)
    if not walk.compacting:
        for message_id in walk.running:
            walk.says(f"IN-12 {message_id} ran in {fact.execution_id} and is not settled by its end")
        walk.recovered = None
    walk.compacting = False


# -- steps -------------------------------------------------------------------------------------------------------------------


def _steps(walk: _Walk, fact: Any) -> None:
    """One end a step, one start and one end a call; nothing of a step outside a turn (RUN-3, MSG-3, MSG-4)."""
    match fact:
        case events.StepStarted():
            if walk.open is None or walk.parked or walk.compacting:
                walk.says(f"EX-4 step {fact.assistant_message_id} starts outside a turn")
            if walk.cut:
                walk.says(f"EX-8 a step starts in {walk.cut}, which was interrupted")
            walk.running = dict.fromkeys(walk.running, True)
        case events.StepEnded() | events.StepFailed() | events.StepInterrupted():
            _terminal(walk, fact.assistant_message_id)
        case events.StepRecovered() if fact.assistant_message_id:
            _terminal(walk, fact.assistant_message_id)
        case events.ToolCalled() | events.ToolSucceeded() | events.ToolFailed():
            _call(walk, fact)
        case _:
            pass


def _terminal(walk: _Walk, message_id: str) -> None:
    if message_id in walk.closed:
        walk.says(f"RUN-3 step {message_id} ends twice")
    walk.closed.add(message_id)


def _call(walk: _Walk, fact: Any) -> None:
    key = (fact.assistant_message_id, fact.call_id)
    was = walk.calls.get(key)
    if isinstance(fact, events.ToolCalled):
        if was:
            walk.says(f"REC-8 call {key} is made twice")
        if walk.cut:
            walk.says(f"EX-8 call {key} is made in {walk.cut}, which was interrupted")
        walk.calls[key] = "called"
    elif was == "settled":
        walk.says(f"MSG-3 call {key} is settled twice")
    else:
        if was is None and isinstance(fact, events.ToolSucceeded):
            walk.says(f"MSG-3 call {key} succeeds and was never made")
        walk.calls[key] = "settled"
    if fact.assistant_message_id in walk.closed:
        walk.says(f"MSG-4 call {key} moves after its step has ended")
