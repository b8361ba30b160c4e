"""Attempts of a step before anything of it was shown (RUN-4)."""

import itertools

import pytest

from perdure import Policy, Retrying, errors, tool
from perdure.core import events, messages
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import port
from perdure.models.scripted import Call, Cut, Fail, Gate, Hang, Text
from perdure.runner import retry, spending
from perdure.session import settings

HI = [Text("Hi")]
RETRYABLE = ["rate_limit", "overloaded", "server", "transport", "incomplete_stream", "timeout"]
MINUTE = 60_000


def failing(kind=ModelErrorKind.SERVER, **more):
    return [Fail(kind, **more)]


def waits(rig):
    """How long after each failure the next attempt was announced for, and left."""
    scheduled = [(one.data.at - one.created) for one in rig.left.log if isinstance(one.data, events.RetryScheduled)]
    starts = rig.at(events.StepStarted)
    return scheduled, [later - earlier for earlier, later in itertools.pairwise(starts)]


# -- the plan, pure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attempt", "wait"), [(1, 2_000), (2, 4_000), (3, 8_000), (4, 16_000), (5, None)])
def test_waits_double_from_two_seconds_five_attempts_in_all_run_4(attempt, wait):
    error = ModelError(ModelErrorKind.SERVER, "no")
    assert retry.delay_ms(retry.Plan(), attempt, error, 0.5) == wait


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 1_600), (0.5, 2_000), (0.999999999, 2_400)])
def test_jitter_spreads_by_a_fifth_either_way_run_4(chance, wait):
    assert retry.delay_ms(retry.Plan(), 1, ModelError(ModelErrorKind.SERVER, "no"), chance) == wait


@pytest.mark.parametrize(
    ("asked", "wait"), [(500, 2_000), (30_000, 30_000), (15 * MINUTE, 15 * MINUTE), (15 * MINUTE + 1, None)]
)
def test_a_longer_retry_after_wins_up_to_a_quarter_of_an_hour_run_4(asked, wait):
    error = ModelError(ModelErrorKind.RATE_LIMIT, "no", retry_after_ms=asked)
    assert retry.delay_ms(retry.Plan(), 1, error, 0.5) == wait


@pytest.mark.parametrize("kind", ModelErrorKind)
def test_only_what_may_pass_by_itself_is_tried_again_run_4(kind):
    assert (retry.delay_ms(retry.Plan(), 1, ModelError(kind, "no"), 0.5) is not None) == (kind.value in RETRYABLE)


def test_a_policy_speaks_for_all_errors_or_for_one_kind_run_4():
    plan = retry.chosen(
        retry.Plan(), Retrying(attempts=2, base_ms=100, attempts_of={"rate_limit": 9, "unknown": 2, "server": 1})
    )

    def wait(kind, attempt):
        return retry.delay_ms(plan, attempt, ModelError(kind, "no"), 0.5)

    assert (wait(ModelErrorKind.TRANSPORT, 1), wait(ModelErrorKind.TRANSPORT, 2)) == (100, None)
    assert wait(ModelErrorKind.RATE_LIMIT, 8) == 100 * 2**7
    assert (wait(ModelErrorKind.UNKNOWN, 1), wait(ModelErrorKind.UNKNOWN, 2)) == (100, None)
    assert wait(ModelErrorKind.SERVER, 1) is None
    assert wait(ModelErrorKind.AUTH, 1) is None
    assert retry.chosen(retry.Plan(), None) == retry.Plan()


def test_no_policy_asks_an_account_again_that_is_used_up_run_4():
    used_up = ModelError(ModelErrorKind.QUOTA, "no", retry_after_ms=10)
    assert retry.delay_ms(retry.Plan(attempts_of={"quota": 9}), 1, used_up, 0.5) is None
    settings.check(None, None, Policy(retry=Retrying(attempts_of={"quota": 1})))
    with pytest.raises(errors.InvalidInput, match="fills no account"):
        settings.check(None, None, Policy(retry=Retrying(attempts_of={"quota": 2})))


# -- in an engine ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RETRYABLE)
def test_a_passing_error_is_retried_by_the_same_assistant_run_4(rig, kind):
    rig.play([failing(ModelErrorKind(kind)), HI])
    assert rig.ask().outcome == "succeeded"
    answered = ModelErrorKind(kind) in spending.REFUSED
    assert rig.names()[3:] == [
        "execution.started",
        "step.started",
        *([] if answered else ["usage.recorded"]),
        "retry.scheduled",
        "step.started",
        "text.started",
        "text.ended",
        "step.ended",
        "execution.ended",
    ]
    (retried,) = rig.facts(events.RetryScheduled)
    assert (retried.attempt, retried.error.type) == (2, kind)
    (only,) = rig.assistants
    assert (only.retry, only.finish) == (None, "stop")


def test_a_provider_that_always_fails_is_asked_five_times_with_growing_gaps_run_4(rig):
    rig.play(lambda _: failing())
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type, len(rig.model.requests)) == ("failed", "server", 5)
    announced, left = waits(rig)
    assert announced == left, "never before its time"
    for wait, base in zip(announced, (2_000, 4_000, 8_000, 16_000), strict=True):
        assert 0.8 * base <= wait <= 1.2 * base
    assert len(rig.facts(events.StepFailed)) == 1
    assert [one.attempt for one in rig.facts(events.RetryScheduled)] == [2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["auth", "invalid_request", "content_filter", "unknown"])
def test_any_other_error_fails_at_once_with_its_type_run_4(rig, kind):
    rig.play([failing(ModelErrorKind(kind), detail="because")])
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error) == ("failed", messages.Failure(kind, "because"))
    assert not rig.facts(events.RetryScheduled)


def test_retry_after_is_honoured_and_a_day_of_it_fails_at_once_run_4(rig):
    rig.play([failing(ModelErrorKind.RATE_LIMIT, retry_after_ms=90_000), HI, failing(retry_after_ms=86_400_000)])
    assert rig.ask().outcome == "succeeded"
    assert waits(rig) == ([90_000], [90_000])
    assert rig.ask(id="second").outcome == "failed"


def test_once_a_call_is_durable_the_same_attempt_is_not_made_again_run_4(rig):
    ran = []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    rig.play([[Call("pay", {}, "c1"), Cut()], HI], tools=[pay])
    assert rig.ask().outcome == "succeeded"
    assert (ran, rig.facts(events.RetryScheduled)) == (["paid"], [])


def test_while_it_waits_the_phase_is_ready_and_the_status_says_until_when_run_4(rig):
    rig.play([failing(), HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        scheduled = await rig.until(session, events.RetryScheduled)
        claim = await app.engine.store.read(lambda tx: tx.claims.of_session("ses"))
        status = await session.status()
        await rig.settled(app, session)
        return scheduled, claim, status

    scheduled, claim, status = rig.live(script)
    assert claim.phase == "ready"
    assert (status.status, status.until) == ("retrying", scheduled.at)


def test_a_wait_is_interruptible_and_no_attempt_follows_run_4(rig):
    rig.play([failing(retry_after_ms=10 * MINUTE), HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.RetryScheduled)
        before = app.engine.world.clock.now_ms()
        await session.interrupt()
        receipt = await rig.settled(app, session)
        return receipt.outcome, app.engine.world.clock.now_ms() - before

    outcome, took = rig.live(script)
    assert (outcome, len(rig.model.requests)) == ("interrupted", 1)
    assert took < 1_000


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restart_does_not_call_before_the_time_and_keeps_the_count_run_4(rig, how):
    rig.play(
        [failing(), failing(), failing(ModelErrorKind.RATE_LIMIT, retry_after_ms=10 * MINUTE), failing(), failing(), HI]
    )

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.RetryScheduled, nth=3)
        if how == "killed":
            await rig.killed()

    rig.live(script)
    third = rig.facts(events.RetryScheduled)[-1]

    async def again(app, session):
        return await rig.settled(app, session)

    receipt = rig.live(again)
    fourth = rig.at(events.StepStarted)[3]
    assert fourth >= third.at, "not before its time"
    assert fourth - third.at < 6_000
    assert [one.attempt for one in rig.facts(events.RetryScheduled)] == [2, 3, 4, 5]
    assert (receipt.outcome, len(rig.model.requests)) == ("failed", 5)


def test_a_session_may_wait_longer_or_never_run_4(rig):
    rig.policy = Policy(retry=Retrying(attempts_of={"rate_limit": 8, "server": 1}))
    rig.play([failing(ModelErrorKind.RATE_LIMIT)] * 7 + [HI, failing()])
    assert rig.ask().outcome == "succeeded"
    assert rig.ask(id="second").outcome == "failed"
    assert len(rig.model.requests) == 9


def test_an_attempt_that_was_billed_is_counted_once_run_4(rig):
    tokens = messages.Tokens(3, 4)
    rig.policy = Policy(retry=Retrying(attempts_of={"content_filter": 2}))
    rig.play([[port.Finish("content_filter", tokens, 5)], [Text("Hi"), port.Finish("stop", tokens, 5)]])
    assert rig.ask().outcome == "succeeded"
    assert (rig.left.session.usage.tokens, rig.left.session.usage.cost) == (messages.Tokens(6, 8), 10)


def test_nothing_is_promoted_between_attempts_run_4(rig):
    rig.play([failing(), HI, HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.RetryScheduled)
        await session.prompt("Steer", id="steer")
        await session.wait("steer")

    rig.live(script)
    assert [len(one.messages) for one in rig.model.requests[:2]] == [1, 1]


def test_a_hang_is_no_failure_run_4(rig):
    gate = Gate()
    rig.play([[Hang(gate), Text("Hi")]])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await gate.arrived()
        await app.engine.world.clock.sleep_ms(30 * MINUTE)
        gate.open()
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
