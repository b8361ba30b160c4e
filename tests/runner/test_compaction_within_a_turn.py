"""A turn that outgrows the model's window goes on: its older steps are summarised, its prompt stays (CMP-1, CMP-2, MSG-9)."""

import io

import pytest

from perdure import tool
from perdure.core import attempts, compaction, events, messages, request
from perdure.errors import ModelErrorKind
from perdure.maintenance import transfer
from perdure.models import openai_request, port
from perdure.models.scripted import Call, Fail, Reasoning, ScriptedModel, Text
from perdure.testing import pairing

PROMPT = "Look at all of it"
OVERFLOW = [Fail(ModelErrorKind.CONTEXT_OVERFLOW)]
SUMMED = "Summary of the conversation so far:\n"


def texts(asked):
    """Every text of a request, by message; a call's is its id."""

    def text(one):
        if isinstance(one, request.ResultMessage):
            return one.text
        return " ".join(getattr(part, "text", "") or getattr(part, "call_id", "") for part in one.content)

    return [text(one) for one in asked.messages]


def length(asked):
    return sum(map(len, texts(asked)))


class Worker:
    """A model that looks until it has looked `looks` times, `at_once` side by side; a request longer than `window` characters
    is refused, that for a summary too. What it says then is `summary`.
    """

    def __init__(self, looks, *, at_once=1, size=100, window=None, summary="So far") -> None:
        self.looks, self.at_once, self.size, self.window, self.summary = looks, at_once, size, window, summary
        self.seen, self.asked, self.summarised, self.refused = [], [], [], []
        self.model = ScriptedModel(self.reply)

        @tool(effect="idempotent")
        async def look(n: int) -> str:
            """Look."""
            self.seen.append(n)
            return f"{n}:".ljust(self.size, "x")

        self.tool = look

    def reply(self, asked):
        assert pairing.problems(openai_request.body(asked)["messages"]) == []
        assert isinstance(asked.messages[0], request.UserMessage)
        if self.window and length(asked) > self.window:
            self.refused.append(asked)
            return OVERFLOW
        if texts(asked)[-1] == compaction.SUMMARISE:
            self.summarised.append(asked)
            return [Text(self.summary), port.Finish("stop", messages.Tokens(3, 2))]
        self.asked.append(asked)
        if len(self.seen) >= self.looks:
            return [Text("Done")]
        first = len(self.seen)
        calls = [Call("look", {"n": first + n}, f"c{first + n}") for n in range(self.at_once)]
        return [Reasoning("", provider_metadata={"signature": f"s{first}"}), *calls]

    def play(self, rig, tokens=None):
        rig.play(self.model, tools=[self.tool], context_tokens=tokens, max_steps=100)


def work(rig, worker, tokens=None):
    """One prompt and its whole turn; the receipt."""
    worker.play(rig, tokens)
    receipt = rig.ask(PROMPT)
    assert worker.seen == sorted(set(worker.seen)), "nothing was looked at twice"
    return receipt


def prompts_shown(worker):
    return {texts(asked).count(PROMPT) for asked in worker.asked}


# -- while the turn runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 3])
def test_past_the_estimate_the_older_steps_are_summarised_again_and_again_and_the_prompt_stays_cmp_1(rig, at_once):
    worker = Worker(30, at_once=at_once)
    assert work(rig, worker, tokens=600).outcome == "succeeded"
    assert len(worker.seen) == 30
    assert len(worker.summarised) > 2
    assert prompts_shown(worker) == {1}
    assert max(map(length, worker.asked)) < 600 * 4
    assert [one.message_id for one in rig.facts(events.PromptPromoted)] == ["hello"]
    assert [fact.outcome for fact in rig.facts(events.ExecutionEnded)] == ["succeeded"]
    assert len(rig.facts(events.CompactionEnded)) == len(worker.summarised)
    assert all(texts(asked)[1].startswith(SUMMED) for asked in worker.asked[-3:])


def test_every_step_is_shown_to_the_model_once_it_is_settled_before_any_summary_takes_it_cmp_1(rig):
    worker = Worker(30)
    work(rig, worker, tokens=600)
    for n in range(30):
        asked = worker.asked[n + 1]
        assert texts(asked)[-1].startswith(f"{n}:")
    summarised = " ".join(texts(one)[0] for one in worker.summarised)
    for n in worker.seen:
        assert f"-> {n}:" in summarised or f"{n}:".ljust(100, "x") in texts(worker.asked[-1])


def test_a_later_summary_is_made_of_the_earlier_one_and_no_request_holds_two_cmp_1(rig):
    worker = Worker(30)
    work(rig, worker, tokens=600)
    assert all("Summary so far: So far" in texts(one)[0] for one in worker.summarised[1:])
    assert all(f"User: {PROMPT}" in texts(one)[0] for one in worker.summarised)
    assert max(sum(one.startswith(SUMMED) for one in texts(asked)) for asked in worker.asked) == 1


def test_between_summaries_each_request_begins_with_the_whole_one_before_it_cmp_1(rig):
    worker = Worker(30)
    work(rig, worker, tokens=600)
    breaks = 0
    for before, after in zip(worker.asked, worker.asked[1:], strict=False):
        breaks += after.messages[: len(before.messages)] != before.messages
    assert breaks == len(worker.summarised)


def test_kept_steps_are_replayed_with_their_signatures_and_calls_side_by_side_stay_together_msg_9(rig):
    worker = Worker(30, at_once=3)
    work(rig, worker, tokens=600)
    for asked in worker.asked:
        for one in asked.messages:
            if isinstance(one, request.AssistantMessage):
                signed, *calls = one.content
                first = int(signed.provider_metadata["signature"][1:])
                assert [call.call_id for call in calls] == [f"c{first + n}" for n in range(3)]


def test_a_turn_the_provider_finds_too_long_goes_on_behind_a_summary_whatever_its_window_is_cmp_1(rig):
    worker = Worker(40, window=2_000)
    assert work(rig, worker).outcome == "succeeded"
    assert len(worker.seen) == 40
    assert 1 < len(worker.summarised) == len(worker.refused)
    assert prompts_shown(worker) == {1}
    assert len(rig.assistants) == 41, "the same assistant is asked again"
    assert not rig.facts(events.StepFailed)


def test_a_step_that_alone_is_too_long_for_the_window_is_summarised_and_the_model_asked_on_cmp_1(rig):
    worker = Worker(2, at_once=2, size=2_000, window=3_000, summary="It was long")
    assert work(rig, worker).outcome == "succeeded"
    assert texts(worker.asked[-1]) == [PROMPT, SUMMED + "It was long"]


def test_what_is_asked_meanwhile_stays_beside_the_first_prompt_cmp_1(rig):
    worker = Worker(30)

    async def steers(app, session):
        await session.prompt(PROMPT, id="hello")
        await rig.until(session, events.ToolSucceeded, nth=3)
        await session.prompt("In blue", id="blue")
        return await rig.settled(app, session)

    worker.play(rig, tokens=600)
    assert rig.live(steers).outcome == "succeeded"
    assert len(worker.summarised) > 2
    assert all("In blue" in texts(asked) for asked in worker.asked[6:])
    assert prompts_shown(worker) == {1}
    assert texts(worker.asked[-1])[:3] == [PROMPT, "In blue", SUMMED + "So far"]


def test_providers_that_want_the_roles_in_turn_get_them_so_msg_9(rig):
    theirs = pytest.importorskip("perdure.models.pydantic_ai_request", reason="the extra pydantic-ai is not installed")
    worker = Worker(30, at_once=2)
    work(rig, worker, tokens=600)
    speaker = request.Speaker("scripted", "scripted")
    for asked in worker.asked:
        roles = [one.kind for one in theirs.messages(asked, speaker, "scripted")]
        assert roles == ["request", "response"] * (len(roles) // 2) + ["request"]


# -- what cannot be helped ---------------------------------------------------------------------------------------------------


def test_a_summary_that_leaves_no_room_ends_the_turn_with_the_providers_words_after_one_try_a_step_cmp_1(rig):
    worker = Worker(30, window=2_000, summary="word " * 390)
    receipt = work(rig, worker)
    assert (receipt.outcome, receipt.error.type) == ("failed", "context_overflow")
    steps = len(rig.facts(events.StepStarted))
    assert len(rig.facts(events.CompactionStarted)) <= 2 < steps


def test_what_is_too_long_to_be_summarised_whole_is_summarised_from_its_two_ends_cmp_1(rig):
    worker = Worker(0)
    worker.play(rig)

    async def script(app, session):
        for n in range(4):
            worker.window = 10_000 if n == 3 else None
            await session.prompt(f"{n} begins " + "many words " * 500, id=f"p{n}")
            receipt = await rig.settled(app, session, f"p{n}")
        return receipt

    assert rig.live(script).outcome == "succeeded"
    (asked,) = worker.summarised
    assert texts(asked)[0].startswith("User: 0 begins")
    assert "characters left out" in texts(asked)[0]
    assert texts(asked)[0].endswith("Assistant: Done")
    used = [(one.source, one.tokens.input) for one in rig.facts(events.UsageRecorded)]
    assert used == [("compaction.retried", 0), ("compaction", 3)], "what was refused used nothing"
    made = attempts.Attempts()
    for one in rig.left.log:
        made.apply(one)
    assert [(one.kind, one.outcome) for one in made.found][-4:] == [
        ("step", "failed"),
        ("summary", "failed"),
        ("summary", "succeeded"),
        ("step", "succeeded"),
    ]


# -- at rest -----------------------------------------------------------------------------------------------------------------


def test_a_session_at_rest_whose_last_turn_is_huge_is_summarised_by_hand_and_goes_on_cmp_3(rig):
    worker = Worker(30, size=4_000)
    work(rig, worker)

    async def script(app, session):
        await session.compact()
        await rig.quiet(app)
        await session.prompt("And now?", id="next")
        return await rig.settled(app, session, "next")

    assert rig.live(script).outcome == "succeeded"
    before, after = worker.asked[-2:]
    assert length(after) < length(before) / 3
    assert texts(after)[:2] == [PROMPT, SUMMED + "So far"]
    assert texts(after)[-2:] == ["Done", "And now?"]


async def request_of(app, session_id):
    """What a model is asked next in a session."""
    held = (await app.engine.parts.histories.load(session_id)).freeze()
    return request.lower(held, request.Speaker("scripted", "scripted"), lambda _: None)


def test_a_fork_of_such_a_session_shows_its_model_the_same_api_3(rig):
    worker = Worker(30)
    work(rig, worker, tokens=600)

    async def script(app, session):
        child = await session.fork(id="child")
        return [await request_of(app, one.id) for one in (session, child)]

    parent, child = rig.live(script)
    assert len(parent) > 4
    assert child == parent


def test_a_session_exported_and_imported_elsewhere_shows_its_model_the_same_log_28(rig, tmp_path_factory):
    worker = Worker(30)
    work(rig, worker, tokens=600)

    async def out(app, session):
        lines = [line async for some in transfer.export(app.engine.log, None) for line in some.lines]
        return lines, await request_of(app, session.id)

    async def into(app):
        found = [one async for one in transfer.import_file(app.engine.log, io.BytesIO(b"".join(lines)))]
        assert [one.appended for one in found] == [len(lines)]
        return await request_of(app, "ses")

    lines, before = rig.live(out)
    rig.directory = tmp_path_factory.mktemp("elsewhere")
    worker.play(rig)

    assert rig.simulation.live(into).value == before


# -- deaths ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_in_a_summary_within_a_turn_fails_it_alone_and_the_turn_goes_on_cmp_2(rig, refuses, nth):
    worker = Worker(40, window=2_000 if refuses else None)
    tokens = None if refuses else 600

    def dies(asked):
        reply = worker.reply(asked)
        if len(worker.summarised) == nth and texts(asked)[-1] == compaction.SUMMARISE and not died:
            died.append(rig.die)
            rig.die()
        return reply

    died = []
    worker.play(rig, tokens)
    worker.model._replies = dies
    rig.ask(PROMPT)
    assert rig.left.claim.phase == "unknown"

    async def again(app, session):
        return await rig.settled(app, session)

    assert rig.live(again).outcome == "succeeded"
    assert worker.seen == [*range(40)], "no call runs twice, and none is left out"
    assert prompts_shown(worker) == {1}
    assert len(rig.facts(events.CompactionFailed)) == len(rig.facts(events.StepRecovered)) == 1


@pytest.mark.parametrize("refuses", [False, True])
def test_a_death_at_any_commit_of_a_turn_with_summaries_leaves_it_whole_cmp_2(rig, refuses):
    def begin():
        worker = Worker(5, size=500, window=2_000 if refuses else None)
        worker.play(rig, None if refuses else 900)
        return worker

    async def script(app, session):
        await session.prompt(PROMPT, id="hello")
        return await rig.settled(app, session)

    edge, died = 0, True
    while died:
        edge += 1
        worker = begin()
        died = rig.live(script, crash_at=edge) is None
        outcome = rig.live(script).outcome
        assert outcome == "succeeded"
        assert sorted(worker.seen) == [*range(len(worker.seen))]
        assert prompts_shown(worker) <= {1}
        assert worker.summarised
        rig.simulation.remove()
    assert edge > 25
