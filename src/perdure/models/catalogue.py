"""Models by name: `provider:name` to an adapter, made once and shared; so many are kept, those asked for last.

Lives here: which providers there are and the variables they are configured by: NAME_API_KEY and NAME_BASE_URL, for
instance ANTHROPIC_API_KEY. Not here: adapters. Models of the user's own come first, then the adapter for chat
completions; all other providers are pydantic-ai's, an extra. An adapter is imported when one of its models is asked for:
commands that only look ask for none.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from perdure import errors
from perdure.models import port

OPENAI_URL = "https://api.openai.com/v1"
NATIVE, BEYOND = "perdure.models.openai_compatible", "perdure.models.pydantic_ai"
PYDANTIC_AI = (
    "alibaba anthropic azure azure-responses bedrock cerebras cohere deepseek fireworks github google google-cloud groq "
    "heroku huggingface litellm meta mistral moonshotai nebius ollama openai-chat openai-responses openrouter ovhcloud "
    "sambanova together vercel vllm xai zai"
).split()
# Where the usual NAME_API_KEY is not the only name, or not the name.
KEYS = {
    "azure": ("AZURE_OPENAI_API_KEY",),
    "azure-responses": ("AZURE_OPENAI_API_KEY",),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
    "cohere": ("CO_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "huggingface": ("HF_TOKEN",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
}
Variable = Callable[[str], str | None]


MOST = 32
"""Models kept; each holds connections, and callers name what they like."""


class Lent:
    """A model of the catalogue as it is given away. Whoever may still ask something of it holds it: once nobody does and the
    catalogue keeps it no more, the model is closed.
    """

    def __init__(self, model: port.Model, dropped: Callable[[port.Model], None]) -> None:
        """Lend `model`; `dropped` hears when nobody has it any more, in whatever thread that is found out."""
        self.provider, self.name, self.stream, self.close = model.provider, model.name, model.stream, model.close
        self.keep_open = weakref.finalize(self, dropped, model).detach


class Catalogue:
    """The models of one engine. `variable(name)` reads a provider's own setting, such as OPENAI_API_KEY."""

    def __init__(self, variable: Variable, own: Mapping[str, port.Model] | None = None) -> None:
        """Prefer `own` models, by `provider:name`."""
        self._variable = variable
        self._own: Mapping[str, port.Model] = dict(own or {})
        self._kept: dict[str, Lent] = {}
        self._lent: weakref.WeakValueDictionary[str, Lent] = weakref.WeakValueDictionary()
        self._dropped: deque[port.Model] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    def resolve(self, name: str) -> port.Model:
        """The model of that name. Raises `UnknownModel`, or `ConfigError` where its provider is not configured."""
        if own := self._own.get(name):
            return own
        lent = self._kept.pop(name, None) or self._lent.get(name)
        if lent is None:
            lent = self._lent[name] = Lent(self._make(name), self._dropped.append)
        self._kept[name] = lent
        while len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        self._close_dropped()
        return lent

    def _close_dropped(self) -> None:
        """Begin to close what nobody has any more, where there is a loop to do it on; else that is done later."""
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            while self._dropped:
                closing = loop.create_task(self._dropped.popleft().close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    def check(self, name: str) -> None:
        """Raise `UnknownModel` for a name that no adapter here could serve; makes nothing."""
        provider, colon, model = name.partition(":")
        if name not in self._own and (not colon or not model or provider not in PROVIDERS):
            known = ", ".join(sorted({*self._own, *(f"{one}:NAME" for one in PROVIDERS)}))
            raise errors.UnknownModel(f"There is no model {name!r} here; there are: {known}")

    def _make(self, name: str) -> port.Model:
        self.check(name)
        provider, _, model = name.partition(":")
        return PROVIDERS[provider](model, self._variable)

    async def close(self) -> None:
        """Close every model that was made here; those of the user stay the user's. What is asked for later is made anew."""
        lent = list(self._lent.values())
        self._kept.clear()
        self._lent.clear()
        for one in lent:
            one.keep_open()
            await one.close()
        while self._dropped:
            await self._dropped.popleft().close()
        await asyncio.gather(*self._closing)


def _openai(name: str, variable: Variable) -> port.Model:
    base_url = variable("OPENAI_BASE_URL") or OPENAI_URL
    adapter: Any = importlib.import_module(NATIVE)
    return adapter.OpenAICompatible(name=name, base_url=base_url, api_key=variable("OPENAI_API_KEY"))


def _beyond(provider: str, name: str, variable: Variable) -> port.Model:
    """A model of pydantic-ai's: the door of the extra."""
    try:
        adapter: Any = importlib.import_module(BEYOND)
    except ImportError as missing:
        if (missing.name or "").split(".")[0] == "perdure":
            raise
        why = f"{provider}:{name} needs a package that is not here: pip install 'perdure[pydantic-ai]' ({missing})"
        raise errors.ConfigError(why) from None
    prefix = provider.upper().replace("-", "_")
    names = KEYS.get(provider, (f"{prefix}_API_KEY",))
    api_key = next((key for key in map(variable, names) if key), None)
    base_url = variable(f"{prefix}_BASE_URL")
    try:
        return adapter.make(provider, name, api_key=api_key, base_url=base_url)
    except errors.ConfigError:
        if api_key is None and _lacks_only_a_key(adapter, provider, name, base_url):
            where = "in the environment of the process that runs it"
            why = f"{provider}:{name} has no API key: set {' or '.join(names)} {where}"
            raise errors.ConfigError(f"{why}, or give Perdure a model of your own by that name (models=…)") from None
        raise


def _lacks_only_a_key(adapter: Any, provider: str, name: str, base_url: str | None) -> bool:
    """Whether a model that cannot be made could be with a key, whatever its SDK says."""
    try:
        adapter.make(provider, name, api_key="none", base_url=base_url)
    except errors.ConfigError:
        return False
    return True


PROVIDERS: Mapping[str, Callable[[str, Variable], port.Model]] = {
    "openai": _openai,
    **{provider: functools.partial(_beyond, provider) for provider in PYDANTIC_AI},
}
