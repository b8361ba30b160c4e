"""Schedules by chance: a seed decides what clients do and when, what the provider says, what tools do, who dies when.

The same seed is the same story to the byte. Every story ends the same way: nobody dies any more, somebody answers every
question and resumes what waits, and then all must be quiet and everything must hold.
"""

import random

import shop

from perdure import errors
from perdure.core import compaction, events
from perdure.models import port, scripted

LENGTH_MS = 10_000
KINDS = [
    errors.ModelErrorKind.SERVER,
    errors.ModelErrorKind.RATE_LIMIT,
    errors.ModelErrorKind.INVALID_REQUEST,
    errors.ModelErrorKind.CONTEXT_OVERFLOW,
]
ACTIONS = """
prompt prompt prompt queue queue later interrupt interrupt resume cancel retry change approve deny compact policy recovery
compact steer retry resume resume cancel delete
""".split()


def policy(chance):
    budgets = [None, None, None, events.Budget(steps=chance.randint(1, 5)), events.Budget(tokens=chance.randint(5, 40))]
    return events.Policy(
        recovery=chance.choice(["auto", "auto", "ask", "never"]),
        recovery_budget=chance.choice([None, 0, 1, 5]),
        recovery_max_age_ms=chance.choice([None, None, None, 3_000]),
        repeat_unknown=chance.choice(["ask", "deny", "allow"]),
        max_steps=chance.choice([None, None, 1, 2]),
        turn_budget=chance.choice(budgets),
        session_budget=chance.choice([None, None, None, events.Budget(tokens=200)]),
    )


class Chance(shop.Story):
    """One seed's story."""

    def __init__(self, directory, seed):
        self.chance = random.Random(f"story {seed}")
        deaths = self.chance.choice(["seen", "seen", "lease"])
        super().__init__(directory, None, seed=seed, deaths=deaths, lease_seconds=self.chance.choice([2, 30]))
        self.simulation.disk_ms = self.chance.choice([0, 2, 30, 400])
        self.policy = policy(self.chance)
        count = self.chance.randint(5, 22)
        self.plan = sorted((self.chance.randint(0, LENGTH_MS), n, self.chance.choice(ACTIONS)) for n in range(count))
        self.said = []
        self.calm = False

    def answer(self, asked):
        chance = self.chance
        if compaction.SUMMARISE in shop.texts(asked):
            bad = [scripted.Fail(chance.choice(KINDS))] if chance.random() < 0.2 else []
            return [
                scripted.Text("They"),
                scripted.Delay(chance.random() * 2),
                *bad,
                scripted.Text(" talked."),
                port.Finish("stop", shop.TOKENS),
            ]
        if chance.random() < 0.15:
            return [scripted.Delay(chance.random()), scripted.Fail(chance.choice(KINDS))]
        said = [scripted.Text("Well"), scripted.Delay(chance.choice([0, 0.1, 0.5, 2, 4])), scripted.Text(", then.")]
        if chance.random() < 0.3:
            said.insert(0, scripted.Reasoning("Hm"))
        if chance.random() < 0.1:
            return [*said, scripted.Cut()]
        if chance.random() < 0.05:
            said.append(scripted.Delay(40))
        if chance.random() < 0.55 and not (self.calm and chance.random() < 0.7):
            names = chance.choices(
                ["look", "label", "refund", "open_safe", "nothing"], [3, 3, 3, 2, 1], k=chance.randint(1, 3)
            )
            calls = [scripted.Call(name, {"order": str(chance.randint(1, 2))}) for name in names]
            return [*said, *calls, port.Finish("tool_calls", shop.TOKENS)]
        return [*said, port.Finish("stop", shop.TOKENS)]

    async def script(self, app):
        clock = app.engine.world.clock
        try:
            session = await app.sessions.create("shop", id=shop.SESSION, policy=self.policy)
        except errors.SessionGone:
            await clock.sleep_ms(60_000 if self.calm else 0)  # what its deleter did not finish the sweep does
            return
        while self.plan:
            at, number, action = self.plan[0]
            wait = shop.simulator.START_MS + at - clock.now_ms()
            if wait > 0:
                await clock.sleep_ms(wait)
            try:
                await self.perhaps_elsewhere(app, session, action, f"p{number}")
            except (errors.Conflict, errors.NotFound) as refused:
                self.said.append(f"{at} {action}: {type(refused).__name__}")
            else:
                self.said.append(f"{at} {action}")
            self.plan.pop(0)  # where it dies before, it is tried again: the client never heard
        if self.calm:
            await self.settle(app, session)
        else:
            await clock.sleep_ms(self.chance.randint(0, LENGTH_MS))

    async def perhaps_elsewhere(self, app, session, action, name):
        """Act here, or as on another node: then this one's doorbell does not ring, and it finds out by itself."""
        bells = ("ring", "interrupt_here", "sweep_soon") if self.chance.random() < 0.4 else ()
        for bell in bells:
            setattr(app.engine, bell, lambda *_: None)
        try:
            await self.act(app, session, action, name)
        finally:
            for bell in bells:
                delattr(app.engine, bell)

    async def act(self, app, session, action, name):
        chance = self.chance
        prompts = [
            one.data.message_id
            async for one in session.events(follow=False)
            if isinstance(one.data, events.PromptAdmitted)
        ]
        some = chance.choice(prompts) if prompts else name
        match action:
            case "prompt" | "steer" | "queue" | "later":
                delivery = "queue" if action == "queue" else "steer"
                await session.prompt(f"Say {name}", id=name, delivery=delivery, resume=action != "later")
            case "interrupt":
                await session.interrupt()
            case "resume":
                await session.resume()
            case "cancel":
                await session.cancel(some)
            case "retry":
                await session.retry(some)
            case "change":
                await session.change_delivery(some, chance.choice(["steer", "queue"]))
            case "approve" | "deny":
                for row in await session.approvals():
                    await session.decide(row.call_id, action)
            case "delete":
                await session.delete()
            case "compact":
                await session.compact()
            case "policy":
                await session.update(events.Changes(policy=policy(chance)))
            case "recovery":
                for one in await app.recoveries.list():
                    await (app.recoveries.retry if chance.random() < 0.5 else app.recoveries.dismiss)(one.execution_id)

    async def settle(self, app, session):
        """Answer, resume and wait until all is quiet."""
        if await app.engine.store.read(lambda tx: tx.sessions.tombstone(shop.SESSION)):
            return
        for _ in range(60):
            await session.wait(timeout=60)
            for row in await session.approvals():
                await session.decide(row.call_id, self.chance.choice(["approve", "deny"]))
            await session.resume()
            await session.wait(timeout=60)
            await app.engine.world.clock.sleep_ms(1_000)
            if await app.engine.store.read(shop.over) and not await session.inbox():
                return

    def agents(self):
        def reply(asked):
            self.outside.requests.append(asked)
            return self.answer(asked)

        return [shop.agent(self.outside, reply)]

    def run(self):
        """All lives; what does not hold, with all there is to know about it."""
        for _ in range(self.chance.randint(0, 4)):
            if self.chance.random() < 0.7:
                self.live(crash_at=self.chance.randint(1, 60))
            else:
                self.live(crash_after_ms=self.chance.randint(0, LENGTH_MS))
            if wrong := self.problems(at_rest=False):
                return [*wrong, *self.told()]
        self.calm = True
        self.live()
        wrong = self.problems(at_rest=True)
        return [*wrong, *self.told()] if wrong else []

    def told(self):
        return [f"policy {self.policy}", f"deaths {self.simulation.deaths}", *self.said]
