"""Prices: the user's table, the packaged list, and that nobody's ignorance ever reads as zero."""

import socket
import subprocess
import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, pricing
from perdure.core import messages
from perdure.pricing import Price, Prices

NOON = 1_790_000_000_000  # some time in September 2026
GPT = Price(input=1.25, output=10.0, cache_read=0.125)
counts = st.integers(min_value=0, max_value=10**12)
amounts = st.decimals(min_value=0, max_value=1000, places=4)
all_tokens = st.builds(messages.Tokens, counts, counts, counts, counts, counts)


def tokens(**kinds):
    return messages.Tokens(**kinds)


def test_a_cost_is_the_sum_of_its_kinds_in_micro_dollars():
    used = tokens(input=1000, output=100, reasoning=50, cache_read=400, cache_write=200)
    price = Price(input=1.25, output=10.0, cache_read=0.125, cache_write=1.5625)
    assert Prices({"openai:gpt-5": price}).cost(used, "openai:gpt-5") == 1250 + 1500 + 50 + 313  # 312.5, rounded up


def test_a_million_tokens_cost_what_the_price_says():
    prices = Prices({"openai:gpt-5": GPT})
    assert prices.cost(tokens(input=1_000_000), "openai:gpt-5") == 1_250_000
    assert prices.cost(tokens(output=1_000_000), "openai:gpt-5") == 10_000_000
    assert prices.cost(tokens(cache_read=1_000_000), "openai:gpt-5") == 125_000


def test_reasoning_costs_what_output_costs():
    prices = Prices({"m:x": GPT})
    assert prices.cost(tokens(reasoning=7), "m:x") == prices.cost(tokens(output=7), "m:x") == 70


def test_a_cache_price_left_out_is_the_price_of_input():
    prices = Prices({"m:x": Price(input=3, output=15)})
    assert prices.cost(tokens(cache_read=10, cache_write=10), "m:x") == 60


@pytest.mark.parametrize(("output", "micros"), [(1, 1), (3, 2), (0, 0)])
def test_a_half_micro_dollar_is_rounded_up_once_at_the_end(output, micros):
    assert Prices({"m:x": Price(input=0.5, output=0.5)}).cost(tokens(output=output), "m:x") == micros
    assert Prices({"m:x": Price(input=0.25, output=0.25)}).cost(tokens(input=1, output=1), "m:x") == 1


def test_a_price_is_the_decimal_that_was_written():
    """0.1 is not the nearest binary fraction: a billion tokens are a hundred dollars sharp."""
    prices = Prices({"m:x": Price(input=0.1, output=0.3)})
    assert prices.cost(tokens(input=10**15, output=10**15), "m:x") == 10**14 + 3 * 10**14


@given(all_tokens, all_tokens, amounts, amounts)
def test_the_parts_of_a_bill_come_to_the_whole_but_for_one_rounding_each(first, second, incoming, outgoing):
    prices = Prices({"m:x": Price(incoming, outgoing)})
    apart = prices.cost(first, "m:x") + prices.cost(second, "m:x")
    assert abs(prices.cost(first.plus(second), "m:x") - apart) <= 1
    assert isinstance(apart, int)


@given(all_tokens)
def test_what_nobody_priced_is_unknown_and_never_zero(used):
    assert Prices().cost(used, "openai:gpt-5") is None
    assert Prices({"openai:gpt-4": GPT}).cost(used, "openai:gpt-5") is None
    assert Prices(listed=lambda used, name: None).cost(used, "openai:gpt-5") is None


@given(all_tokens)
def test_a_local_model_may_be_priced_zero(used):
    assert Prices({"ollama:*": pricing.FREE}).cost(used, "ollama:qwen3") == 0


@pytest.mark.parametrize(
    ("name", "micros"),
    [("openai:gpt-5", 1), ("openai:gpt-5-mini", 2), ("openai:gpt-4", 3), ("groq:any", 4), ("xopenai:gpt-5", 4)],
)
def test_the_most_particular_name_wins(name, micros):
    own = {
        "*": Price(4, 4),
        "openai:*": Price(3, 3),
        "openai:gpt-5*": Price(2, 2),
        "openai:gpt-5": Price(1, 1),
    }
    assert Prices(own).cost(tokens(input=1), name) == micros


def test_only_the_star_is_a_wildcard():
    prices = Prices({"m:[x]?*": GPT})
    assert prices.cost(tokens(), "m:[x]?1") == 0
    assert prices.cost(tokens(), "m:xy1") is None


def test_the_users_table_wins_over_the_list():
    prices = Prices({"m:x": Price(1, 1)}, listed=lambda used, name: Decimal("7.5"))
    assert prices.cost(tokens(input=1), "m:x") == 1
    assert prices.cost(tokens(input=1), "m:y") == 8


def test_a_price_may_be_a_mapping_from_a_settings_file():
    assert Prices({"m:x": {"input": 2, "output": 4}}).cost(tokens(input=1, output=1), "m:x") == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input": 2}, "m:x needs input and output"),
        ({"input": 2, "output": 4, "audio": 1}, "no more than input, output, cache_read, cache_write"),
        ({"input": -1, "output": 4}, "m:x: input must be"),
        ({"input": 1, "output": float("nan")}, "output must be"),
        ({"input": 1, "output": float("inf")}, "output must be"),
        ({"input": 1, "output": Decimal("NaN")}, "output must be"),
        ({"input": 1, "output": 1, "cache_read": "cheap"}, "cache_read must be"),
        ({"input": True, "output": 1}, "input must be"),
        ({"input": None, "output": 1}, "input must be"),
    ],
)
def test_a_price_that_is_none_is_a_config_error(given, words):
    with pytest.raises(errors.ConfigError, match=words):
        Prices({"m:x": given})


# -- the packaged list ---------------------------------------------------------------------------------------------


@pytest.fixture
def listed(monkeypatch):
    pytest.importorskip("genai_prices", reason="the extra prices is not installed")

    def refuse(*_):
        raise AssertionError("a price was looked for on the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return Prices(listed=pricing.packaged(lambda: NOON))


def test_the_packaged_list_knows_the_usual_models_without_the_network(listed):
    used = tokens(input=1000, output=80, reasoning=20, cache_read=400)
    assert listed.cost(used, "openai:gpt-5") == 1250 + 1000 + 50
    assert listed.cost(used, "openai-chat:gpt-5") == 1250 + 1000 + 50
    assert listed.cost(tokens(cache_write=1000), "anthropic:claude-haiku-4-5") == 1250
    assert listed.cost(used, "google:gemini-2.5-flash") > 0


@pytest.mark.parametrize(
    "name", ["openai:no-such-model", "nowhere:gpt-5", "ollama:qwen3", "openai:whisper-1", "gpt-5", ""]
)
def test_what_the_packaged_list_does_not_price_by_token_is_unknown(listed, name):
    assert listed.cost(tokens(input=1000, output=10), name) is None


def test_the_packaged_list_is_asked_as_of_now(listed):
    """Some prices change on a day; the clock decides, and the same clock gives the same cost."""
    assert listed.cost(tokens(input=10), "deepseek:deepseek-chat") == listed.cost(
        tokens(input=10), "deepseek:deepseek-chat"
    )
    early = Prices(listed=pricing.packaged(lambda: 1_735_000_000_000))
    assert early.cost(tokens(output=10**6), "deepseek:deepseek-chat") != listed.cost(
        tokens(output=10**6), "deepseek:deepseek-chat"
    )


@pytest.mark.slow
def test_without_the_extra_there_is_no_list():
    code = "import sys; sys.modules['genai_prices'] = None\nfrom perdure import pricing\nprint(pricing.packaged(lambda: 0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
