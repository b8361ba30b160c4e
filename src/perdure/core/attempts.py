"""Every request to a provider that a log tells of, and what each used: pure (RUN-8).

Lives here: `Attempts`, a fold from facts to the attempts they are about. Nothing of it is stored; it is read when somebody
asks. An attempt begins with `step.started` or `compaction.started` and ends with a fact of its message; what
`usage.recorded` says is the latest attempt's of its kind, so that all attempts together used what the session's totals
say. Not here: reading the log (`session/attempts.py`), totals (`projection.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from perdure.core import events, messages

Kind = Literal["step", "summary"]
AttemptOutcome = Literal["running", "succeeded", "failed", "interrupted", "unknown"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request: for which message, the how many-th for it, and how it ended. `seq` and `time_created` (epoch ms) are
    those of the fact it began with; `unknown` died with its owner. A step that waits for people stays `running`.
    """

    kind: Kind
    message_id: str
    number: int
    seq: int
    time_created: int
    outcome: AttemptOutcome = "running"
    usage: messages.Usage = field(default_factory=messages.Usage)
    model: str | None = None
    error: messages.Failure | None = None
    time_ended: int | None = None


class Attempts:
    """Attempts in the order they began, while facts are told in theirs."""

    __slots__ = ("_latest", "found")

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.found: list[Attempt] = []
        self._latest: dict[Kind, int] = {}

    def apply(self, recorded: events.Recorded[Any]) -> None:
        """One more fact; most say nothing of attempts."""
        fact = recorded.data
        if isinstance(fact, events.StepStarted):
            self._close(recorded, "step", "failed")
            self._begin(recorded, "step", fact.assistant_message_id, fact.model)
        elif isinstance(fact, events.CompactionStarted):
            self._close(recorded, "step", "failed")  # it did not fit, and is made again behind the summary
            self._begin(recorded, "summary", fact.message_id)
        elif isinstance(fact, events.UsageRecorded):
            self._count(recorded, fact)
        elif isinstance(fact, events.CompactionEnded):
            self._close(recorded, "summary", "succeeded", fact.message_id)
        elif isinstance(fact, events.CompactionFailed):
            outcome = "interrupted" if fact.error.type == "interrupted" else "failed"
            self._close(recorded, "summary", outcome, fact.message_id, error=fact.error)
        else:
            self._step(recorded, fact)

    def _step(self, recorded: events.Recorded[Any], fact: Any) -> None:
        if isinstance(fact, events.StepEnded | events.StepFailed):
            error = fact.error if isinstance(fact, events.StepFailed) else None
            told = error is None or not (fact.tokens is None and fact.cost is None)
            used = messages.usage_of(fact.tokens, fact.cost) if told else None
            outcome = "failed" if error else "succeeded"
            self._close(recorded, "step", outcome, fact.assistant_message_id, error=error, used=used)
        elif isinstance(fact, events.RetryScheduled):
            self._close(recorded, "step", "failed", fact.assistant_message_id, error=fact.error)
        elif isinstance(fact, events.StepInterrupted):
            self._close(recorded, "step", "interrupted", fact.assistant_message_id, error=fact.error)
        elif isinstance(fact, events.StepRecovered) and fact.assistant_message_id:
            self._close(recorded, "step", "unknown", fact.assistant_message_id)

    def starts(self, recorded: events.Recorded[Any]) -> bool:
        """Whether a fact begins something of its own: all that was told before is complete then."""
        fact = recorded.data
        step = self._of("step")
        if isinstance(fact, events.StepStarted):
            return step is None or step.message_id != fact.assistant_message_id
        return isinstance(fact, events.CompactionStarted) and (step is None or step.outcome != "running")

    def _of(self, kind: Kind) -> Attempt | None:
        return self.found[self._latest[kind]] if kind in self._latest else None

    def _begin(self, recorded: events.Recorded[Any], kind: Kind, message_id: str, model: str | None = None) -> None:
        before = self._of(kind)
        number = before.number + 1 if before and before.message_id == message_id else 1
        self._latest[kind] = len(self.found)
        self.found.append(Attempt(kind, message_id, number, recorded.seq, recorded.created, model=model))

    def _close(
        self,
        recorded: events.Recorded[Any],
        kind: Kind,
        outcome: AttemptOutcome,
        message_id: str | None = None,
        *,
        error: messages.Failure | None = None,
        used: messages.Usage | None = None,
    ) -> None:
        """End the latest attempt of a kind, if it still runs and is that message's."""
        one = self._of(kind)
        if one is None or one.outcome != "running" or message_id not in {None, one.message_id}:
            return
        usage = one.usage.plus(used) if used else one.usage
        ended = replace(one, outcome=outcome, usage=usage, error=error, time_ended=recorded.created)
        self.found[self._latest[kind]] = ended

    def _count(self, recorded: events.Recorded[Any], fact: events.UsageRecorded) -> None:
        kind: Kind = "summary" if fact.source.startswith("compaction") else "step"
        if (one := self._of(kind)) is None:
            self._begin(recorded, kind, "")
            self._close(recorded, kind, "unknown", used=messages.usage_of(fact.tokens, fact.cost))
            return
        self.found[self._latest[kind]] = replace(one, usage=one.usage.plus(messages.usage_of(fact.tokens, fact.cost)))
        if fact.source == "compaction.retried":
            self._close(recorded, kind, "failed")
            self._begin(recorded, kind, one.message_id)
