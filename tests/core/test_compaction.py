"""Where a conversation is cut, and what a model is shown then: pure, for any transcript and any window (CMP-1, MSG-9)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core import compaction, events, lowering, messages, request
from perdure.models import openai_request
from perdure.testing import pairing

SPEAKER = request.Speaker("scripted", "m")
SIGNED = {"signature": "s"}


def nothing(_):
    return None


def limit(usable):
    """A window that a request may fill as far as that."""
    return compaction.Limit(usable, 0)


def step(story, name, size=4, calls=1, finish="tool_calls"):
    """A settled step of that many tokens, each of its calls with a result; without calls it is an answer."""
    story.step(name)
    story.think("", f"r-{name}", name, SIGNED)
    share = "x" * (size * 4 // max(calls, 1))
    for n in range(calls):
        story.running(f"c{n}", name)
        story.of(events.ToolSucceeded, f"c{n}", name, content=({"text": share},))
    if not calls:
        story.say(share, f"t-{name}", name)
    story.end(name, finish if calls else "stop")


def fail(story, name, kind):
    story.tell(events.StepFailed, assistant_message_id=name, error=messages.Failure(kind, "No"))


def ids(story):
    return [one.id for one in request.visible(story.transcript)]


def summarise(story, window, name, summary="so far"):
    """What a runner does: cut where the core says; whether there was anything to cut."""
    visible = request.visible(story.transcript)
    cut = compaction.cut(visible, window)
    if cut is None:
        return False
    story.tell(events.CompactionStarted, message_id=name, reason="auto")
    kept = visible[cut.index :]
    recent = kept[0].id if kept else ""
    story.tell(events.CompactionEnded, message_id=name, summary=summary, recent=recent, prompts=cut.prompts or None)
    return True


def shown(story):
    """What the model is asked; the kept lowering says the same as the plain one, and every call has its one result."""
    draft = lowering.Lowering().draft(story.transcript, SPEAKER)
    lowered = request.lower(story.transcript, SPEAKER, nothing)
    assert (draft.problem, draft.fill(nothing)) == (None, lowered)
    asked = request.Request("ses_1", "m", "", lowered)
    assert pairing.problems(openai_request.body(asked)["messages"]) == []
    return lowered


# -- examples ----------------------------------------------------------------------------------------------------------------


def test_a_turn_longer_than_what_is_kept_is_cut_between_two_of_its_steps_behind_its_prompt_cmp_1(story):
    story.ask("build it")
    for n in range(9):
        step(story, f"a{n}", 10)
    assert summarise(story, limit(90), "k")
    assert ids(story) == ["u", "k", "a5", "a6", "a7", "a8"]
    first, told, call, result, *_ = shown(story)
    assert (first.content[0].text, told.content[0].text) == (
        "build it",
        "Summary of the conversation so far:\nso far",
    )
    assert isinstance(result, request.ResultMessage)
    assert call.content[0] == request.ReasoningContent("", SIGNED), "a kept step is replayed whole"


def test_a_turn_that_is_cut_again_keeps_its_prompt_and_forgets_no_step_between_cmp_1(story):
    story.ask("build it")
    for n in range(20):
        step(story, f"a{n}", 10)
        before = ids(story)
        if len(before) > 8:
            assert summarise(story, limit(80), f"k{n}")
            kept = ids(story)[2:]
            assert before[-len(kept) :] == kept, "what is not kept was in what the summary was made of"
        assert ids(story)[0] == "u"
    assert sum(isinstance(one, messages.Compaction) for one in story.transcript.messages) > 2


def test_all_that_was_asked_in_the_turn_stays_cmp_1(story):
    story.ask("hello", "before")
    step(story, "answer", calls=0)
    story.ask("build it", "first")
    step(story, "a0", 40)
    story.ask("in blue", "steer")
    step(story, "a1", 40)
    step(story, "a2", 40)
    assert summarise(story, limit(90), "k")
    assert ids(story) == ["first", "steer", "k", "a2"]


def test_older_turns_go_first_and_whole_where_the_newest_fits_cmp_1(story):
    for n in range(4):
        story.ask("and then?", f"u{n}")
        step(story, f"a{n}", 30)
        step(story, f"b{n}", 4, calls=0)
    assert summarise(story, limit(90), "k")
    assert ids(story) == ["k", "u3", "a3", "b3"]


def test_the_newest_step_stays_though_it_is_more_than_is_kept_since_its_results_are_not_seen_yet_cmp_1(story):
    story.ask("build it")
    step(story, "a0", 100)
    step(story, "a1", 60)
    story.ask("hurry", "steer")
    assert summarise(story, limit(100), "k")
    assert ids(story) == ["u", "k", "a1", "steer"]


def test_a_step_that_cannot_fit_is_summarised_too_and_what_came_behind_it_stays_cmp_1(story):
    story.ask("build it")
    step(story, "a0", 500)
    assert summarise(story, limit(100), "k")
    assert ids(story) == ["u", "k"]
    step(story, "a1", 500)
    story.ask("hurry", "steer")
    story.step("open")
    assert summarise(story, limit(100), "k2")
    assert ids(story) == ["u", "k2", "steer", "open"]


def test_a_prompt_that_does_not_fit_is_in_the_summary_alone_and_one_not_answered_yet_never_is_cmp_1(story):
    story.ask("x" * 4_000, "huge")
    step(story, "a0", 30)
    step(story, "a1", 30)
    assert summarise(story, limit(100), "k")
    assert ids(story)[0] == "k"
    step(story, "a2", calls=0)
    story.ask("y" * 4_000, "new")
    assert summarise(story, limit(100), "k2")
    assert ids(story) == ["k2", "new"]


@pytest.mark.parametrize("seen", [False, True])
def test_a_prompt_whose_first_answer_died_with_its_owner_may_never_have_been_seen_and_stays_cmp_1_in_12(story, seen):
    story.ask("x" * 4_000, "huge")
    if seen:
        step(story, "a0", 30)
    story.step("a1")
    dies(story, "a1")
    story.tell(events.SyntheticAdded, message_id="continue", text="Go on")
    assert summarise(story, limit(100), "k") == seen
    assert ids(story)[0] == ("k" if seen else "huge")


def test_a_turn_is_not_summarised_anew_for_every_step_where_that_frees_next_to_nothing_cmp_1(story):
    story.ask("x" * 320)
    cuts = 0
    for n in range(40):
        step(story, f"a{n}", 2)
        too_long = compaction.estimate(request.visible(story.transcript)) > 100
        cuts += too_long and summarise(story, limit(100), f"k{n}")
    assert 1 < cuts <= 8


def test_a_step_still_open_is_no_boundary_and_never_goes_cmp_1(story):
    story.ask("build it")
    step(story, "a0", 50)
    step(story, "a1", 50)
    story.step("open")
    story.running("c", "open")
    assert summarise(story, compaction.refused(request.visible(story.transcript), None), "k")
    assert ids(story) == ["u", "k", "a1", "open"]


def stops(story, name):
    story.tell(events.StepInterrupted, assistant_message_id=name, error=messages.Failure("interrupted", "Interrupted"))


def goes_on(story, name):
    fail(story, name, "incomplete")
    story.tell(events.SyntheticAdded, message_id=f"{name} goes on", text="Go on")


def tells(story, name):
    stops(story, name)
    story.tell(events.ContextUpdated, message_id=f"{name} note", text="It is Monday")


def dies(story, name):
    story.tell(events.StepRecovered, execution_id=f"exe_{name}", phase="unknown", assistant_message_id=name, armed=True)


ENDS = {
    "answered": (lambda story, name: story.end(name), False),
    "failed": (lambda story, name: fail(story, name, "auth"), False),
    "interrupted": (stops, False),
    "interrupted, and told something": (tells, False),
    "gone on with": (goes_on, True),
    "its owner died": (dies, True),
    "calls": (lambda story, name: (story.running("c", name), story.end(name, "tool_calls")), True),
}


@pytest.mark.parametrize(("happens", "same"), ENDS.values(), ids=ENDS)
def test_a_prompt_behind_an_answer_belongs_to_its_turn_unless_that_ended_there_cmp_1(story, happens, same):
    story.ask("one", "u1")
    story.step("a1")
    happens(story, "a1")
    story.ask("two", "u2")
    for n in range(6):
        step(story, f"b{n}", 30)
    assert summarise(story, limit(100), "k")
    assert ids(story) == [*(["u1"] if same else []), "u2", "k", "b5"]


def test_what_a_retry_repeats_is_the_turns_prompt_cmp_1(story):
    story.ask("one", "u1")
    story.step("a1")
    stops(story, "a1")
    common = {"kind": "synthetic", "delivery": "queue", "time_created": 7}
    story.tell(events.PromptPromoted, message_id="msg_retry_u1_1", prompt=messages.text_prompt("Again"), **common)
    for n in range(6):
        step(story, f"b{n}", 30)
    assert summarise(story, limit(100), "k")
    assert ids(story) == ["u1", "k", "b5"]


def test_an_older_log_whose_summary_names_no_prompts_is_shown_as_ever_cmp_1(story):
    story.ask("one", "u1")
    step(story, "a1")
    story.ask("two", "u2")
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    story.tell(events.CompactionEnded, message_id="k", summary="all", recent="u2")
    assert ids(story) == ["k", "u2"]


@pytest.mark.parametrize("prompts", [(99,), (-1,), (1,), (0, 0)])
def test_prompts_that_are_none_or_kept_already_are_passed_over_cmp_1(story, prompts):
    story.ask("one", "u1")
    step(story, "a1")
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    story.tell(events.CompactionEnded, message_id="k", summary="all", recent="u1", prompts=prompts)
    assert ids(story) == ["k", "u1", "a1"]


# -- any transcript ----------------------------------------------------------------------------------------------------------

SIZES = st.integers(0, 60)
HAPPENS = st.one_of(
    st.tuples(st.just("steps"), SIZES, st.integers(1, 4)),
    st.tuples(st.just("ask"), st.integers(0, 12) | st.just(300)),
    st.tuples(st.just("answer"), SIZES),
    st.tuples(st.just("ends"), st.sampled_from([*ENDS])),
    st.tuples(st.sampled_from(["note", "open", "switch"])),
    st.tuples(st.just("summary"), SIZES),
)
WINDOWS = st.none() | st.integers(20, 200).map(limit)


class Tale:
    """A transcript that grows by whatever happens; `asked` are the prompts of its newest turn that a model has to see."""

    def __init__(self, story, window):
        self.story, self.window = story, window
        self.count, self.asked, self.over, self.answering = 0, {}, False, None
        self.unseen = set()

    def tell(self, what, *how):
        self.count += 1
        if what not in {"note", "switch", "summary"}:
            self.answering = None
        if what in {"steps", "answer"} or how in {("answered",), ("calls",)}:
            self.unseen.clear()
        getattr(self, what)(f"m{self.count}", *how)

    def ask(self, name, size):
        self.story.ask("u" * size * 4, name)
        self.asked = {} if self.over else self.asked
        self.asked[name] = size
        self.unseen.add(name)
        self.over = False

    def steps(self, name, size, calls):
        for n in range(3):
            step(self.story, f"{name}.{n}", size, calls)

    def answer(self, name, size):
        step(self.story, name, size, calls=0)
        self.over = True

    def ends(self, name, how):
        happens, same = ENDS[how]
        self.story.step(name)
        happens(self.story, name)
        self.over = self.over or not same

    def open(self, name):
        self.story.step(name)
        self.story.running("c", name)
        self.answering = name

    def note(self, name):
        self.story.tell(events.ContextUpdated, message_id=name, text="It is Monday")

    def switch(self, name):
        self.story.tell(events.ModelSwitched, message_id=name, model="b:c")

    def summary(self, name, size):
        before = request.visible(self.story.transcript)
        window = self.window or compaction.refused(before, None)
        if not summarise(self.story, window, name, "s" * size):
            return
        after = request.visible(self.story.transcript)
        at = [one.id for one in after].index(name)
        kept = after[at + 1 :]
        assert [*kept] == [*before[len(before) - len(kept) :]], "all behind the cut is there, in its order"
        assert all(isinstance(one, messages.User) for one in after[:at])
        there = {one.id for one in after}
        assert self.answering is None or self.answering in there, "what is still being answered never goes"
        assert sum(self.asked.values()) > window.usable or self.asked.keys() <= there
        assert self.asked.keys() & self.unseen <= there, "nor does what no model may have seen"
        self.asked = {one: size for one, size in self.asked.items() if one in there}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(happens=st.lists(HAPPENS, max_size=25), window=WINDOWS)
def test_whatever_happened_a_cut_leaves_each_call_its_one_result_and_the_newest_turn_its_prompts_cmp_1_msg_9(
    story_of, happens, window
):
    tale = Tale(story_of(), window)
    for one in happens:
        tale.tell(*one)
        shown(tale.story)
    tale.tell("summary", 3)
    shown(tale.story)
