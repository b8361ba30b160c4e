"""Steers and queued prompts are delivered alike whatever adapter asks the model, over real HTTP (RUN-1, IN-2)."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from perdure import Agent, Perdure, config, errors, tool
from perdure.core import events
from perdure.models.openai_compatible import OpenAICompatible
from perdure.testing import anthropic_provider, anthropic_reply, fake_provider
from perdure.testing.provider_script import Call, Hang, Rule, Text


@dataclass
class Wire:
    """A provider whose first reply waits at gate `g` and then calls `look`, and a model that speaks to it."""

    provider: Any
    model: Any

    def asked(self):
        """What each request said, as text."""
        return [msgspec.json.encode(one.body["messages"]).decode() for one in self.provider.requests]


@contextlib.asynccontextmanager
async def chat_completions():
    first = Rule((Text("Let me see"), Hang("g"), Call("look", {})), times=1)
    async with fake_provider.serve([first, Rule((Text("Done"),))]) as provider:
        yield Wire(provider, OpenAICompatible(name="fake", base_url=provider.url, api_key="none"))
        assert provider.violations == []


@contextlib.asynccontextmanager
async def chat_by_library():
    adapter = pytest.importorskip("perdure.models.pydantic_ai", reason="the extra pydantic-ai is not installed")
    pytest.importorskip("openai", reason="the SDK is not installed")
    first = Rule((Text("Let me see"), Hang("g"), Call("look", {})), times=1)
    async with fake_provider.serve([first, Rule((Text("Done"),))]) as provider:
        yield Wire(provider, adapter.make("openai-chat", "gpt-5", api_key="none", base_url=provider.url))
        assert provider.violations == []


@contextlib.asynccontextmanager
async def messages_by_library():
    adapter = pytest.importorskip("perdure.models.pydantic_ai", reason="the extra pydantic-ai is not installed")
    pytest.importorskip("anthropic", reason="the SDK is not installed")
    first = (Text("Let me see"), Hang("g"), anthropic_reply.ToolUse("look", {}))
    async with anthropic_provider.serve([first, (Text("Done"),)]) as provider:
        yield Wire(provider, adapter.make("anthropic", "claude-sonnet-5-5", api_key="none", base_url=provider.url))
        assert all(one.state == "completed" for one in provider.requests)


@pytest.mark.parametrize("wire", [chat_completions, chat_by_library, messages_by_library])
async def test_a_steer_joins_the_next_step_and_a_queued_prompt_waits_over_every_wire_run_1_in_2(tmp_path, wire):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    async with asyncio.timeout(20), wire() as at:
        settings = config.Settings(database_url=str(tmp_path / "db"))
        async with Perdure([Agent("main", at.model, tools=[look])], settings=settings) as app:
            session = await app.sessions.create(id="ses")
            await session.prompt("FIRST", id="first")
            await at.provider.arrived("g")
            await session.prompt("QUEUED", id="queued", delivery="queue")
            sent = [await session.prompt("STEER", id="steer") for _ in range(3)]
            with pytest.raises(errors.PromptConflict):
                await session.prompt("OTHER", id="steer")
            at.provider.release("g")
            for message_id in ("first", "steer", "queued"):
                assert (await session.wait(message_id)).outcome == "succeeded"
            facts = [one.data async for one in session.events(follow=False)]
        await at.model.close()
    assert len(set(map(repr, sent))) == 1
    ended = [one.message_ids for one in facts if isinstance(one, events.ExecutionEnded)]
    assert ended == [("first", "steer"), ("queued",)]
    said = [[word for word in ("FIRST", "STEER", "QUEUED", "OTHER") if word in text] for text in at.asked()]
    assert said == [["FIRST"], ["FIRST", "STEER"], ["FIRST", "STEER", "QUEUED"]]
    assert [text.count("STEER") for text in at.asked()] == [0, 1, 1]
