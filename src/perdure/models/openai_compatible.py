"""Any provider that speaks chat completions: OpenAI, vLLM, Ollama, OpenRouter, Groq, Mistral and the rest.

Lives here: one HTTP request per `stream` over one shared client, and the naming of everything that can go wrong with
it. Not here: the body (`openai_request.py`), the chunks (`openai_stream.py`), what a refusal means
(`openai_errors.py`), retries (nowhere in this room) and where the key comes from (whoever constructs). The key never
reaches an error: it is checked before it is used, because the HTTP library quotes a bad header, and cut out of whatever
a provider says. The library's exceptions are not chained, for the same reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import httpx2
import msgspec

from perdure import errors
from perdure.core import request as requests
from perdure.core import sse
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import openai_errors, openai_request, openai_stream, port

MAX_ERROR_BYTES = 64 * 1024
MAX_DETAIL = 1000
DRAIN_S = 0.1
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=64)


class OpenAICompatible:
    """One model behind one chat-completions endpoint; implements `port.Model`."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None = None,
        provider: str = "openai",
        idle_timeout_s: float = 120,
        connect_timeout_s: float = 10,
        include_usage: bool = True,
        echo_reasoning: bool = False,
    ) -> None:
        """`base_url` ends where `/chat/completions` begins. `idle_timeout_s` bounds the silence before and between
        bytes.
        """
        self.provider, self.name = provider, name
        self._include_usage, self._echo_reasoning = include_usage, echo_reasoning
        self._key = _checked(api_key)
        self._idle_s = idle_timeout_s
        self._url = _endpoint(base_url)
        self._client = httpx2.AsyncClient(
            headers={"accept": "text/event-stream", "accept-encoding": "identity", "content-type": "application/json"},
            timeout=httpx2.Timeout(idle_timeout_s, connect=connect_timeout_s, pool=None),
            limits=_LIMITS,
        )

    async def stream(self, request: requests.Request) -> AsyncIterator[port.ModelEvent]:
        """Make the request and yield its events (see `port.Model.stream`)."""
        assembler, answered = openai_stream.Assembler(), False
        try:
            content = self._content(request)
            headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
            async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
                await _refuse(response)
                answered = True
                async with contextlib.aclosing(response.aiter_bytes()) as body:
                    parser = sse.Parser()
                    async for chunk in body:
                        for frame in parser.feed(chunk):
                            for event in assembler.feed(frame.data):
                                yield event
                        if assembler.done:
                            break
                    for frame in parser.close():
                        for event in assembler.feed(frame.data):
                            yield event
                    await _drain(body)
        except httpx2.HTTPError as failure:
            # After the finish reason only the count of tokens can have been lost: the answer stands.
            if not assembler.complete:
                raise self._told(_failure(failure, self._idle_s, answered=answered)) from None
        except sse.EventTooLarge as failure:
            raise ModelError(ModelErrorKind.INCOMPLETE, str(failure)) from None
        except ModelError as failure:
            raise self._told(failure) from None
        for event in assembler.finish():
            yield event

    async def close(self) -> None:
        """Release connections."""
        await self._client.aclose()

    def _content(self, request: requests.Request) -> bytes:
        body = openai_request.body(request, include_usage=self._include_usage, echo_reasoning=self._echo_reasoning)
        try:
            return msgspec.json.encode(body)
        except (TypeError, ValueError) as failure:
            detail = f"The request cannot be written as JSON: {failure}"
            raise ModelError(ModelErrorKind.INVALID_REQUEST, detail) from None

    def _told(self, error: ModelError) -> ModelError:
        """The error as it may be shown: without the key, and of bounded length (in this order, lest half a key remain)."""
        detail = str(error).replace(self._key, "***") if self._key else str(error)
        return ModelError(error.kind, detail[:MAX_DETAIL], status=error.status, retry_after_ms=error.retry_after_ms)


def _checked(api_key: str | None) -> str:
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise errors.ConfigError("The API key holds characters that no HTTP header may carry")
    return key


def _endpoint(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise errors.ConfigError("The model's base URL must be http(s)://HOST/…, up to where /chat/completions begins")
    return url.copy_with(path=url.path.rstrip("/") + "/chat/completions")


async def _refuse(response: httpx2.Response) -> None:
    """Raise if the response is not the beginning of a stream."""
    is_json = "json" in response.headers.get("content-type", "")
    if response.status_code == 200 and not is_json:
        return
    body = bytearray()
    with contextlib.suppress(httpx2.HTTPError):
        async with contextlib.aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    raise openai_errors.from_response(response.status_code, response.headers, bytes(body[:MAX_ERROR_BYTES]))


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read past `[DONE]` to the end, so that the connection can serve again; hang up on a server that keeps it open."""
    with anyio.move_on_after(DRAIN_S), contextlib.suppress(httpx2.HTTPError):
        async for _ in body:
            pass


def _failure(failure: httpx2.HTTPError, idle_s: float, *, answered: bool) -> ModelError:
    said = str(failure) or type(failure).__name__
    match failure:
        case httpx2.ConnectTimeout():
            return ModelError(ModelErrorKind.TIMEOUT, "The provider could not be reached in time")
        case httpx2.TimeoutException():
            return ModelError(ModelErrorKind.TIMEOUT, f"The provider was silent for {idle_s:g} s")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            # Not in its own words: they quote headers.
            return ModelError(
                ModelErrorKind.INVALID_REQUEST, f"The request is no valid HTTP ({type(failure).__name__})"
            )
        case httpx2.DecodingError():
            return ModelError(ModelErrorKind.INCOMPLETE, f"The provider's answer cannot be decompressed: {said}")
        case httpx2.RemoteProtocolError() if answered:
            return ModelError(ModelErrorKind.INCOMPLETE, f"The provider broke off its answer: {said}")
        case _:
            return ModelError(ModelErrorKind.TRANSPORT, f"The connection to the provider failed: {said}")
