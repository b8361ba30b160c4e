"""The tables of life cycles, every move of every state, and the fold that asks them (MSG-3, EX-4, IN-12)."""

import pytest

from perdure import errors
from perdure.core import events, lifecycle, messages
from perdure.core.lifecycle import EXECUTION, INPUT, PHASE, STEP, TABLES, TOOL

FAILURE = messages.Failure("timeout", "Too slow")


def moves(table):
    """Every move that any state of the table knows."""
    return sorted({move for known in table.values() for move in known})


EVERY = [(name, state, move) for name, table in TABLES.items() for state in table for move in moves(table)]
LEGAL = [one for one in EVERY if one[2] in TABLES[one[0]][one[1]]]
ILLEGAL = [one for one in EVERY if one not in LEGAL]
TERMINAL = [(name, state) for name, table in TABLES.items() for state in sorted(lifecycle.terminal(table))]


@pytest.mark.parametrize(("name", "state", "move"), LEGAL)
def test_a_legal_move_leads_where_the_table_says(name, state, move):
    table = TABLES[name]
    assert lifecycle.require(table, state, move) == lifecycle.advance(table, state, move) == table[state][move]


@pytest.mark.parametrize(("name", "state", "move"), LEGAL)
def test_a_legal_move_leads_to_a_state_of_the_same_table(name, state, move):
    assert TABLES[name][state][move] in TABLES[name]


@pytest.mark.parametrize(("name", "state", "move"), ILLEGAL)
def test_an_illegal_move_changes_nothing_in_a_fold_and_is_a_bug_in_a_writer(name, state, move):
    assert lifecycle.advance(TABLES[name], state, move) is None
    with pytest.raises(errors.IllegalTransition, match=f"A {name} that is '{state}' cannot take '{move}'"):
        lifecycle.require(TABLES[name], state, move)


@pytest.mark.parametrize(("name", "state"), TERMINAL)
def test_a_terminal_state_absorbs_every_move_msg_3(name, state):
    assert all(lifecycle.advance(TABLES[name], state, move) is None for move in moves(TABLES[name]))


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (TOOL, {"completed", "error"}),
        (STEP, {"ended", "failed", "interrupted", "recovered", "superseded"}),
        (EXECUTION, {"ended"}),
        (INPUT, set()),
        (PHASE, set()),
    ],
)
def test_the_terminal_states_are_these_and_a_prompt_can_always_run_again_in_12(table, states):
    assert lifecycle.terminal(table) == states


@pytest.mark.parametrize(("name", "table"), TABLES.items())
def test_every_state_can_be_reached_from_the_first(name, table):
    reached, frontier = set(), [next(iter(table))]
    while frontier:
        state = frontier.pop()
        reached.add(state)
        frontier += [following for following in table[state].values() if following not in reached]
    assert reached == set(table)


@pytest.mark.parametrize("state", PHASE)
def test_whatever_leaves_for_a_provider_is_unknown_until_it_settles_ex_4(state):
    assert PHASE[state]["send"] == "unknown"
    assert ("settle" in PHASE[state]) == (state == "unknown")


def test_an_execution_is_closed_at_most_once_after_it_was_recovered_rec_11():
    assert EXECUTION["recovered"] == {"ended": "ended"}


# -- the fold obeys the table ------------------------------------------------------------------------------------------------

TOLD = {
    "input_ended": (events.ToolInputEnded, {"text": "{}"}),
    "approval_requested": (events.ToolApprovalRequested, {"input": {}}),
    "approval_resolved": (events.ToolApprovalResolved, {"decision": "approve", "by": "me"}),
    "called": (events.ToolCalled, {"name": "look", "input": {}}),
    "progress": (events.ToolProgress, {"structured": {"n": 1}}),
    "succeeded": (events.ToolSucceeded, {}),
    "failed": (events.ToolFailed, {"error": FAILURE}),
    "closed": (events.StepInterrupted, {"error": FAILURE}),
}


def reach(story, state):
    story.step()
    if state == "pending":
        story.pending()
        return
    story.running()
    if state == "completed":
        story.of(events.ToolSucceeded)
    elif state == "error":
        story.of(events.ToolFailed, error=FAILURE)


def test_every_move_of_a_tool_call_has_a_fact():
    assert sorted(TOLD) == moves(TOOL)


@pytest.mark.parametrize("state", TOOL)
@pytest.mark.parametrize("move", TOLD)
def test_a_fact_moves_a_tool_call_as_the_table_says_and_no_other_fact_touches_it_msg_3(story, state, move):
    reach(story, state)
    before, (cls, fields) = story.part, TOLD[move]
    if move != "closed":
        fields = {"call_id": "c", **fields}
    story.tell(cls, assistant_message_id="a", **fields)
    following = TOOL[state].get(move)
    assert messages.tool_status(story.part) == (following or state)
    assert following or story.part is before


@pytest.mark.parametrize("end", [events.StepEnded, events.StepFailed, events.StepInterrupted, events.StepRecovered])
def test_a_step_that_is_over_absorbs_every_further_fact_msg_4(story, end):
    story.step()
    story.say("so far")
    fields = {"finish": "stop"} if end is events.StepEnded else {"error": FAILURE}
    if end is events.StepRecovered:
        fields = {"execution_id": "exe", "phase": "unknown"}
    story.tell(end, assistant_message_id="a", **fields)
    over = story.transcript.messages
    for cls in (events.StepEnded, events.StepFailed, events.StepInterrupted):
        more = {"finish": "length"} if cls is events.StepEnded else {"error": FAILURE}
        assert story.tell(cls, assistant_message_id="a", **more) is over
    assert story.tell(events.RetryScheduled, assistant_message_id="a", attempt=2, at=5, error=FAILURE) is over
    assert story.say("more", "t2") is over
    assert story.step() is over
