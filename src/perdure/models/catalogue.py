"""Models by name: `provider:name` to an adapter, made once and shared.

Lives here: which providers there are and the variables they are configured by. Not here: adapters. Models of the user's
own come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure import errors
from perdure.models import openai_compatible, port

OPENAI_URL = "https://api.openai.com/v1"
Variable = Callable[[str], str | None]


class Catalogue:
    """The models of one engine. `variable(name)` reads a provider's own setting, such as OPENAI_API_KEY."""

    def __init__(self, variable: Variable, own: Mapping[str, port.Model] | None = None) -> None:
        """Prefer `own` models, by `provider:name`."""
        self._variable = variable
        self._models: dict[str, port.Model] = dict(own or {})

    def resolve(self, name: str) -> port.Model:
        """The model of that name. Raises `UnknownModel`, or `ConfigError` where its provider is not configured."""
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = self._make(name)
        return known

    def check(self, name: str) -> None:
        """Raise `UnknownModel` for a name that no adapter here could serve; makes nothing."""
        provider, colon, model = name.partition(":")
        if name not in self._models and (not colon or not model or provider not in PROVIDERS):
            known = ", ".join(sorted({*self._models, *(f"{one}:NAME" for one in PROVIDERS)}))
            raise errors.UnknownModel(f"There is no model {name!r} here; there are: {known}")

    def _make(self, name: str) -> port.Model:
        self.check(name)
        provider, _, model = name.partition(":")
        return PROVIDERS[provider](model, self._variable)

    async def close(self) -> None:
        """Close every model that was made or given."""
        for model in self._models.values():
            await model.close()


def _openai(name: str, variable: Variable) -> port.Model:
    base_url = variable("OPENAI_BASE_URL") or OPENAI_URL
    return openai_compatible.OpenAICompatible(name=name, base_url=base_url, api_key=variable("OPENAI_API_KEY"))


PROVIDERS: Mapping[str, Callable[[str, Variable], port.Model]] = {"openai": _openai}
