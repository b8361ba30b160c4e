"""The world outside of the simulated engines: a shop with tools, a provider with moods, a client with a plan.

All of it survives every death. What the provider says follows from what it is asked and how often it was asked before;
the client does each thing of its plan at its time, again where it never heard that it was done, as clients do.
"""

import asyncio
import copy
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field

from perdure import Agent, errors
from perdure.agent import Tool
from perdure.core import codec, compaction, messages, request
from perdure.log import projections
from perdure.log.log import Log
from perdure.maintenance import rebuild
from perdure.models import openai_request, port, scripted
from perdure.session import status
from perdure.store import sqlite
from perdure.testing import invariants, pairing, simulator
from perdure.testing.fake_clock import FakeClock

SESSION = "shop"
TOKENS = messages.Tokens(3, 2)


@dataclass
class Outside:
    """What no engine holds: effects that began, what the provider was asked, what the client heard back."""

    effects: list[tuple[str, str]] = field(default_factory=list)
    requests: list[request.Request] = field(default_factory=list)
    asked: Counter = field(default_factory=Counter)
    heard: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


def tools(outside):
    """The shop's tools. Their schemas are given, since reading them from signatures would be most of a life's work."""

    def make(name, effect, seconds, **more):
        async def run(arguments, context):
            outside.effects.append((context.assistant_message_id, context.call_id))
            if effect == "idempotent":
                context.progress(content="half")
            await asyncio.sleep(seconds)
            return f"{name} {arguments}: done"

        return Tool(run, name, f"To {name}.", effect, parameters={"type": "object"}, **more)

    return [
        make("look", "read", 0.9),
        make("label", "idempotent", 0.5),
        make("refund", "write", 0.3),
        make("open_safe", "write", 0.3, approval="always", approval_timeout_s=600),
    ]


def texts(asked):
    return [
        part.text
        for one in asked.messages
        if isinstance(one, request.UserMessage)
        for part in one.content
        if isinstance(part, request.TextContent)
    ]


def since(asked, words):
    """What came after the newest message that says so."""
    at = max(n for n, one in enumerate(asked.messages) if words in str(one))
    return asked.messages[at + 1 :]


ORDER = ("Refund order 7", "Take your time", "Open both sides", "Be moody", "Break off", "A long story")


def answer(outside, asked):
    """What the provider says: its part in the chapter whose prompt came last."""
    said = texts(asked)
    if compaction.SUMMARISE in said:
        return [
            scripted.Text("They talked"),
            scripted.Delay(0.3),
            scripted.Text(" about orders."),
            port.Finish("stop", TOKENS),
        ]
    topic = next((one for words in reversed(said) for one in ORDER if words.startswith(one)), None)
    done = [port.Finish("stop", messages.Tokens(300, 2) if topic == "A long story" else TOKENS)]
    if topic is None:
        return [scripted.Text("Hello."), *done]
    results = any(isinstance(one, request.ResultMessage) for one in since(asked, topic))
    outside.asked[topic] += 1
    pause = scripted.Delay(0.3)
    match topic:
        case "Refund order 7" if not results:
            calls = [scripted.Call(name, {"order": "7"}) for name in ("look", "label", "refund")]
            return [
                scripted.Reasoning("Hm"),
                pause,
                scripted.Text("Let me"),
                pause,
                scripted.Text(" see."),
                *calls,
                port.Finish("tool_calls", TOKENS),
            ]
        case "Open both sides" if not results:
            calls = [
                scripted.Call("look", {"order": "7"}),
                *(scripted.Call("open_safe", {"side": one}) for one in ("left", "right")),
            ]
            return [scripted.Text("May I?"), *calls, port.Finish("tool_calls", TOKENS)]
        case "Take your time":
            return [scripted.Text("Well, "), scripted.Delay(5), scripted.Text("done."), *done]
        case "Be moody" if outside.asked[topic] <= 2:
            return [scripted.Fail()]
        case "Break off" if outside.asked[topic] == 1:
            return [scripted.Text("This is"), pause, scripted.Cut()]
        case _:
            return [pause, scripted.Text(f"{topic}: it is done."), pause, scripted.Text(" Bye."), *done]


def over(tx):
    """Whether nothing is owed, and no claim is left whose owner may be dead without anybody knowing it yet."""
    return status.at_rest(tx, SESSION) and tx.claims.of_session(SESSION) is None


# -- the client --------------------------------------------------------------------------------------------------------------


class Client:
    """What somebody outside does in one life; `heard` is what they know is done."""

    def __init__(self, app, outside, started_ms):
        self.app, self.outside = app, outside
        self.started_ms = started_ms
        self.session = None

    def now(self):
        return self.app.engine.world.clock.now_ms()

    async def follow(self, plan):
        self.session = await self.app.sessions.create("shop", id=SESSION)
        for name, at, act in plan:
            if name not in self.outside.heard:
                await self.app.engine.world.clock.sleep_ms(max(self.started_ms + at - self.now(), 0))
                await act(self)
                self.outside.heard.add(name)
        await self.rest()

    async def rest(self):
        """Wait until nothing is owed, and say yes to every question that comes up meanwhile."""
        for _ in range(100):
            await self.session.wait(timeout=10)
            if await self.app.engine.store.read(over):
                return
            for row in await self.session.approvals():
                await self.session.decide(row.call_id, "approve")

    async def settled(self, message_id):
        return (await self.session.receipt(message_id)).state == "settled"


def says(name, at, text, delivery="steer"):
    async def act(client):
        await client.session.prompt(text, id=name, delivery=delivery)

    return name, at, act


def stops(name, at, prompt):
    async def act(client):
        if not await client.settled(prompt):
            await client.session.interrupt()

    return name, at, act


def quiet(name, at):
    async def act(client):
        await client.rest()

    return name, at, act


def summarises(name, at):
    async def act(client):
        for _ in range(20):
            await client.rest()
            try:
                await client.session.compact()
            except errors.SessionBusy:
                await client.app.engine.world.clock.sleep_ms(1_000)
            else:
                return

    return name, at, act


def decides(name, at, side, decision, prompt):
    """Decide as soon as the question is there, if it still comes."""

    async def act(client):
        while not await client.settled(prompt):
            for row in await client.session.approvals():
                part = await client.app.engine.store.read(
                    lambda tx, row=row: tx.messages.last_part(SESSION, row.message_id, "tool", row.call_id)
                )
                if part[1].approval.input == {"side": side}:
                    await client.session.decide(row.call_id, decision)
                    return
            await client.app.engine.world.clock.sleep_ms(100)
            if any(row.decision for row in await client.app.engine.store.read(lambda tx: known(tx, side))):
                return

    return name, at, act


def known(tx, side):
    """Decisions about a side of the safe, in any message."""
    found = []
    for message in tx.messages.page(SESSION, -1, 1_000):
        if isinstance(message, messages.Assistant):
            found += [row for row in tx.approvals.of_message(message.id) if row.decision]
    calls = {"left": 1, "right": 2}
    return [row for row in found if row.call_id.endswith(str(calls[side]))]


def turn(start):
    return [
        says("order", start, "Refund order 7"),
        says("steer", start + 700, "Hurry up"),
        says("queued", start + 800, "And say hello", "queue"),
        quiet("quiet 1", start + 900),
    ]


def stopped(start):
    return [
        says("slow", start, "Take your time"),
        says("behind", start + 500, "And say hello", "queue"),
        stops("stop", start + 1_000, "slow"),
        says("after", start + 1_500, "And be brief"),
        quiet("quiet 2", start + 2_000),
    ]


def approved(start):
    return [
        says("safe", start, "Open both sides"),
        decides("left", start + 100, "left", "approve", "safe"),
        decides("right", start + 200, "right", "deny", "safe"),
        quiet("quiet 3", start + 300),
    ]


def moody(start):
    return [says("moody", start, "Be moody"), quiet("quiet 4", start + 100)]


def broken(start):
    return [says("broken", start, "Break off"), quiet("quiet 5", start + 100)]


def compacted(start):
    """With a window this small the second prompt does not fit any more; then somebody asks for a summary too."""
    return [
        says("long", start, "A long story" + " about orders" * 100),
        quiet("quiet 6", start + 100),
        says("short", start + 200, "And say hello"),
        quiet("quiet 7", start + 300),
        summarises("summary", start + 400),
        says("last", start + 500, "And once more hello"),
        quiet("quiet 8", start + 600),
    ]


CHAPTERS = {
    "turn": turn,
    "stopped": stopped,
    "approved": approved,
    "moody": moody,
    "broken": broken,
    "compacted": compacted,
}


def whole(start):
    return [one for n, chapter in enumerate(CHAPTERS.values()) for one in chapter(start + 20_000 * n)]


def agent(outside, reply):
    """Who answers, with a window so small that a long story does not fit."""
    return Agent("shop", scripted.ScriptedModel(reply), tools=tools(outside), context_tokens=400)


# -- a scenario ---------------------------------------------------------------------------------------------------------------


def pages(log):
    """What a write-ahead log says of which page, without the salt that SQLite draws for each file and its checksums."""
    size = int.from_bytes(log[8:12], "big")
    for at in range(32, len(log), 24 + size):
        yield log[at : at + 8]
        yield log[at + 24 : at + 24 + size]


class Story:
    """One chapter, or all, through as many lives as it takes (`simulator_walk.Scenario`)."""

    def __init__(self, directory, chapter, *, seed=0, deaths="seen", disk_ms=0, **settings):
        self.outside = Outside()
        self.chapter = chapter
        self.simulation = simulator.Simulation(self.agents, directory, seed, settings, deaths, disk_ms, limit_s=7_200)

    def agents(self):
        def reply(asked):
            self.outside.requests.append(asked)
            self.outside.violations += pairing.problems(openai_request.body(asked)["messages"])
            return answer(self.outside, asked)

        return [agent(self.outside, reply)]

    async def script(self, app):
        await Client(app, self.outside, simulator.START_MS).follow(self.chapter(0))

    def live(self, *, crash_at=None, crash_after_ms=None):
        life = self.simulation.live(self.script, crash_at=crash_at, crash_after_ms=crash_after_ms)
        assert life.complaints == ()
        return life

    def fork(self):
        other = copy.copy(self)
        other.outside = Outside(
            list(self.outside.effects),
            list(self.outside.requests),
            Counter(self.outside.asked),
            set(self.outside.heard),
            list(self.outside.violations),
        )
        other.simulation = self.simulation.fork()
        other.simulation.agents = other.agents
        return other

    def remove(self):
        self.simulation.remove()

    def state(self):
        """The pages as they lie there, the time, and all that is outside; what only grows by its length."""
        path = self.simulation.path
        log = path.with_name(path.name + simulator.WAL)
        digest = hashlib.sha256(path.read_bytes())
        for part in pages(log.read_bytes() if log.exists() else b""):
            digest.update(part)
        known = self.outside
        lengths = len(known.effects), len(known.requests)
        return digest.digest(), self.simulation.now_ms, lengths, dict(known.asked), frozenset(known.heard)

    def look(self, work):
        """Open the file as it lies there, in a copy, and look."""
        copied = self.simulation.fork()
        loop = asyncio.new_event_loop()

        async def main():
            store = await sqlite.SqliteStore.open(copied.path, seam="inline")
            log = Log(
                store,
                clock=FakeClock(self.simulation.now_ms),
                entropy=random.Random("look").randbytes,
                registry=codec.session_registry(),
                projectors=(projections.project,),
            )
            try:
                return await work(log)
            finally:
                await store.close()

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()
            copied.remove()

    def left(self):
        return self.look(lambda log: invariants.left(log, SESSION))

    def problems(self, *, at_rest):
        async def work(log):
            found = await invariants.left(log, SESSION)
            wrong = invariants.at_rest(found) if at_rest else invariants.at_any_time(found)
            wrong += invariants.outside(found, self.outside.effects, self.outside.requests)
            if at_rest and found.session and not wrong:
                await rebuild.rebuild(log, SESSION)  # which refuses rows that are not what the log says
            wrong += [f"MSG-9 {one}" for one in self.outside.violations]
            return [*wrong, *self.simulation.trace, invariants.story(found)] if wrong else []

        return self.look(work)
