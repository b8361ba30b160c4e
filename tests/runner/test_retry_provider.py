"""Whole turns against a provider over real HTTP that fails in every way it knows (RUN-4, RUN-5, PUB-2, MSG-9).

The fake provider refuses, and records, every history whose calls and results are not strictly paired.
"""

import asyncio
import contextlib

import pytest

from perdure import Agent, Perdure, Policy, Retrying, config, tool
from perdure.core import events, messages
from perdure.models.openai_compatible import OpenAICompatible
from perdure.testing import fake_provider
from perdure.testing.provider_script import Call, Cut, Finish, HttpError, Item, Open, Raw, Rule, StreamError, Text

FAULTS: dict[str, tuple[Item, ...]] = {
    "500": (HttpError(500),),
    "503": (HttpError(503, body="<html>"),),
    "429": (HttpError(429, headers={"Retry-After": "0"}),),
    "529": (HttpError(529),),
    "closed before the first byte": (Cut(),),
    "reset before the first byte": (Cut("reset"),),
    "closed after the head": (Open(), Cut()),
    "ended without an end": (Open(), Cut("end")),
    "error in the stream": (Open(), StreamError("overloaded", code=503)),
    "closed in a text": (Text("Half", size=2), Cut()),
    "reset in a text": (Text("Half", size=2), Cut("reset")),
    "ended in a text": (Text("Half", size=2), Cut("end")),
    "half a chunk": (Text("Half"), Raw('data: {"choi'), Cut()),
    "error behind a text": (Text("Half"), StreamError("overloaded", code=503)),
    "closed behind a call": (Text("Half"), Call("pay", {"n": 1}), Cut()),
    "closed in a call": (Call("pay", '{"n"'), Cut()),
    "closed in the second call": (Call("pay", {"n": 1}), Call("pay", '{"n": 2'), Cut()),
    "cut short in a call": (Call("pay", '{"n'), Finish("length")),
    "a call that is no JSON": (Call("pay", "{'n': 1}"),),
    "a call without an id": (Call("pay", {"n": 1}, id=""),),
    "two calls of one id": (Call("pay", {"n": 1}, id="x"), Call("pay", {"n": 2}, id="x")),
    "a tool nobody has": (Call("steal", {"n": 1}),),
    "no usage": (Call("pay", {"n": 1}), Finish(usage=False)),
}


@contextlib.asynccontextmanager
async def engine(tmp_path, rules, paid):
    @tool(effect="write")
    async def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    async with asyncio.timeout(20), fake_provider.serve(rules) as provider:
        model = OpenAICompatible(name="fake", base_url=provider.url, api_key="none")
        settings = config.Settings(database_url=str(tmp_path / "db"))
        async with Perdure([Agent("main", model, tools=[pay])], settings=settings) as app:
            session = await app.sessions.create(id="ses", policy=Policy(retry=Retrying(base_ms=1)))
            yield session, provider
        await model.close()


def closed(transcript):
    """Nothing is left open, and every call has its outcome."""
    assistants = [one for one in transcript if isinstance(one, messages.Assistant)]
    calls = [part for one in assistants for part in one.parts if isinstance(part, messages.ToolPart)]
    assert all(one.time.completed for one in assistants)
    assert all(isinstance(part.state, messages.Completed | messages.Errored) for part in calls)
    return assistants


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("at", [0, 1], ids=["in the first step", "behind a call"])
async def test_one_answer_to_each_prompt_and_every_request_is_paired_run_4_run_5_msg_9(tmp_path, fault, at):
    paid = []
    done = Rule((Text("Done"),))
    first = [Rule((Call("pay", {"n": 0}),), equals="Pay", step=0, times=1)] if at else []
    async with engine(tmp_path, [*first, Rule(fault, times=1), done], paid) as (session, provider):
        for message_id in ("one", "two"):
            await session.prompt("Pay", id=message_id)
            receipt = await session.wait(message_id)
            assert (receipt.outcome, receipt.error) == ("succeeded", None)
        assert provider.violations == []
        assistants = closed(await session.messages())
        assert assistants[-1].parts[-1].text == "Done"
        assert len(paid) == len(set(paid)), "nothing was paid twice"
        ended = [one.data async for one in session.events(follow=False) if isinstance(one.data, events.ExecutionEnded)]
        assert [one.message_ids for one in ended] == [("one",), ("two",)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_not_pass_fails_at_once_and_is_asked_once_run_4(tmp_path, status):
    async with engine(tmp_path, [Rule((HttpError(status),), times=1), Rule((Text("Done"),))], []) as (
        session,
        provider,
    ):
        await session.prompt("Pay", id="one")
        assert (await session.wait("one")).outcome == "failed"
        assert len(provider.requests) == 1, "no library tries by itself"
        await session.prompt("Pay", id="two")
        assert (await session.wait("two")).outcome == "succeeded"


async def test_a_provider_that_is_always_down_is_asked_five_times_run_4(tmp_path):
    async with engine(tmp_path, [Rule((HttpError(503),))], []) as (session, provider):
        await session.prompt("Pay", id="one")
        assert (await session.wait("one")).error.type in {"server", "overloaded"}
        assert len(provider.requests) == 5


async def test_a_filtered_answer_over_the_wire_is_kept_and_failed_pub_4(tmp_path):
    async with engine(tmp_path, [Rule((Text("Half"), Finish("content_filter")))], []) as (session, _):
        await session.prompt("Pay", id="one")
        receipt = await session.wait("one")
        assert (receipt.outcome, receipt.error.type) == ("failed", "content_filter")
        (only,) = closed(await session.messages())
        assert (only.parts[0].text, bool(only.tokens)) == ("Half", True)


async def test_an_account_that_is_used_up_is_asked_once_and_the_prompt_runs_once_it_is_filled_run_4(tmp_path):
    words = "You exceeded your current quota, please check your plan and billing details."
    used_up = HttpError(429, words, code="insufficient_quota", type="insufficient_quota", headers={"Retry-After": "1"})
    rules = [Rule(reply=(used_up,), times=1), Rule(reply=(Text("Paid for."),))]
    async with engine(tmp_path, rules, []) as (session, provider):
        failed = await session.wait((await session.prompt("Hello", id="hello")).id)
        assert (failed.outcome, failed.error.type, len(provider.requests)) == ("failed", "quota", 1)
        assert failed.error.message.startswith(f"The provider answered 429: {words}")
        assert "top it up" in failed.error.message
        assert (failed.usage.unknown_tokens, failed.usage.unknown_cost) == (0, 0)
        await session.retry("hello")
        assert (await session.wait("hello")).outcome == "succeeded"
        assert [
            one.data
            for one in [e async for e in session.events(follow=False)]
            if isinstance(one.data, events.RetryScheduled)
        ] == []
