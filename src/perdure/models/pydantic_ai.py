"""Any provider that pydantic-ai speaks to: Anthropic, Google, Bedrock and a dozen more, each through its own SDK.

Lives here: one request per `stream` through `pydantic_ai.direct`, and the making of a model from a name, a key and a
URL. Not here: the request (`pydantic_ai_request.py`), the stream (`pydantic_ai_stream.py`), what failures mean
(`pydantic_ai_errors.py`). This is an extra: the catalogue imports the module when the first such model is asked for, and
says what to install where that fails. It costs some fifteen times the processor of `openai_compatible.py` per delta, which
is why that one stands first. The key never reaches an error: it is cut out of whatever a provider or an SDK says.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import direct, exceptions, models, providers

from perdure import errors
from perdure.core import request as requests
from perdure.errors import ModelError
from perdure.models import port, pydantic_ai_errors, pydantic_ai_request, pydantic_ai_stream

MAX_DETAIL = 1000


class PydanticAI:
    """One model of pydantic-ai's; implements `port.Model`."""

    def __init__(self, model: models.Model, *, provider: str, secret: str = "", idle_timeout_s: float = 120) -> None:
        """Wrap a model made by hand (`make` does it by name). `secret` is cut out of every error; `idle_timeout_s` bounds
        the silence before and between bytes.
        """
        self.provider, self.name = provider, model.model_name
        self._model, self._secret, self._idle_s = model, secret, idle_timeout_s
        self._speaker = requests.Speaker(provider, self.name)
        self._entered = False

    async def stream(self, request: requests.Request) -> AsyncIterator[port.ModelEvent]:
        """Make the request and yield its events (see `port.Model.stream`)."""
        assembler, answered = pydantic_ai_stream.Assembler(self._speaker), False
        try:
            await self._enter()
            async with self._opened(request) as stream:
                answered = True
                async for their_event in stream:
                    for event in assembler.feed(their_event):
                        yield event
                last = assembler.finish(stream)
        except Exception as failure:  # noqa: BLE001, fifteen SDKs have no common base of errors
            told = pydantic_ai_errors.named(failure, answered=answered, idle_s=self._idle_s)
            raise self._told(told) from None
        for event in last:
            yield event

    async def close(self) -> None:
        """Release connections."""
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    def _opened(self, request: requests.Request) -> contextlib.AbstractAsyncContextManager[models.StreamedResponse]:
        return direct.model_request_stream(
            self._model,
            pydantic_ai_request.messages(request, self._speaker, self._model.system),
            model_settings=pydantic_ai_request.settings(request, self._idle_s),
            model_request_parameters=pydantic_ai_request.parameters(request),
            instrument=False,
        )

    async def _enter(self) -> None:
        """Only a model that was entered closes its connections."""
        if not self._entered:
            self._entered = True
            await self._model.__aenter__()

    def _told(self, error: ModelError) -> ModelError:
        """The error as it may be shown: without the key, and of bounded length (in this order, lest half a key remain)."""
        detail = str(error).replace(self._secret, "***") if self._secret else str(error)
        return ModelError(error.kind, detail[:MAX_DETAIL], status=error.status, retry_after_ms=error.retry_after_ms)


def make(provider: str, name: str, *, api_key: str | None = None, base_url: str | None = None) -> PydanticAI:
    """The model of that name; what is not given, its SDK reads from the environment. Raises `ConfigError`."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise errors.ConfigError("The API key holds characters that no HTTP header may carry")
    given = {"api_key": key or None, "base_url": base_url}

    def known(their_name: str) -> providers.Provider[Any]:
        kind: Any = providers.infer_provider_class(their_name)
        return kind(**{name: value for name, value in given.items() if value})

    try:
        model = models.infer_model(f"{provider}:{name}", known)
    except ImportError as missing:
        why = f"{provider}:{name} needs a package that is not here: pip install 'perdure[pydantic-ai]' ({missing})"
        raise errors.ConfigError(why) from None
    except (exceptions.UserError, ValueError, TypeError) as refusal:
        said = str(refusal).replace(key, "***") if key else str(refusal)
        raise errors.ConfigError(f"{provider}:{name} cannot be used: {said}") from None
    return PydanticAI(model, provider=provider, secret=key)
