"""Hostile values made recordable at the edge (SEC-2)."""

import collections
import enum
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import codec
from perdure.core.text import DEPTH, clean, clean_text


class Colour(enum.StrEnum):
    RED = "red"


class Old(str, enum.Enum):  # noqa: UP042, its __str__ is its name
    RED = "red"


class Rude:
    def __str__(self):
        raise OSError


class Sly:
    def __str__(self):
        return "sly \ud800"


@pytest.mark.parametrize("text", ["", "plain", "\0", "ünï 😀", "x" * 100_000, "\u2028\ufffe"])
def test_valid_text_is_the_very_same_object_sec_2(text):
    assert clean_text(text) is text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\ud800", "\ufffd"),
        ("a\udfff\0b", "a\ufffd\0b"),
        ("\ud800é", "\ufffdé"),
        ("\ud83d\ude00\ud83d", "😀\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_pairs_joined_and_the_rest_stays_sec_2(text, cleaned):
    assert clean_text(text) == cleaned
    cleaned.encode()


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**63 - 1, 1.5, -0.0, "text", "\0", [], {}, {"a": [1, {"b": None}]}, Colour.RED, Old.RED],
)
def test_what_json_can_hold_is_kept_and_not_flagged_sec_2(value):
    cleaned, replaced = clean(value)
    assert cleaned == value
    assert not replaced


def test_a_tuple_is_a_list_and_a_key_that_is_no_text_is_written_as_text_sec_2():
    assert clean(((1, 2), 3))[0] == [[1, 2], 3]
    assert clean(collections.OrderedDict([(1, "a")]))[0] == {"1": "a"}


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ("\ud800", "\ufffd"),
        ({"\ud800": 1}, {"\ufffd": 1}),
        ({1}, "{1}"),
        (10**5_000, hex(10**5_000)),
        ({Rude(): 1}, {"[Rude]": 1}),
        ({(1, 2): 1}, {"(1, 2)": 1}),
        (b"raw", "b'raw'"),
        (Rude(), "[Rude]"),
        (Sly(), "sly \ufffd"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_replaced_and_flagged_sec_2(value, cleaned):
    assert clean(value) == (cleaned, True)
    assert clean([{"deep": value}]) == ([{"deep": cleaned}], True)


def test_keys_that_would_become_one_are_flagged_sec_2():
    assert clean({1: "number", "1": "text"}) == ({"1": "text"}, True)


def test_nesting_is_cut_at_its_limit_and_not_before_sec_2():
    def nested(depth):
        value = "core"
        for _ in range(depth):
            value = [value]
        return value

    assert clean(nested(DEPTH)) == (nested(DEPTH), False)
    cleaned, replaced = clean(nested(DEPTH + 1))
    assert replaced
    assert "[nested too deeply]" in json.dumps(cleaned)


def test_a_value_that_holds_itself_ends_sec_2():
    loop = {}
    loop["self"] = loop
    cleaned, replaced = clean(loop)
    assert replaced
    codec.dump(cleaned)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None))
    | st.binary(max_size=4)
    | st.builds(Rude),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(ANYTHING)
def test_whatever_a_tool_returned_is_recorded_and_read_back_alike_sec_2(value):
    cleaned, _ = clean(value)
    assert codec.load(codec.dump({"value": cleaned}), dict) == {"value": cleaned}


@given(ANYTHING)
def test_cleaning_again_changes_nothing_sec_2(value):
    cleaned, _ = clean(value)
    assert clean(cleaned) == (cleaned, False)
