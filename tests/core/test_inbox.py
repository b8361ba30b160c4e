"""The promotion rule as a table: what a boundary takes from what waits (IN-8, IN-10, IN-15, RUN-1, REC-5, REC-7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.inbox import Choice, Waiting, choose, wanted


def steer(id="s", *, woken=True):
    return Waiting(id, "steer", woken)


def queued(id="q", *, woken=True):
    return Waiting(id, "queue", woken)


def continuation(*, armed=True):
    return Waiting("k", "queue", wake_pending=False, continuation=True, armed=armed)


ARMED, UNARMED = continuation(), continuation(armed=False)

TABLE = [
    ("nothing waits", [], Choice(), Choice()),
    ("a steer joins or opens", [steer()], Choice(("s",)), Choice(("s",))),
    ("all steers go at once", [steer("z"), steer("a")], Choice(("z", "a")), Choice(("z", "a"))),
    ("a queued input waits for the turn to end", [queued()], Choice(("q",)), Choice()),
    ("the oldest queued goes alone", [queued("z"), queued("a")], Choice(("z",)), Choice()),
    ("steers go before an older queued", [queued(), steer()], Choice(("s",)), Choice(("s",))),
    ("a continuation goes before a queued", [queued(), ARMED], Choice(("k",)), Choice()),
    ("a steer supersedes a continuation", [ARMED, steer()], Choice(("s",), ("k",)), Choice(("s",))),
    ("so it does an unarmed one", [UNARMED, steer()], Choice(("s",), ("k",)), Choice(("s",))),
    ("an unarmed one waits and holds queued back", [UNARMED, queued()], Choice(), Choice()),
    ("it waits alone too", [UNARMED], Choice(), Choice()),
    ("an unwoken input is taken like any other", [queued(woken=False)], Choice(("q",)), Choice()),
]


@pytest.mark.parametrize(("waiting", "choice"), [row[1:3] for row in TABLE], ids=[row[0] for row in TABLE])
def test_with_no_turn_open_the_rule_promotes_run_1_rec_5(waiting, choice):
    assert choose(waiting, turn_open=False) == choice


@pytest.mark.parametrize(("waiting", "choice"), [row[1::2] for row in TABLE], ids=[row[0] for row in TABLE])
def test_with_a_turn_open_only_steers_join_and_nothing_is_superseded_run_1(waiting, choice):
    assert choose(waiting, turn_open=True) == choice


WANTED = [
    ("nothing waits", [], False),
    ("a woken input", [queued()], True),
    ("an input nobody wants yet", [queued(woken=False), steer(woken=False)], False),
    ("an armed continuation", [ARMED], True),
    ("an armed continuation among unwoken inputs", [queued(woken=False), ARMED], True),
    ("an unarmed continuation", [UNARMED], False),
    ("an unarmed one holds a woken queued back", [UNARMED, queued()], False),
    ("a woken steer starts past an unarmed one", [UNARMED, steer()], True),
    ("an unwoken steer does not", [UNARMED, steer(woken=False)], False),
]


@pytest.mark.parametrize(("waiting", "starts"), [row[1:] for row in WANTED], ids=[row[0] for row in WANTED])
def test_a_drain_starts_by_stored_intent_only_in_15_rec_5_rec_7(waiting, starts):
    assert wanted(waiting) is starts


INPUTS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6)
ANY = st.builds(
    lambda inputs, place, armed: [
        *(Waiting(f"i{n}", "steer" if joins else "queue", woken) for n, (joins, woken) in enumerate(inputs[:place])),
        *([] if armed is None else [continuation(armed=armed)]),
        *(Waiting(f"j{n}", "steer" if joins else "queue", woken) for n, (joins, woken) in enumerate(inputs[place:])),
    ],
    INPUTS,
    st.integers(0, 6),
    st.none() | st.booleans(),
)


@given(ANY, st.booleans())
def test_promotion_keeps_admission_order_and_takes_nothing_twice_in_10(waiting, turn_open):
    choice = choose(waiting, turn_open=turn_open)
    order = [one.id for one in waiting]
    assert list(choice.promote) == sorted(choice.promote, key=order.index)
    assert len({*choice.promote, *choice.supersede}) == len(choice.promote) + len(choice.supersede)


@given(ANY)
def test_a_drain_that_starts_always_finds_something_to_promote_in_15(waiting):
    assert not wanted(waiting) or choose(waiting, turn_open=False).promote


@given(ANY)
def test_queued_inputs_never_supersede_and_go_one_at_a_time_rec_5_in_8(waiting):
    choice = choose(waiting, turn_open=False)
    by_id = {one.id: one for one in waiting}
    deliveries = [by_id[one].delivery for one in choice.promote]
    assert deliveries == ["queue"] or "queue" not in deliveries
    assert not choice.supersede or "steer" in deliveries
