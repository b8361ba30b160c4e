"""Every death of every chapter: before and after each commit, and again before and after each commit of what follows.

The points are counted, not listed (`perdure.testing.simulator_walk`), and said aloud. The default suite dies at every edge
of each chapter and at some pairs; `make soak` dies at all pairs of each, and at every edge of all chapters in one session;
`make crash` dies at all pairs of those, on all cores.
"""

import pytest
import shop
import walking

from perdure.core import events
from perdure.testing import simulator_walk

pytestmark = pytest.mark.slow
CHAPTERS = list(shop.CHAPTERS)
FEW = {"turn": 150, "stopped": 60, "approved": 50, "moody": 30, "broken": 30, "compacted": 60}


def walk(place, chapter, says, *, deaths="seen", **how):
    plan = shop.CHAPTERS.get(chapter, shop.whole)
    walked = simulator_walk.walk(lambda: shop.Story(place, plan, deaths=deaths), **how)
    says(f"{chapter}: {walked}")
    assert walked.failures == [], "\n\n".join(walked.failures)
    return walked


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_comes_to_its_end_where_nobody_dies(place, chapter):
    """IN-12, RUN-3, RUN-4, RUN-5, APR-2, CMP-1, EX-8: the walks below are walks of what they say."""
    story = shop.Story(place, shop.CHAPTERS[chapter])
    story.live()
    assert story.problems(at_rest=True) == []
    left = story.left()
    names = [one.data.event_type.removeprefix("session.") for one in left.log]
    wanted = {
        "turn": ["tool.called"] * 3 + ["tool.succeeded"] * 3,
        "stopped": ["execution.interrupt_requested", "step.interrupted"],
        "approved": ["execution.parked", "execution.resumed", "tool.approval_resolved", "tool.failed"],
        "moody": ["retry.scheduled"] * 2,
        "broken": ["step.failed", "synthetic"],
        "compacted": ["compaction.ended"] * 2,
    }[chapter]
    assert all(names.count(one) >= wanted.count(one) for one in wanted)
    if chapter == "compacted":
        assert [one.reason for one in left.facts(events.CompactionStarted)] == ["auto", "manual"]
    outcomes = {row.id: row.outcome for row in left.inputs if row.kind == "user"}
    assert outcomes == {one: "interrupted" if one == "slow" else "succeeded" for one in outcomes}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_death_at_any_edge_of_any_commit_leaves_what_the_next_process_settles(place, chapter, says):
    """REC-2, REC-8, REC-10, REC-11, IN-12, MSG-1, MSG-9: dead owners are seen at once, and some die twice."""
    assert walk(place, chapter, says, pair_step=FEW[chapter]).points >= 16


@pytest.mark.parametrize("chapter", ["stopped", "moody"])
def test_a_death_that_only_the_lease_tells_of_is_settled_when_it_ends(place, chapter, says):
    """EX-5, REC-1: the same where nobody can see that the owner is gone."""
    assert walk(place, chapter, says, deaths="lease", step=3).points >= 5


def test_a_turn_that_dies_with_every_process_ends_and_the_session_goes_on(place):
    """REC-6: the attempt and the budget are used up, then the turn fails."""
    story = shop.Story(place, shop.moody)
    while story.live(crash_at=9).died:
        assert story.simulation.lives < 50
    assert story.problems(at_rest=True) == []
    assert [one.reason for one in story.left().facts(events.ExecutionEnded)] == ["repeated_crashes"]


@pytest.mark.soak
@pytest.mark.parametrize("deaths", ["seen", "lease"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_two_deaths_at_any_two_edges_converge(place, chapter, deaths, says):
    """REC-10: every edge of the first life, and for each every edge of the second."""
    walked = walk(place, chapter, says, pair_step=1, deaths=deaths)
    assert walked.pairs > walked.points


@pytest.mark.soak
def test_all_chapters_in_one_session_survive_a_death_at_any_edge(place, says):
    """REC-2, REC-10, MSG-1: the whole conversation, with everything that came before in its rows."""
    walked = walk(place, "all chapters", says, pair_step=50)
    assert walked.points > 150


@pytest.mark.walk
def test_all_chapters_in_one_session_survive_any_two_deaths(place, says):
    """REC-2, REC-10, MSG-1, MSG-9: every edge of the whole conversation, and for each every edge of what follows."""
    walked = walking.complete(place, says)
    assert walked.failures == [], "\n\n".join(walked.failures)
    assert walked.pairs > 10_000
