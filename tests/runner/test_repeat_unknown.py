"""A write whose outcome nobody knows is not simply made again (APR-4)."""

import asyncio

import pytest

from perdure import Policy, tool
from perdure.core import events, messages, transcript
from perdure.models.scripted import Call, Text
from perdure.runner import approval, loops

HI = [Text("Hi")]


class Bank:
    """A tool whose first call kills the process that made it."""

    def __init__(self, rig, effect="write") -> None:
        self.made = []

        @tool(name="pay", effect=effect)
        async def pay(cents: int, to: str = "") -> str:
            """Pay."""
            self.made.append(cents)
            if len(self.made) == 1:
                rig.die()
            return "paid"

        self.tool = pay


def crash_and(rig, bank, *replies):
    """A life that dies in a payment of 7, and what the next one does: until nobody runs any more."""
    rig.play([[Call("pay", {"cents": 7, "to": "a"}, "c1")], *replies], tools=[bank.tool])

    async def first(app, session):
        await session.prompt("Pay", id="hello")
        await session.wait("hello")

    async def second(app, session):
        await app.engine._sweep.once()
        await rig.quiet(app)
        return [one.call_id for one in await session.approvals()]

    rig.live(first)
    return rig.live(second)


AGAIN = [Call("pay", '{"to": "a", "cents": 7}', "c2")]


@pytest.mark.parametrize(
    ("policy", "waiting", "made", "error"),
    [("ask", ["c2"], 1, None), ("deny", [], 1, "denied"), ("allow", [], 2, None)],
)
def test_the_same_write_asks_is_denied_or_allowed_as_the_policy_says_apr_4(rig, policy, waiting, made, error):
    rig.policy = Policy(repeat_unknown=policy)
    bank = Bank(rig)
    assert crash_and(rig, bank, AGAIN, HI) == waiting
    assert len(bank.made) == made
    (part,) = rig.assistants[1].parts
    assert (part.state.error.type if isinstance(part.state, messages.Errored) else None) == error


def test_asking_is_the_default_and_a_person_may_let_it_run_once_apr_4(rig):
    bank = Bank(rig)
    assert crash_and(rig, bank, AGAIN, HI) == ["c2"]

    async def approve(app, session):
        await session.decide("c2", "approve")
        return await rig.settled(app, session)

    assert rig.live(approve).outcome == "succeeded"
    assert bank.made == [7, 7]


@pytest.mark.parametrize("call", [Call("pay", {"cents": 8, "to": "a"}, "c2"), Call("pay", {"cents": 7}, "c2")])
def test_another_input_is_another_call_apr_4(rig, call):
    bank = Bank(rig)
    assert crash_and(rig, bank, [call], HI) == []
    assert len(bank.made) == 2


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_what_may_be_repeated_asks_nobody_apr_4(rig, effect):
    bank = Bank(rig, effect)
    assert crash_and(rig, bank, AGAIN, HI) == []
    assert len(bank.made) == 2


def test_in_a_later_turn_of_the_session_the_outcome_is_still_unknown_apr_4(rig):
    bank = Bank(rig)
    assert crash_and(rig, bank, HI) == []
    rig.model._replies = [*rig.model._replies, AGAIN, HI]

    async def later(app, session):
        await session.prompt("Pay again", id="later")
        await rig.quiet(app)
        return [one.call_id for one in await session.approvals()]

    assert rig.live(later) == ["c2"]


def test_a_write_that_ran_out_of_time_may_have_happened_too_apr_4(rig):
    @tool(effect="write", timeout_s=1)
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return "never"

    rig.play([[Call("pay", {}, "c1")], [Call("pay", {}, "c2")]], tools=[pay])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await rig.quiet(app)
        return [one.call_id for one in await session.approvals()]

    assert rig.live(script) == ["c2"]
    assert [one.call_id for one in rig.facts(events.ToolFailed)] == ["c1"]


def test_the_rule_looks_at_name_canonical_input_and_effect_only_apr_4():
    def part(effect, kind, ran=1):
        state = messages.Errored({"b": 1, "a": 2}, messages.Failure(kind, "x"))
        return messages.ToolPart("c", "pay", state, messages.PartTime(0, ran), effect)

    def unknown(*parts):
        assistant = messages.Assistant("m", 1, messages.MessageTime(0), "main", "x:y", parts=parts)
        return approval.unknown_calls([assistant])

    assert unknown(part("write", "unknown")) == {loops.key("pay", {"a": 2, "b": 1})}
    assert unknown(part("read", "unknown"), part("write", "tool_error"), part("write", "unknown", None)) == frozenset()


def lost(n, *, completed=5):
    state = messages.Errored({"n": n}, messages.Failure("unknown", "x"))
    part = messages.ToolPart("c", "pay", state, messages.PartTime(0, 1), "write")
    time = messages.MessageTime(0, completed)
    return messages.Assistant(f"m{n}", n, time, "main", "x:y", parts=(part,))


def test_settled_messages_are_looked_at_once_however_often_somebody_asks_apr_4(monkeypatch):
    looked, real = [], approval.unknown_calls
    monkeypatch.setattr(approval, "unknown_calls", lambda found: looked.append(len(found)) or real(found))
    unknown, told = approval.UnknownCalls(), (lost(0), lost(1, completed=None))
    for held in (told, (*told[:1], lost(1)), (*told[:1], lost(1), lost(2))):
        assert unknown.of(transcript.Transcript(held)) == real(held)
    assert sum(looked) == 4, "the open one twice"


def test_unknown_calls_of_another_transcript_are_looked_for_anew_apr_4():
    unknown = approval.UnknownCalls()
    unknown.of(transcript.Transcript((lost(0), lost(1))))
    assert unknown.of(transcript.Transcript((lost(2), lost(3)))) == approval.unknown_calls([lost(2), lost(3)])
    assert unknown.of(transcript.Transcript()) == frozenset()
