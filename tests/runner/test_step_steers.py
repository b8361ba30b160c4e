"""A steer admitted at any instant around the end of a turn joins it or opens the next; it is answered exactly once."""

import asyncio
from collections import Counter

import pytest

from perdure import tool
from perdure.core import events, request
from perdure.models.scripted import Call, Delay, Text

STEERS = range(61)


def answered(rig):
    """How often each prompt was settled, how often promoted, and the turns."""
    ended = Counter(one for fact in rig.facts(events.ExecutionEnded) for one in fact.message_ids)
    promoted = Counter(one.message_id for one in rig.facts(events.PromptPromoted))
    return ended, promoted


def news(asked):
    """The user texts behind the last assistant: what this request is to answer."""
    texts = []
    for message in reversed(asked.messages):
        if not isinstance(message, request.UserMessage):
            break
        texts.append(message.content[0].text)
    return texts


def rules(rig, tools, disk_ms):
    def reply(asked):
        if tools and len(rig.model.requests) == 1:
            return [Delay(0.01), Call("work", {}, "c1")]
        return [Text("Hi"), Delay(0.03), Text(" there")]

    @tool(effect="read")
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0.01)
        return "done"

    rig.play(reply, tools=[work])
    rig.simulation.disk_ms = disk_ms


@pytest.mark.parametrize(
    ("tools", "disk_ms"), [(False, 0), (True, 3)], ids=["a plain turn", "a turn with a call on a slow disk"]
)
@pytest.mark.parametrize("after_ms", STEERS)
def test_a_steer_at_any_millisecond_is_answered_exactly_once_run_1_in_12(rig, after_ms, tools, disk_ms):
    rules(rig, tools, disk_ms)

    async def script(app, session):
        await session.prompt("First", id="first")
        await app.engine.world.clock.sleep_ms(after_ms)
        await session.prompt("Steer", id="steer")
        await session.wait("first")
        return await rig.settled(app, session, "steer")

    assert rig.live(script).outcome == "succeeded"
    ended, promoted = answered(rig)
    assert ended == promoted == {"first": 1, "steer": 1}
    assert sum("Steer" in news(asked) for asked in rig.model.requests) == 1


def test_sixty_one_steers_a_millisecond_apart_are_each_answered_exactly_once_run_1_in_12(rig):
    rules(rig, tools=True, disk_ms=2)

    async def script(app, session):
        await session.prompt("First", id="first")
        for number in STEERS:
            await app.engine.world.clock.sleep_ms(1)
            await session.prompt(f"Steer {number}", id=f"steer-{number}")
        for number in STEERS:
            assert (await session.wait(f"steer-{number}")).outcome == "succeeded"
        await rig.settled(app, session, "first")

    rig.live(script)
    ended, promoted = answered(rig)
    assert ended == promoted == dict.fromkeys(["first", *(f"steer-{number}" for number in STEERS)], 1)
    assert 1 < len(rig.model.requests) < 30, "they share steps"
    asked = Counter(text for one in rig.model.requests for text in news(one))
    assert all(asked[f"Steer {number}"] == 1 for number in STEERS)
    order = [one.message_id for one in rig.facts(events.PromptPromoted)]
    assert order == ["first", *(f"steer-{number}" for number in STEERS)], "in the order of admission"
