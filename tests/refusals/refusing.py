"""What both tables of refusals are made of: texts that are no ids, values that are no JSON, and how to compare."""

import math

from perdure.core import events
from perdure.core.events import Budget, Policy, Retrying

BAD_IDS = {
    "an empty id": "",
    "a long id": "x" * 201,
    "an id with a space": "a b",
    "an id with a slash": "a/b",
    "an id with a line end": "a\n",
    "an id with NUL": "a\x00b",
    "an id of dots": "..",
    "an id beyond ASCII": "ä",
    "an id that is no text": "a\ud800",
}
RESERVED = {f"a reserved id, {one}": f"{one}1" for one in ("msg_recovered_", "msg_continue_", "msg_retry_", "evt_")}
NO_TEXT = "a\ud800"
GIVES_UP = ["idle", "waiting", "archived"]
"""Sessions in which nothing runs or waits for a person."""


def nested(levels):
    """An object in objects, so many of them."""
    value = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


def endless():
    """An object that holds itself."""
    value = {}
    value["x"] = value
    return value


BAD_SETTINGS = {
    "a title with NUL": {"title": "a\x00b"},
    "a title that is no text": {"title": NO_TEXT},
    "a title that is a number": {"title": 5},
    "metadata with half a character": {"metadata": {"k": NO_TEXT}},
    "metadata with half a character in a key": {"metadata": {NO_TEXT: 1}},
    "metadata with NaN": {"metadata": {"k": [math.nan]}},
    "metadata with infinity": {"metadata": {"k": -math.inf}},
    "metadata with a key that is no text": {"metadata": {"k": {1: 2}}},
    "metadata with what is no JSON": {"metadata": {"k": {1, 2}}},
    "metadata with bytes": {"metadata": {"k": b"x"}},
    "metadata with a huge number": {"metadata": {"k": 10**5000}},
    "metadata that is a list": {"metadata": [1]},
    "metadata too deep": {"metadata": nested(65)},
    "metadata far too deep": {"metadata": nested(100_000)},
    "metadata without end": {"metadata": endless()},
    "a policy of another kind": {"policy": {"recovery": "auto"}},
    "an unknown recovery": {"policy": Policy(recovery="perhaps")},
    "an unknown repeat": {"policy": Policy(repeat_unknown="perhaps")},
    "an unknown approval": {"policy": Policy(approval={"pay": "perhaps"})},
    "no steps": {"policy": Policy(max_steps=0)},
    "half a step": {"policy": Policy(max_steps=1.5)},
    "a negative recovery budget": {"policy": Policy(recovery_budget=-1)},
    "a negative age": {"policy": Policy(recovery_max_age_ms=-1)},
    "a negative budget": {"policy": Policy(session_budget=Budget(tokens=-1))},
    "a budget that is no number": {"policy": Policy(turn_budget=Budget(seconds=math.nan))},
    "no attempts": {"policy": Policy(retry=Retrying(attempts=0))},
    "no attempts of a kind": {"policy": Policy(retry=Retrying(attempts_of={"server": 0}))},
    "attempts of an unknown kind": {"policy": Policy(retry=Retrying(attempts_of={"weather": 2}))},
    "a negative pause": {"policy": Policy(retry=Retrying(base_ms=-1))},
}


def changes(settings):
    """Settings as a change."""
    return events.Changes(**settings)


def changed(before, after):
    """Which tables are not what they were, and the rows that came or went."""
    return {
        name: sorted(set(before[name]) ^ set(after[name]))[:4] for name in before if before[name] != after.get(name)
    }
