"""A real process is killed at every edge of every commit of a conversation, and what the next one makes of it is checked.

The conversation (`victim.py`): a prompt whose turn calls a `write` and a `read` tool side by side, and a second prompt
queued behind it.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure import clock
from perdure.core import codec, events, messages, transcript
from perdure.log.log import Log
from perdure.store import sqlite

pytestmark = [pytest.mark.crash, pytest.mark.slow]

SESSION, PROMPTS = "customer-7", ("refund", "bye")
FINAL = {"refund": "It is refunded, as far as I can see.", "bye": "Goodbye."}


@dataclass
class Conversation:
    """One database and one ledger, through as many lives as it takes."""

    program: subprocess.Popen[str]
    database: Path
    ledger: Path
    accepted: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def live(self, **death: object) -> bool:
        """Live once; whether it was killed. Any other end than that and a settled conversation fails here."""
        given = {"database": str(self.database), "ledger": str(self.ledger), "accepted": self.accepted, **death}
        self.program.stdin.write(json.dumps(given) + "\n")
        self.program.stdin.flush()
        answer = json.loads(self.program.stdout.readline())
        for word, rest in (line.split(" ", 1) for line in answer["said"]):
            (self.accepted if word == "accepted" else self.violations).append(rest)
        assert answer["code"] in {0, -signal.SIGKILL}, f"{death}: {answer}"
        return answer["code"] != 0

    def ledger_lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@pytest.fixture(scope="module")
def program() -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("victim.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield running
        running.stdin.close()


@pytest.fixture
def conversations(program, tmp_path):
    """A new conversation each time, in a file of its own."""
    numbers = itertools.count()

    def new() -> Conversation:
        place = tmp_path / str(next(numbers))
        place.mkdir()
        return Conversation(program, place / "perdure.db", place / "ledger.txt")

    return new


@dataclass(frozen=True)
class Left:
    """What a conversation left behind: its log, and the rows beside it."""

    log: list[events.Recorded]
    rows: list[messages.Message]
    claims: list
    outcomes: dict[str, str | None]
    pending: list

    def facts(self, *kinds: type) -> list:
        return [one.data for one in self.log if isinstance(one.data, kinds)]


async def left_by(conversation: Conversation) -> Left:
    store = await sqlite.SqliteStore.open(conversation.database)
    try:
        system = clock.SystemClock()
        log = Log(store, clock=system, entropy=os.urandom, registry=codec.session_registry())
        recorded = await log.read(SESSION, limit=10_000)
        return await store.read(
            lambda tx: Left(
                recorded,
                tx.messages.page(SESSION, -1, 10_000),
                tx.claims.all(),
                {one: tx.inbox.get(one).outcome for one in PROMPTS},
                tx.inbox.pending(SESSION),
            )
        )
    finally:
        await store.close()


def check(left: Left, conversation: Conversation) -> None:
    """What holds of every settled conversation, however often its process was killed on the way."""
    assert [one.seq for one in left.log] == list(range(len(left.log)))
    folded = transcript.Transcript()
    for one in left.log:
        folded = transcript.apply(folded, one)
    assert list(folded.messages) == left.rows, "rows are the fold of the log"
    assert (left.claims, left.pending) == ([], [])
    assistants = [one for one in left.rows if isinstance(one, messages.Assistant)]
    assert all(one.time.completed is not None for one in assistants)
    assert not any(messages.part_is_open(part) for one in assistants for part in one.parts)
    settled_once(left)
    executions_closed(left)
    effects_at_most_once(left, conversation)
    assert conversation.violations == []


def settled_once(left: Left) -> None:
    for prompt in PROMPTS:
        assert [one.message_id for one in left.facts(events.PromptAdmitted)].count(prompt) == 1
        assert [one.message_id for one in left.facts(events.PromptPromoted)].count(prompt) == 1
        endings = [one for one in left.facts(events.ExecutionEnded) if prompt in one.message_ids]
        assert len(endings) == 1, f"{prompt} is settled once"
        assert [one for one in left.facts(events.PromptWithdrawn) if one.message_id == prompt] == []


def executions_closed(left: Left) -> None:
    """Every start has its end or its recovery (REC-11)."""
    ended = [one.execution_id for one in left.facts(events.ExecutionEnded)]
    recovered = [one.execution_id for one in left.facts(events.StepRecovered)]
    assert len(set(ended)) == len(ended)
    assert len(set(recovered)) == len(recovered)
    started = [one.execution_id for one in left.facts(events.ExecutionStarted)]
    assert len(set(started)) == len(started)
    assert set(started) == {*ended, *recovered}


def effects_at_most_once(left: Left, conversation: Conversation) -> None:
    """No call has its effect twice, a call that succeeded had it, and none had it before its call was durable (REC-8)."""
    done = [line.split()[0] for line in conversation.ledger_lines()]
    called = {one.call_id: one.name for one in left.facts(events.ToolCalled)}
    succeeded = [one.call_id for one in left.facts(events.ToolSucceeded)]
    assert len(done) <= 1
    assert len(called) == len(left.facts(events.ToolCalled)), "no call is made twice"
    assert {one for one in succeeded if called[one] == "refund"} <= set(done) <= set(called)


def answered(left: Left) -> None:
    """Both prompts succeeded, and each final answer stands in the transcript exactly once."""
    assert left.outcomes == dict.fromkeys(PROMPTS, "succeeded")
    finals = [
        part.text
        for one in left.rows
        if isinstance(one, messages.Assistant) and one.finish == "stop"
        for part in one.parts
        if isinstance(part, messages.TextPart)
    ]
    assert finals == [FINAL[prompt] for prompt in PROMPTS]


async def test_a_kill_at_any_edge_of_any_commit_leaves_a_conversation_that_the_next_process_finishes(conversations):
    """LOG-3, IN-4, IN-12, EX-4, REC-2, REC-8, REC-11, MSG-1."""
    for commit in itertools.count(1):
        conversation = conversations()
        killed = conversation.live(commit=commit)
        if killed:
            assert not conversation.live(), f"the life after the kill at edge {commit}"
        left = await left_by(conversation)
        try:
            check(left, conversation)
            answered(left)
        except AssertionError as error:
            error.add_note(f"killed at edge {commit}, the log: {[type(one.data).__name__ for one in left.log]}")
            raise
        if not killed:
            assert commit > 14, "the conversation commits more often than that"
            return


async def test_a_kill_at_any_edge_of_the_recovery_itself_converges(conversations):
    """REC-10, REC-8: the first process dies in a tool after its side effect, the second at every edge in turn."""
    for commit in itertools.count(1):
        conversation = conversations()
        assert conversation.live(place="tool")
        killed = conversation.live(commit=commit)
        if killed:
            assert not conversation.live(), f"the life after the recovery's kill at edge {commit}"
        left = await left_by(conversation)
        try:
            check(left, conversation)
            answered(left)
            assert len(conversation.ledger_lines()) == 1
        except AssertionError as error:
            error.add_note(f"recovery killed at edge {commit}: {[type(one.data).__name__ for one in left.log]}")
            raise
        if not killed:
            assert commit > 8, "a recovery and what follows commit more often than that"
            return


async def test_a_turn_that_kills_every_process_ends_failed_and_the_session_goes_on(conversations):
    """REC-6: the first attempt and the budget of three are used up, then the turn fails, and nothing stays running."""
    conversation = conversations()
    deaths = list(itertools.takewhile(lambda _: conversation.live(place="model"), range(20)))
    assert len(deaths) == 8, "four for each of the two prompts"
    left = await left_by(conversation)
    check(left, conversation)
    assert left.outcomes == dict.fromkeys(PROMPTS, "failed")
    assert {one.reason for one in left.facts(events.ExecutionEnded)} == {"repeated_crashes"}
