"""The server in numbers, as Prometheus reads them.

Lives here: counting facts as they are committed here, and the exposition of everything that is counted. Not here: spans
and logs (`telemetry.py`). On the write path stands one look-up by the fact's class; all else is found out when somebody asks.
The numbers are this process's, those of the database aside, which are the same from every process: sessions by status and
recoveries that wait.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from perdure.core import answers, events, messages
from perdure.engine import engine as engines
from perdure.session import recoveries, status
from perdure.version import VERSION

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MODELS = 200
"""How many models are told apart; a caller may name any, and each is a series for ever."""

SESSIONS = 10_000
"""Of how many sessions, the latest, it is known whose step runs."""

OTHER = "other"
_NOT_ASKED = ("msg_continue_", "msg_retry_")


class Counts:
    """What facts add up to since the process started."""

    def __init__(self) -> None:
        """Nothing was heard yet."""
        self.prompts: Counter[str] = Counter()
        self.recovered: Counter[str] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.cost: Counter[str] = Counter()
        self.steps: Counter[tuple[str, str]] = Counter()
        self._models: set[str] = set()
        self._speaking: OrderedDict[str, str] = OrderedDict()
        self._table: dict[type[Any], Callable[[Any], object]] = {
            events.StepStarted: self._step_started,
            events.StepEnded: self._step_ended,
            events.StepFailed: self._step_ended,
            events.UsageRecorded: self._used,
            events.StepRecovered: self._recovered,
            events.ExecutionEnded: self._execution_ended,
            events.PromptWithdrawn: self._withdrawn,
        }

    def heard(self, facts: Sequence[events.Recorded[Any]]) -> None:
        """Count them."""
        for event in facts:
            if count := self._table.get(event.data.__class__):
                count(event.data)

    def _step_started(self, fact: events.StepStarted) -> None:
        model = fact.model
        if model not in self._models and len(self._models) >= MODELS:
            model = OTHER
        self._models.add(model)
        self._speaking[fact.session_id] = model
        self._speaking.move_to_end(fact.session_id)
        if len(self._speaking) > SESSIONS:
            self._speaking.popitem(last=False)

    def _step_ended(self, fact: events.StepEnded | events.StepFailed) -> None:
        model = self._used(fact)
        self.steps[model, "failed" if isinstance(fact, events.StepFailed) else "ended"] += 1

    def _used(self, fact: events.StepEnded | events.StepFailed | events.UsageRecorded) -> str:
        model = self._speaking.get(fact.session_id, OTHER)
        if fact.tokens:
            for kind in messages.Tokens.__slots__:
                self.tokens[model, kind] += getattr(fact.tokens, kind)
        self.cost[model] += fact.cost or 0
        return model

    def _recovered(self, fact: events.StepRecovered) -> None:
        self.recovered[fact.phase] += 1

    def _execution_ended(self, fact: events.ExecutionEnded) -> None:
        self.prompts[fact.outcome] += sum(not one.startswith(_NOT_ASKED) for one in fact.message_ids)

    def _withdrawn(self, fact: events.PromptWithdrawn) -> None:
        if not fact.message_id.startswith(_NOT_ASKED):
            self.prompts[fact.reason] += 1


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database says when it is asked."""

    sessions: dict[answers.State, int]
    waiting: Counter[str]


async def stored(engine: engines.Engine) -> Stored:
    """Ask the database; the work is bounded whatever it holds, a count of its sessions aside."""
    now, budget, blocked = engine.world.clock.now_ms(), engine.settings.recovery_budget, {**engine.parts.blocked}
    tally, waiting = await engine.store.read(
        lambda tx: (status.tally(tx, now, budget=budget, blocked=blocked), recoveries.listed(tx))
    )
    return Stored(tally, Counter(one.phase for one in waiting))


def exposition(engine: engines.Engine, counts: Counts, readers: Counter[str], found: Stored) -> bytes:
    """Everything, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_database(found), *_process(engine, readers), *_writer(engine), *_facts(counts)]))
    return generate_latest(registry)


class _Collected:
    """Metrics that were collected before anybody asked."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._found


def _gauge(name: str, about: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    made = GaugeMetricFamily(name, about, labels=[label])
    for value, number in values:
        made.add_metric([value], number)
    return made


def _counter(name: str, about: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    made = CounterMetricFamily(name, about, labels=labels)
    for value, number in sorted(values):
        made.add_metric(value, number)
    return made


def _database(found: Stored) -> Iterator[Metric]:
    yield _gauge("perdure_sessions", "Sessions by status.", "status", found.sessions.items())
    waiting = [(phase, found.waiting[phase]) for phase in ("ready", "unknown", "continue")]
    yield _gauge("perdure_recoveries_waiting", "Turns that lost their owner and wait, by phase.", "phase", waiting)


def _process(engine: engines.Engine, readers: Counter[str]) -> Iterator[Metric]:
    info = GaugeMetricFamily("perdure_info", "The process.", labels=["version", "epoch"])
    info.add_metric([VERSION, engine.epoch], 1)
    yield info
    yield GaugeMetricFamily("perdure_drains_active", "Sessions that run here.", value=len(engine.coordinator.active()))
    streams = [(kind, readers[kind]) for kind in ("session", "all")]
    yield _gauge("perdure_stream_readers", "Open event streams, of one session or of all.", "of", streams)
    yield CounterMetricFamily("perdure_claims_lost", "Claims this process lost.", value=engine.claims.losses)


def _writer(engine: engines.Engine) -> Iterator[Metric]:
    measured = engine.store.meter
    ends = [*(str(bound) for bound in measured.bounds), "+Inf"]
    counts = itertools.accumulate(measured.counts)
    yield HistogramMetricFamily(
        "perdure_commit_seconds",
        "Physical commits of the store's writer.",
        buckets=list(zip(ends, counts, strict=True)),
        sum_value=measured.seconds,
    )
    yield CounterMetricFamily("perdure_commit_units", "Units of work those carried.", value=measured.units)
    yield GaugeMetricFamily("perdure_writer_queue", "Units that wait for the store's writer.", value=measured.queued())


def _facts(counts: Counts) -> Iterator[Metric]:
    prompts = [((outcome,), number) for outcome, number in counts.prompts.items()]
    yield _counter("perdure_prompts_settled", "Prompts by outcome.", ["outcome"], prompts)
    recovered = [((phase,), number) for phase, number in counts.recovered.items()]
    yield _counter("perdure_recoveries", "Turns of dead owners recovered here, by phase.", ["phase"], recovered)
    yield _counter("perdure_steps", "Steps by model and end.", ["model", "end"], counts.steps.items())
    yield _counter("perdure_tokens", "Tokens by model and kind.", ["model", "kind"], counts.tokens.items())
    cost = [((model,), number / 1e6) for model, number in counts.cost.items()]
    yield _counter("perdure_cost_dollars", "Cost by model, as far as prices are known.", ["model"], cost)
