"""How many tokens a model takes at once: its context window.

Lives here: the user's table by `provider:name`, and the door to what `genai-prices` (the extra `prices`) says, which ships
inside the package. Not here: what is done about a long conversation (`core/compaction.py`), the number an agent declares of
its own model (`agent.py`). Unknown is None: nothing is guessed from a model's name.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from perdure import errors

Listed = Callable[[str], int | None]


class Windows:
    """The windows of one engine: the user's own, then those of a list, if there is one."""

    def __init__(self, own: Mapping[str, int] | None = None) -> None:
        """No list is read yet. Raises `ConfigError` for what is no number of tokens."""
        self._own = dict(own or {})
        self.listed: Listed | None = None
        for name, tokens in self._own.items():
            if type(tokens) is not int or tokens < 1:
                raise errors.ConfigError(f"The window of {name} must be a number of tokens, not {tokens!r}")

    def of(self, model_name: str) -> int | None:
        """The window of `provider:name`, None where nobody knows it."""
        return self._own.get(model_name) or (self.listed(model_name) if self.listed else None)


def packaged() -> Listed | None:
    """The windows that `genai-prices` knows, None where it is not installed. Imports as much as `pricing.packaged`."""
    try:
        library: Any = importlib.import_module("genai_prices.data_snapshot")
    except ImportError:
        return None

    @functools.lru_cache(maxsize=256)  # each step of a turn asks
    def listed(model_name: str) -> int | None:
        provider, _, name = model_name.partition(":")
        try:
            _, model = library.get_snapshot().find_provider_model(name, None, provider, None)
        except (LookupError, ValueError):
            return None
        return model.context_window

    return listed
