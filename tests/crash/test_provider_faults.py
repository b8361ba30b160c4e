"""A real process is killed at the moment its provider fails, in every way a provider can; the next process goes on.

Three moments: the request has come and nothing was answered; the fault is on the wire; how the step went is durable. Two
places: the first step, and the step behind a tool call. The default suite tries some of the cross, `make soak` all of it.
"""

import asyncio
import contextlib
import email.utils
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import clock
from perdure.core import codec, events, messages
from perdure.log import projections
from perdure.log.log import Log
from perdure.store import sqlite
from perdure.testing import fake_provider, invariants
from perdure.testing.provider_script import (
    Call,
    Cut,
    Finish,
    Hang,
    HttpError,
    Item,
    Open,
    Raw,
    Rule,
    StreamError,
    Text,
    Usage,
)

pytestmark = [pytest.mark.slow]
SESSION, PATIENCE = "ses", 120
USED = Usage(prompt=100, completion=10)
END = Finish(usage=USED)
CALL = Call("pay", {"n": 1})


def refused_until(seconds):
    """A 429 with the date from which on it will be better."""
    return (HttpError(429, headers={"Retry-After": email.utils.formatdate(time.time() + seconds, usegmt=True)}),)


@dataclass(frozen=True)
class Fault:
    """What goes over the wire instead of an answer; one that `ends` may settle the prompt by itself."""

    reply: tuple[Item, ...] | Callable[[], tuple[Item, ...]] = ()
    ends: bool = False
    hangs: bool = False
    refused: bool = False


FAULTS = {
    "429 for a second": Fault((HttpError(429, headers={"Retry-After": "1"}),)),
    "429 until a date": Fault(lambda: refused_until(2)),
    "429 for a day": Fault((HttpError(429, headers={"Retry-After": "86400"}),), ends=True),
    "401": Fault((HttpError(401),), ends=True),
    "500": Fault((HttpError(500),)),
    "529": Fault((HttpError(529),)),
    "connection refused": Fault(refused=True),
    "closed before the first byte": Fault((Cut(),)),
    "reset before the first byte": Fault((Cut("reset"),)),
    "closed after the head": Fault((Open(), Cut())),
    "closed in a text": Fault((Text("Half", size=2), Cut())),
    "reset in a text": Fault((Text("Half", size=2), Cut("reset"))),
    "half a chunk": Fault((Text("Half"), Raw('data: {"choi'), Cut())),
    "closed in a call's arguments": Fault((Call("pay", '{"n"'), Cut())),
    "closed in the second call's arguments": Fault((CALL, Call("pay", '{"n": 2'), Cut())),
    "closed behind a call": Fault((Text("Half"), CALL, Cut())),
    "ended behind the last chunk": Fault((Text("Half"), Cut("end"))),
    "ended behind a call": Fault((CALL, Cut("end"))),
    "ended without DONE": Fault((Text("Half"), Finish(usage=USED, done=False)), ends=True),
    "an empty answer": Fault((END,), ends=True),
    "an empty stream": Fault((Open(), Cut("end"))),
    "silence": Fault((Hang("hung"),), hangs=True),
    "silence in a text": Fault((Text("Half"), Hang("hung")), hangs=True),
    "silence in a call's arguments": Fault((Call("pay", '{"n"'), Hang("hung")), hangs=True),
    "silence behind a call": Fault((CALL, Hang("hung")), hangs=True),
    "no usage": Fault((CALL, Finish(usage=False))),
    "arguments that are no JSON": Fault((Call("pay", "{'n': 1}"), END)),
    "arguments that are no object": Fault((Call("pay", "[1]"), END)),
    "two calls of one id": Fault((Call("pay", {"n": 1}, id="x"), Call("pay", {"n": 2}, id="x"), END)),
    "the id of an earlier call": Fault((Call("pay", {"n": 1}, id="first"), END)),
    "a call without an id": Fault((Call("pay", {"n": 1}, id=""), END)),
    "an error in the stream": Fault((Open(), StreamError("overloaded", code=503))),
    "an error behind a text": Fault((Text("Half"), StreamError("overloaded", code=503))),
    "a filtered answer": Fault((Text("Half"), Finish("content_filter", usage=USED)), ends=True),
    "an answer cut by length": Fault((Text("Half"), Finish("length", usage=USED)), ends=True),
    "arguments cut by length": Fault((Call("pay", '{"n'), Finish("length", usage=USED)), ends=True),
}
MOMENTS = ("asked", "on the wire", "durable")


@dataclass(frozen=True)
class Case:
    """A fault, behind how many steps, and when the process dies."""

    name: str
    behind: int
    moment: str

    @property
    def fault(self):
        return FAULTS[self.name]

    @property
    def possible(self):
        """Silence says nothing that could be durable, and nobody sees a request that was refused."""
        return not (self.fault.hangs and self.moment == "durable") and (
            not self.fault.refused or (self.moment == "durable" and self.behind == 0)
        )

    def rules(self):
        """The fault once, after the steps before it; then every question is answered."""
        first = [Rule((Call("pay", {"n": 0}, id="first"), END), times=1)] if self.behind else []
        held = (Hang("held"),) if self.moment == "asked" else ()
        reply = self.fault.reply() if callable(self.fault.reply) else self.fault.reply
        fault = [] if self.fault.refused else [Rule((*held, *reply), times=1)]
        return [*first, *fault, Rule((Text("Done"), END))]


CASES = [one for one in itertools.starmap(Case, itertools.product(FAULTS, (0, 1), MOMENTS)) if one.possible]


class Program:
    """`faulty.py`, which lives when it is told to."""

    def __init__(self, process):
        self.process = process

    async def begin(self, **life):
        self.process.stdin.write(json.dumps(life).encode() + b"\n")
        return (await self.said())["pid"]

    async def said(self):
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), PATIENCE))


@contextlib.asynccontextmanager
async def program():
    command = [sys.executable, str(Path(__file__).with_name("faulty.py"))]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield Program(process)
    finally:
        process.stdin.close()
        await process.wait()


def nobodys_url():
    """Where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


async def walk(case, running, place):
    """Live, be killed at that moment, live again to the end; what does not hold after that."""
    place.mkdir()
    files = {"database": str(place / "perdure.db"), "ledger": str(place / "ledger.txt")}
    async with fake_provider.serve(case.rules()) as provider:
        url = nobodys_url() if case.fault.refused else provider.url
        told = case.behind if case.moment == "durable" else -1
        pid = await running.begin(**files, url=url, told=told)
        if case.moment != "durable":
            await asyncio.wait_for(moment(case, provider), PATIENCE)
            os.kill(pid, signal.SIGKILL)
        died = (await running.said())["code"]
        await running.begin(**files, url=provider.url)
        ended = (await running.said())["code"]
        if (died, ended) != (-signal.SIGKILL, 0):
            return [f"the lives ended with {died} and {ended}"]
        return [*provider_problems(provider), *await left_problems(case, provider, files)]


async def moment(case, provider):
    if case.moment == "asked":
        await provider.arrived("held")
    elif case.fault.hangs:
        await provider.arrived("hung")
    else:
        await provider.ended(1 + case.behind)


def provider_problems(provider):
    yield from (f"request {one.request}: {one.problem}" for one in provider.violations)


async def left_problems(case, provider, files):
    store = await sqlite.SqliteStore.open(Path(files["database"]))
    try:
        log = Log(
            store,
            clock=clock.SystemClock(),
            entropy=os.urandom,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )
        left = await invariants.left(log, SESSION)
    finally:
        await store.close()
    paid = ledger(files)
    wrong = invariants.at_rest(left)
    wrong += invariants.outside(left, [(amid, call_id) for amid, call_id, _ in paid], [])
    wrong += [f"paid {n} {times} times" for n, times in Counter(n for *_, n in paid).items() if times > 1]
    wrong += answer_problems(case, left)
    wrong += usage_problems(left, provider)
    return [*wrong, invariants.story(left)] if wrong else []


def ledger(files):
    """What was paid: assistant, call and number of each."""
    path = Path(files["ledger"])
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def answer_problems(case, left):
    """Each prompt is settled once and answered once; the second one, which met no fault, succeeded."""
    settled = Counter(one for ended in left.facts(events.ExecutionEnded) for one in ended.message_ids)
    yield from (f"{one} was settled {settled[one]} times" for one in ("one", "two") if settled[one] != 1)
    allowed = {"succeeded", "failed"} if case.fault.ends else {"succeeded"}
    if left.outcome("one") not in allowed or left.outcome("two") != "succeeded":
        yield f"the prompts {left.outcome('one')} and {left.outcome('two')}"
    said = [
        part.text
        for one in left.transcript
        if isinstance(one, messages.Assistant)
        for part in one.parts
        if isinstance(part, messages.TextPart)
    ]
    if said.count("Done") not in ({1, 2} if case.fault.ends else {2}) or said[-1:] != ["Done"]:
        yield f"what was said: {said}"


def usage_problems(left, provider):
    """What was reported is counted once: the totals are the facts', and no more than the provider gave."""
    kinds = (events.StepEnded, events.StepFailed, events.UsageRecorded)
    counted = [one.tokens for one in left.facts(*kinds) if one.tokens is not None]
    total = left.session.usage.tokens.input
    given = sum(one.state == "completed" for one in provider.requests)
    if total != sum(one.input for one in counted) or total % USED.prompt or total // USED.prompt > given:
        yield f"{total} tokens were counted, {[one.input for one in counted]} in facts, {given} answers were complete"


async def cross(cases, place):
    """Walk them, as many at once as there are cores; what does not hold, by case."""
    waiting, wrong = iter(enumerate(cases)), []

    async def work():
        async with program() as running:
            for number, case in waiting:
                if found := await walk(case, running, place / str(number)):
                    wrong.append(f"{case}:\n  " + "\n  ".join(found))

    await asyncio.gather(*(work() for _ in range(os.cpu_count() or 1)))
    return wrong


@pytest.mark.crash
async def test_a_kill_at_some_faults_of_the_provider_leaves_a_session_that_goes_on(tmp_path):
    """RUN-4, RUN-5, REC-2, REC-8, MSG-9: a case of every kind of moment and place, another fault each."""
    some = CASES[::19]
    assert {(one.behind, one.moment) for one in some} == set(itertools.product((0, 1), MOMENTS))
    assert await cross(some, tmp_path) == []


@pytest.mark.soak
async def test_a_kill_at_any_fault_of_the_provider_leaves_a_session_that_goes_on(tmp_path, capsys):
    """RUN-4, RUN-5, REC-2, REC-8, MSG-9, MSG-5: every fault, in both places, at every moment."""
    wrong = await cross(CASES, tmp_path)
    with capsys.disabled():
        sys.stdout.write(f"\n  {len(CASES)} deaths at {len(FAULTS)} faults of a provider, {len(wrong)} failures ")
    assert wrong == [], "\n\n".join(wrong)
