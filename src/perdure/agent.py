"""What a user declares: agents and tools.

Lives here: frozen declarations only, so that `from perdure import Agent, tool` costs nothing. Not here: schemas and
argument checks (`tools/`), running them (`runner/tools.py`). A tool's `effect` says what repeating it would mean;
undeclared means `write`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from perdure import errors
from perdure.core.messages import Effect
from perdure.models.port import Model

Function = Callable[..., Any]
ApprovalRule = Literal["never", "always"] | Callable[[dict[str, Any]], bool]
"""Whether a call waits for a person: never, always, or a function of its arguments."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of its call; ask for it with a parameter annotated `ToolContext`.

    `call_id` is unique within the session and stable for the call: use it as an idempotency key.
    """

    session_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A Python function the model may call. `timeout_s` bounds one run; a synchronous function runs in a thread.

    `approval` says which calls wait for a person, `approval_timeout_s` after how long waiting counts as a denial.
    """

    function: Function
    name: str
    description: str
    effect: Effect = "write"
    timeout_s: float | None = None
    approval: ApprovalRule = "never"
    approval_timeout_s: float | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had never been declared a tool."""
        return self.function(*args, **kwargs)


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
    Raises `ConfigError` for another word.
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
            approval,
            approval_timeout_s,
        )

    return declare(function) if function else declare


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers: a model, instructions and tools. `model` is `provider:name` or a `Model` of your own.

    `context_tokens` is the model's window; where it is known, older parts of a long conversation are summarised in time.
    """

    name: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Tool] = ()
    max_steps: int = 50
    context_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Refuse two tools of one name, and a budget that allows no step."""
        names = [one.name for one in self.tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise errors.ConfigError(f"Agent {self.name!r} has two tools named {', '.join(sorted(twice))}")
        if self.max_steps < 1:
            raise errors.ConfigError(f"Agent {self.name!r} must be allowed at least one step")

    @property
    def model_name(self) -> str:
        """The model as `provider:name`."""
        return self.model if isinstance(self.model, str) else f"{self.model.provider}:{self.model.name}"
