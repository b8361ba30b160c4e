"""What a user declares: agents and tools, and what a tool is given and may give.

Lives here: frozen declarations only, so that `from perdure import Agent, tool` costs nothing. Not here: schemas and
argument checks (`tools/`), running them (`runner/tools.py`). A tool's `effect` says what repeating it would mean;
undeclared means `write`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, overload

from perdure import errors
from perdure.core.messages import Effect, JsonObject
from perdure.models.port import Model

Function = Callable[..., Any]
ApprovalRule = Literal["never", "always"] | Callable[[dict[str, Any]], bool]
"""Whether a call waits for a person: never, always, or a function of its arguments."""


class ToolError(Exception):
    """Raised by a tool to tell the model in the tool's own words why the call failed."""


class CallSettled(Exception):
    """Raised in a tool that reports progress of a call which has its outcome already (PUB-2)."""


def _unheard(structured: JsonObject | None, content: str | Sequence[JsonObject]) -> None:
    """Progress of a call that no engine runs."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of its call; ask for it with a parameter annotated `ToolContext`.

    `call_id` is unique only within one assistant message; `idempotency_key` is unique for good. `cancelled` is set once
    nobody waits for the call any more: look at it, or wait on it, in a function that runs in a thread.
    """

    session_id: str
    call_id: str
    assistant_message_id: str = ""
    owner_id: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    report: Callable[[JsonObject | None, str | Sequence[JsonObject]], None] = _unheard

    @property
    def idempotency_key(self) -> str:
        """The same for this one call for ever and for no other: what to hand to a service that takes such a key."""
        return f"{self.session_id}:{self.assistant_message_id}:{self.call_id}"

    def progress(self, *, structured: JsonObject | None = None, content: str | Sequence[JsonObject] = ()) -> None:
        """Show how far the call is, from a thread as well; both values replace what was shown before.

        Shown at most a few times a second, the last one always. Raises `CallSettled` once the call has its outcome.
        """
        self.report(structured, content)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns where a value alone will not do: content, structured data, or both; or that it failed.

    A part of `content` is `{"type": "text", "text": …}`, or `{"type": "image", "mime": …, "data": bytes}` ("file"
    likewise), whose bytes are kept by their hash. Of a failed call the model sees the text.
    """

    content: str | Sequence[JsonObject] = ()
    structured: JsonObject | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A Python function the model may call. `timeout_s` bounds one run; a synchronous function runs in a thread.

    `approval` says which calls wait for a person, `approval_timeout_s` after how long waiting counts as a denial.
    With `parameters`, a JSON Schema, the function is called as `function(arguments, context)` with the model's object
    as it came; without, the schema is read from its signature and the arguments are checked.
    """

    function: Function
    name: str
    description: str
    effect: Effect = "write"
    timeout_s: float | None = None
    parameters: JsonObject | None = None
    approval: ApprovalRule = "never"
    approval_timeout_s: float | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had never been declared a tool."""
        return self.function(*args, **kwargs)


class Toolset(Protocol):
    """Tools that have to be opened before they can be named, such as those of a server."""

    async def start(self, owner_id: str) -> Sequence[Tool]:
        """Open, when the engine starts, and name the tools; `owner_id` is to mark what could outlive the engine."""
        ...

    async def stop(self) -> None:
        """Close, when the engine stops."""
        ...


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    effect: Effect = "write",
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    approval: ApprovalRule = "never",
    approval_timeout_s: float | None = None,
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    effect: Effect = "write",
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    approval: ApprovalRule = "never",
    approval_timeout_s: float | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Declare a function as a tool; its name, docstring and type hints are what the model sees.

    `effect` is `read` (changes nothing), `idempotent` (may be repeated) or `write` (must not be repeated blindly).
    A parameter is described by its entry under `Args:`, or by `Annotated[…, "words"]`. Raises `ConfigError` for another
    effect.
    """
    if effect not in {"read", "idempotent", "write"}:
        raise errors.ConfigError(f"effect={effect!r} is none of read, idempotent, write")

    def declare(function: Function) -> Tool:
        words = description if description is not None else (function.__doc__ or "").strip()
        return Tool(
            function,
            name or getattr(function, "__name__", "tool"),
            words,
            effect,
            timeout_s,
            approval=approval,
            approval_timeout_s=approval_timeout_s,
        )

    return declare(function) if function else declare


class ContextSource(Protocol):
    """A piece of the system context that may change: `session/sources.py` has ready ones."""

    @property
    def name(self) -> str:
        """What the model is told this is."""
        ...

    async def read(self) -> str | None:
        """The text now, None if there is none. Raises `SourceUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers: a model, instructions and tools. `model` is `provider:name` or a `Model` of your own.

    `toolsets` are opened when the engine starts; one toolset may serve several agents. `context_tokens` is the window of
    that model, and of no other that a session may choose (`Perdure(windows=…)`); where it is known, older parts of a long
    conversation, or of a long turn, are summarised in time.
    """

    name: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Tool] = ()
    max_steps: int = 50
    context_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    toolsets: Sequence[Toolset] = ()
    context: Sequence[ContextSource] = ()

    def __post_init__(self) -> None:
        """Refuse two tools of one name, and a budget that allows no step."""
        self.check_names(self.tools)
        if self.max_steps < 1:
            raise errors.ConfigError(f"Agent {self.name!r} must be allowed at least one step")

    def check_names(self, tools: Sequence[Tool]) -> None:
        """Refuse two tools of one name. Raises `ConfigError`."""
        names = [one.name for one in tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise errors.ConfigError(f"Agent {self.name!r} has two tools named {', '.join(sorted(twice))}")

    @property
    def model_name(self) -> str:
        """The model as `provider:name`."""
        return self.model if isinstance(self.model, str) else f"{self.model.provider}:{self.model.name}"
