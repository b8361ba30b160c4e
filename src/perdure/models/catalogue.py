"""Models by name: `provider:name` to an adapter, made once and shared.

Lives here: which providers there are and the variables they are configured by: NAME_API_KEY and NAME_BASE_URL, for
instance ANTHROPIC_API_KEY. Not here: adapters. Models of the user's own come first, then the adapter for chat
completions; all other providers are pydantic-ai's, an extra whose module is imported when one of them is asked for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from perdure import errors
from perdure.models import openai_compatible, port

OPENAI_URL = "https://api.openai.com/v1"
BEYOND = "perdure.models.pydantic_ai"
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


class Catalogue:
    """The models of one engine. `variable(name)` reads a provider's own setting, such as OPENAI_API_KEY."""

    def __init__(self, variable: Variable, own: Mapping[str, port.Model] | None = None) -> None:
        """Prefer `own` models, by `provider:name`."""
        self._variable = variable
        self._own: Mapping[str, port.Model] = dict(own or {})
        self._made: dict[str, port.Model] = {}

    def resolve(self, name: str) -> port.Model:
        """The model of that name. Raises `UnknownModel`, or `ConfigError` where its provider is not configured."""
        known = self._own.get(name) or self._made.get(name)
        if known is None:
            known = self._made[name] = self._make(name)
        return known

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
        made, self._made = self._made, {}
        for model in made.values():
            await model.close()


def _openai(name: str, variable: Variable) -> port.Model:
    base_url = variable("OPENAI_BASE_URL") or OPENAI_URL
    return openai_compatible.OpenAICompatible(name=name, base_url=base_url, api_key=variable("OPENAI_API_KEY"))


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
    keys = (variable(key) for key in KEYS.get(provider, (f"{prefix}_API_KEY",)))
    api_key = next((key for key in keys if key), None)
    return adapter.make(provider, name, api_key=api_key, base_url=variable(f"{prefix}_BASE_URL"))


PROVIDERS: Mapping[str, Callable[[str, Variable], port.Model]] = {
    "openai": _openai,
    **{provider: functools.partial(_beyond, provider) for provider in PYDANTIC_AI},
}
