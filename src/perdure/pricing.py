"""What a model call costs, in integer micro-dollars.

Lives here: `Price`, the user's table of prices, and the door to `genai-prices` (the extra `prices`: a list that ships
inside the package, nothing is fetched). Not here: budgets (`core/budget.py`) and what a provider itself says a call cost,
which wins over both. Unknown is None and never zero: a table may price a local model 0, nobody else does. A price in
dollars per million tokens is also one in micro-dollars per token, so a cost is a sum of products; it is summed exactly
and rounded once, to the nearest micro-dollar, halves up.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from perdure import errors
from perdure.core import messages

Listed = Callable[[messages.Tokens, str], Decimal | None]


def _checked(field: str, value: object) -> None:
    if value is None and field.startswith("cache_"):
        return
    number = value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else -1
    if not math.isfinite(number) or number < 0:
        raise errors.ConfigError(f"{field} must be dollars per million tokens, 0 or more, not {value!r}")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. Reasoning is output; a cache price left out is the price of input."""

    input: float | Decimal
    output: float | Decimal
    cache_read: float | Decimal | None = None
    cache_write: float | Decimal | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            _checked(field.name, getattr(self, field.name))

    def of(self, tokens: messages.Tokens) -> Decimal:
        """Micro-dollars, exactly."""
        whole, written = _exact(self.input), _exact(self.output)
        read_from_cache = whole if self.cache_read is None else _exact(self.cache_read)
        written_to_cache = whole if self.cache_write is None else _exact(self.cache_write)
        return (
            tokens.input * whole
            + (tokens.output + tokens.reasoning) * written
            + tokens.cache_read * read_from_cache
            + tokens.cache_write * written_to_cache
        )


FREE = Price(0, 0, 0, 0)


class Prices:
    """The prices of one engine: the user's own by `provider:name`, then those of a list, if there is one.

    A name in the table may hold `*`; an exact name wins over any pattern, and the longest pattern over the others.
    """

    def __init__(
        self, own: Mapping[str, Price | Mapping[str, float | Decimal]] | None = None, listed: Listed | None = None
    ) -> None:
        """`own` may come from a settings file: a price is also a mapping of its fields. Raises `ConfigError`."""
        table = {name: _price(name, given) for name, given in (own or {}).items()}
        self._exact = {name: price for name, price in table.items() if "*" not in name}
        self._patterns = sorted(
            ((name, price) for name, price in table.items() if "*" in name), key=lambda one: (-len(one[0]), one[0])
        )
        self._listed = listed

    def cost(self, tokens: messages.Tokens, model_name: str) -> int | None:
        """Micro-dollars of that many tokens of `provider:name`; None where nobody knows."""
        price = self._find(model_name)
        micros = price.of(tokens) if price else self._listed(tokens, model_name) if self._listed else None
        return None if micros is None else int(micros.quantize(Decimal(1), ROUND_HALF_UP))

    def _find(self, model_name: str) -> Price | None:
        if found := self._exact.get(model_name):
            return found
        return next((price for name, price in self._patterns if _matches(model_name, name)), None)


def packaged(now_ms: Callable[[], int]) -> Listed | None:
    """The prices of `genai-prices`, None where the extra `prices` is not installed.

    Imports some half a second of data: call it before serving. `now_ms` is asked, because some prices change on a day or
    by the hour.
    """
    try:
        library: Any = importlib.import_module("genai_prices")
    except ImportError:
        return None

    def listed(tokens: messages.Tokens, model_name: str) -> Decimal | None:
        provider, _, name = model_name.partition(":")
        # Its counts overlap where ours do not: input includes the cache, output the reasoning.
        usage = library.Usage(
            input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
            output_tokens=tokens.output + tokens.reasoning,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_write,
        )
        at = dt.datetime.fromtimestamp(now_ms() / 1000, dt.UTC)
        try:
            found = library.calc_price(usage, name, provider_id=provider, genai_request_timestamp=at)
        except (LookupError, ValueError):
            return None
        # A model without a price for tokens (by the minute, by the image) comes to 0 here, which is not known to be free.
        by_token = found.model_price.input_mtok is not None and found.model_price.output_mtok is not None
        return found.total_price * 1_000_000 if by_token else None

    return listed


def _price(name: str, given: Price | Mapping[str, float | Decimal]) -> Price:
    if isinstance(given, Price):
        return given
    try:
        return Price(**given)
    except TypeError:
        known = ", ".join(field.name for field in fields(Price))
        why = f"The price of {name} needs input and output and may have no more than {known}"
        raise errors.ConfigError(why) from None
    except errors.ConfigError as refusal:
        raise errors.ConfigError(f"The price of {name}: {refusal}") from None


def _exact(value: float | Decimal) -> Decimal:
    """The decimal a person wrote: 0.1 and not the nearest binary fraction."""
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _matches(model_name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(model_name, pattern.replace("[", "[[]").replace("?", "[?]"))
