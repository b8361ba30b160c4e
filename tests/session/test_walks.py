"""Walks through one session by chance: prompts, retries, interrupts, decisions, crashes and stops in any order and at any
moment, then rest. Whatever was walked, every prompt ends with one outcome, and nothing happened twice.

The storage runs on the loop here, so a seed is one walk and stays it.
"""

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from perdure import ToolContext, errors, tool
from perdure.core import events
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Call, Cut, Fail, Gate, Hang, Text
from perdure.session import status

SESSION = "ses"
LEASE_MS = 30_000
SETTLED = {"succeeded", "failed", "interrupted", "cancelled", "superseded"}


class Walk:
    """One walk: the engine that lives now, what was prompted, and which calls had their effect."""

    def __init__(self, nodes, clock, seed):
        self.nodes, self.clock, self.chance = nodes, clock, random.Random(seed)
        self.prompts: dict[str, str] = {}
        self.effects: Counter[str] = Counter()
        self.gates: list[Gate] = []
        self.told: list[str] = []
        recovery = self.chance.choice(["auto", "auto", "auto", "ask", "never"])
        self.policy = events.Policy(recovery=recovery)
        self.asks = self.chance.choice(["always", "never"])

    def reply(self, asked):
        gate = Gate()
        self.gates.append(gate)
        number = len(self.gates)
        return self.chance.choice(
            [
                [Text("Hi")],
                [Text("Half"), Hang(gate), Text(" done")],
                [Hang(gate), Text("Hi")],
                [Text("Let me"), Call("pay", {"n": number}, f"c{number}")],
                [Hang(gate), Call("pay", {"n": number}, f"c{number}"), Call("slow", {}, f"s{number}")],
                [Fail(ModelErrorKind.AUTH, "No")],
                [Fail(ModelErrorKind.SERVER, "Overloaded")],
                [Text("Half"), Cut()],
            ]
        )

    def tools(self):
        @tool(effect="write")
        async def pay(n: int, context: ToolContext) -> str:
            """Pay."""
            self.effects[context.call_id] += 1
            return f"paid {n}"

        @tool(effect="write", approval=self.asks)
        async def slow(context: ToolContext) -> str:
            """Pay, and think about it."""
            self.effects[context.call_id] += 1
            gate = Gate()
            self.gates.append(gate)
            await gate.wait()
            return "paid"

        return [pay, slow]

    async def live(self):
        self.node = await self.nodes(self.reply, tools=self.tools(), seam="inline", grace_seconds=0, recovery_budget=2)
        if not self.prompts:
            await self.node.session(policy=self.policy)
        self.session = await self.node.app.sessions.get(SESSION)

    async def go(self, steps):
        await self.live()
        moves = [
            (self.prompt, 6),
            (self.open_a_gate, 6),
            (self.let_time_pass, 3),
            (self.again, 2),
            (self.interrupt, 2),
            (self.crash, 3),
            (self.stop, 1),
            (self.resume, 1),
            (self.retry, 2),
            (self.cancel, 1),
            (self.other_delivery, 1),
            (self.decide, 1),
            (self.answer_approvals, 2),
            (self.sweep, 2),
        ]
        for _ in range(steps):
            (move,) = self.chance.choices([one for one, _ in moves], [weight for _, weight in moves])
            self.told.append(move.__name__)
            with contextlib.suppress(errors.Conflict):
                await move()
            for _ in range(self.chance.choice([0, 1, 3, 10, 40])):
                await asyncio.sleep(0)

    # -- moves ---------------------------------------------------------------------------------------------------------

    async def prompt(self):
        message_id = f"p{len(self.prompts)}"
        self.prompts[message_id] = self.chance.choice(["steer", "queue"])
        resume = self.chance.random() < 0.8
        await self.session.prompt(message_id, id=message_id, delivery=self.prompts[message_id], resume=resume)

    async def again(self):
        if self.prompts:
            message_id = self.chance.choice(list(self.prompts))
            await self.session.prompt(message_id, id=message_id, delivery=self.prompts[message_id])

    async def open_a_gate(self):
        if self.gates:
            self.chance.choice(self.gates[-3:]).open()

    async def let_time_pass(self):
        self.clock.advance(self.chance.choice([100, 3_000, 9_000]))

    async def interrupt(self):
        await self.session.interrupt()

    async def crash(self):
        await self.node.crash()
        self.clock.advance(LEASE_MS + 1)
        await self.live()

    async def stop(self):
        await self.node.stop()
        await self.live()

    async def resume(self):
        await self.session.resume()

    async def retry(self):
        if self.prompts:
            await self.session.retry(self.chance.choice(list(self.prompts)))

    async def cancel(self):
        if self.prompts:
            await self.session.cancel(self.chance.choice(list(self.prompts)))

    async def other_delivery(self):
        if self.prompts:
            message_id = self.chance.choice(list(self.prompts))
            await self.session.change_delivery(message_id, self.chance.choice(["steer", "queue"]))

    async def decide(self):
        for one in await self.node.app.recoveries.list():
            verb = self.chance.choice([self.node.app.recoveries.retry, self.node.app.recoveries.dismiss])
            await verb(one.execution_id)

    async def answer_approvals(self):
        for one in await self.session.approvals():
            await self.session.decide(one.call_id, self.chance.choice(["approve", "deny"]))

    async def sweep(self):
        await self.node.sweep()

    # -- rest ----------------------------------------------------------------------------------------------------------

    async def rest(self):
        """A last life in which everything works; a person resumes what waits for one."""
        await self.node.crash()
        self.clock.advance(3_600_000)
        self.node = await self.nodes(lambda asked: [Text("Hi")], tools=self.tools(), seam="inline", recovery_budget=2)
        self.session = await self.node.app.sessions.get(SESSION)
        await self.node.sweep()
        await self.session.resume()
        for _ in range(2_000):
            await asyncio.sleep(0)
            if (
                await self.node.read(lambda tx: status.at_rest(tx, SESSION))
                and not self.node.engine.coordinator.active()
            ):
                return
            if not self.node.engine.coordinator.active():
                await self.answer_approvals()
                await self.node.sweep()
        raise AssertionError(f"no rest: {await self.session.status()}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_every_prompt_ends_once_and_nothing_happens_twice_in_12_rec_1_rec_8_rec_11(
    nodes, clock, check, seed
):
    walk = Walk(nodes, clock, seed)
    try:
        async with asyncio.timeout(20):
            await walk.go(40)
            await walk.rest()
            await walk.session.prompt("And now?", id="last")
            assert (await walk.session.wait("last")).outcome == "succeeded"
            await walk.node.quiet()
        await check(walk.node)
        for message_id in walk.prompts:
            assert (await walk.session.receipt(message_id)).outcome in SETTLED, message_id
        assert max(walk.effects.values(), default=0) <= 1
        await outcomes_come_once(walk)
        await interrupts_are_final(walk)
    except BaseException as error:
        error.add_note(f"walked: {' '.join(walk.told)}\nlog: {' '.join(await walk.node.names())}")
        raise


async def outcomes_come_once(walk):
    """One outcome a run: as many as retries and one; at most one success."""
    outcomes, retried, answered = Counter(), Counter(), Counter()
    for fact in await walk.node.facts():
        if isinstance(fact, events.ExecutionEnded):
            outcomes.update(fact.message_ids)
            answered.update(fact.message_ids if fact.outcome == "succeeded" else ())
        elif isinstance(fact, events.PromptWithdrawn):
            outcomes[fact.message_id] += 1
            if fact.message_id.startswith("msg_retry_"):
                outcomes[fact.message_id.removeprefix("msg_retry_").rpartition("_")[0]] += 1
        elif isinstance(fact, events.PromptRetried):
            retried[fact.message_id] += 1
    for message_id in walk.prompts:
        assert outcomes[message_id] == 1 + retried[message_id], message_id
        assert answered[message_id] <= 1


async def interrupts_are_final(walk):
    """After a request, the execution that was open starts no further step."""
    open_execution = interrupted = None
    for fact in await walk.node.facts():
        match fact:
            case events.ExecutionStarted():
                assert open_execution is None, "one turn at a time"
                open_execution, interrupted = fact.execution_id, None
            case events.ExecutionInterruptRequested():
                interrupted = open_execution
            case events.StepStarted():
                assert interrupted is None, "an interrupted turn goes on"
            case events.ExecutionEnded() | events.StepRecovered() if fact.execution_id == open_execution:
                open_execution = interrupted = None
