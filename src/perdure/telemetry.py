"""Spans for whoever listens: one a turn, one a model call, one a tool call (OpenTelemetry).

Lives here: their names and attributes, and the thread from a dead owner's turn to the one that goes on. Not here: an SDK,
an exporter; without one no span is made, and with one none for anything smaller than a call.
What was said is never an attribute: no prompt, no answer, no argument, no error's words.

The attributes are those of the GenAI conventions, spelled out here, since every packaged list of them is marked as moved.
"""

from __future__ import annotations

from typing import Any, Self

from opentelemetry import context, trace
from opentelemetry.trace.propagation import tracecontext

from perdure import errors
from perdure.core import messages

OPERATION = "gen_ai.operation.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
FINISH = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
TOOL = "gen_ai.tool.name"
CALL = "gen_ai.tool.call.id"
ERROR = "error.type"
EXECUTION = "perdure.execution.id"
COST = "perdure.cost.microdollars"

TRACEPARENT = "traceparent"
"""The key under which the metadata of `execution.started` keeps the turn's place in its trace."""

_tracer = trace.get_tracer("perdure")
_carrier = tracecontext.TraceContextTextMapPropagator()
_TURN = context.create_key("perdure-turn")


class Span:
    """A span, and what may be said of it: the current one for a block, told of an error that leaves the block, then ended."""

    def __init__(self, span: trace.Span, around: context.Context | None = None, *, opened: bool = True) -> None:
        """Wrap it; one that is never opened leaves no trace."""
        self._span = span
        self._around, self._opened = around, opened

    def __enter__(self) -> Self:
        """Make it the current one."""
        self._token = context.attach(trace.set_span_in_context(self._span, self._around))
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """It is over."""
        if error is not None:
            self.failed(error)
        context.detach(self._token)
        if self._opened:
            self._span.end()

    @property
    def recording(self) -> bool:
        """Whether anybody listens."""
        return self._span.is_recording()

    def open_turn(self, agent: str, model: str, execution_id: str) -> None:
        """A turn that came about; one that did not leaves no span."""
        self._opened = True
        self._span.update_name(f"invoke_agent {agent}")
        self._span.set_attributes({AGENT: agent, MODEL: model, EXECUTION: execution_id})

    def follow(self, traceparent: str | None) -> None:
        """Link to the turn that a dead owner left, or that waited for a person."""
        if traceparent:
            there = trace.get_current_span(_carrier.extract({TRACEPARENT: traceparent}, context.Context()))
            self._span.add_link(there.get_span_context())

    def used(self, reason: str, tokens: messages.Tokens | None, cost: int | None) -> None:
        """How a model call ended, and what it took."""
        if not self.recording:
            return
        self._span.set_attribute(FINISH, [reason])
        if cost is not None:
            self._span.set_attribute(COST, cost)
        if tokens:
            counted = {INPUT_TOKENS: tokens.input, OUTPUT_TOKENS: tokens.output}
            cached = {CACHE_READ_TOKENS: tokens.cache_read, CACHE_WRITE_TOKENS: tokens.cache_write}
            self._span.set_attributes(counted | cached)

    def failed(self, error: BaseException | str) -> None:
        """It failed; only the kind of error is told."""
        self._span.set_status(trace.StatusCode.ERROR)
        self._span.set_attribute(ERROR, error if isinstance(error, str) else _kind(error))


class _Silence(Span):
    """The span of all that nobody listens to."""

    def __enter__(self) -> Self:
        """Leave the current one."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Nothing was begun."""

    def open_turn(self, agent: str, model: str, execution_id: str) -> None:
        """Tell nobody."""

    def failed(self, error: BaseException | str) -> None:
        """Tell nobody."""


_SILENCE = _Silence(trace.INVALID_SPAN)


def unheard() -> bool:
    """Whether no SDK is installed, until now. Asking for the provider takes as long as a span that goes nowhere, so that is
    looked at by its name; were it called otherwise one day, all spans would be made.
    """
    return _tracer.__class__ is trace.ProxyTracer and getattr(trace, "_TRACER_PROVIDER", _tracer) is None


def _kind(error: BaseException) -> str:
    if isinstance(error, errors.ModelError):
        return error.kind.value
    return error.type if isinstance(error, errors.PerdureError) else type(error).__name__


def turn(session_id: str) -> Span:
    """The span of a turn that is about to be opened; calls made inside are its children."""
    if unheard():
        return _SILENCE
    span = _tracer.start_span(
        "invoke_agent", context.Context(), attributes={OPERATION: "invoke_agent", CONVERSATION: session_id}
    )
    return Span(span, context.set_value(_TURN, span), opened=False)


def chat(session_id: str, provider: str, model: str) -> Span:
    """The span of one request to a provider."""
    if unheard():
        return _SILENCE
    about = {OPERATION: "chat", CONVERSATION: session_id, PROVIDER: provider, MODEL: model}
    return Span(_tracer.start_span(f"chat {model}", kind=trace.SpanKind.CLIENT, attributes=about))


def tool(session_id: str, name: str, call_id: str) -> Span:
    """The span of one tool call: the turn's child, though it may start while the model still speaks."""
    if unheard():
        return _SILENCE
    about = {OPERATION: "execute_tool", CONVERSATION: session_id, TOOL: name, CALL: call_id}
    turn_span = context.get_value(_TURN)
    parent = trace.set_span_in_context(turn_span) if isinstance(turn_span, trace.Span) else None
    return Span(_tracer.start_span(f"execute_tool {name}", parent, attributes=about))


def traceparent() -> dict[str, Any] | None:
    """Metadata that says where in a trace we are; None where nobody listens."""
    carrier: dict[str, Any] = {}
    _carrier.inject(carrier)
    return {TRACEPARENT: carrier[TRACEPARENT]} if TRACEPARENT in carrier else None


def ids() -> dict[str, str]:
    """Trace and span of whoever runs now, for a line of log; nothing where nobody listens."""
    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(here.trace_id), "span_id": trace.format_span_id(here.span_id)}
