"""What a person is told of tokens and money: what nobody knows is said, and never shown as nothing (RUN-8)."""

import pytest

from perdure.cli import render
from perdure.core import messages

TOKENS = messages.Tokens(input=40, output=2)


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (messages.Usage(TOKENS, 13_000), "42 tokens, $0.0130"),
        (messages.Usage(TOKENS, 0, unknown_cost=1), "42 tokens, cost unknown"),
        (messages.Usage(TOKENS, 13_000, unknown_cost=1), "42 tokens, $0.0130 and 1 call of unknown cost"),
        (messages.Usage(TOKENS, 13_000, unknown_cost=2), "42 tokens, $0.0130 and 2 calls of unknown cost"),
        (messages.Usage(TOKENS, 0), "42 tokens, $0.0000"),
    ],
)
def test_a_cost_that_nobody_knows_is_told_as_such_run_8(used, said):
    assert render.usage(used) == said
