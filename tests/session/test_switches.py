"""Who answers is who was named before the step began, also where reading the context took long."""

import asyncio

import pytest

from perdure import Agent
from perdure.core import events
from perdure.models.scripted import ScriptedModel, Text


class Slow:
    """A context source that says nothing before it may."""

    name = "slow"

    def __init__(self):
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def read(self):
        self.asked.set()
        await self.go.wait()
        return "It is noon"


@pytest.mark.parametrize("what", ["agent", "policy"])
async def test_a_switch_that_was_answered_before_the_first_step_began_counts_for_it(nodes, what):
    source = Slow()
    first = Agent("main", model=ScriptedModel([[Text("I am main")]]), context=[source])
    other = Agent("other", model=ScriptedModel([[Text("I am other")]]))
    node = await nodes(agents=[first, other])
    session = await node.session()
    await session.prompt("Who are you?", id="hello")
    await source.asked.wait()
    if what == "agent":
        await session.switch_agent("other")
    else:
        await session.update(events.Changes(policy=events.Policy(turn_budget=events.Budget(steps=0))))
    source.go.set()
    receipt = await session.wait("hello", timeout=20)
    started = await node.facts(events.StepStarted)
    assert [one.agent for one in started] == (["other"] if what == "agent" else [])
    assert receipt.outcome == ("succeeded" if what == "agent" else "failed")


async def test_whoever_changes_the_objects_of_an_answer_changes_no_setting_and_may_send_them_back_msg_1(nodes):
    node = await nodes(deaf=True)
    session = await node.session(metadata={"shelf": 1}, policy=events.Policy(approval={"pay": "always"}))
    info = await session.update(events.Changes(title="Books"))
    info.metadata["shelf"] = 2
    info.policy.approval["pay"] = "never"
    again = await session.update(events.Changes(title="More books"))
    assert (again.metadata, again.policy.approval) == ({"shelf": 1}, {"pay": "always"})
    await session.update(events.Changes(metadata=info.metadata, policy=info.policy))
    info = await session.info()
    assert (info.metadata, info.policy.approval) == ({"shelf": 2}, {"pay": "never"})
