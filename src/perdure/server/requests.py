"""What callers send: one model a body, unknown fields refused.

Lives here: shapes and their limits, and turning parts into the engine's. Not here: rules about prompts or sessions
(`session/`).
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal, Self

import pydantic

from perdure import errors
from perdure.core import codec, events, messages
from perdure.engine import perdure as embedded

Word = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A name: of an agent, a model, a file."""

Attempts = Annotated[int, pydantic.Field(ge=1, le=1000)]
Title = Annotated[str, pydantic.StringConstraints(max_length=2000)]


class _Body(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)


class Budget(_Body):
    """Limits on tokens of all kinds, cost (micro-dollars), wall seconds and steps."""

    tokens: Annotated[int, pydantic.Field(ge=0, le=2**53)] | None = None
    cost: Annotated[int, pydantic.Field(ge=0, le=2**53)] | None = None
    seconds: Annotated[float, pydantic.Field(ge=0, le=2**53)] | None = None
    steps: Annotated[int, pydantic.Field(ge=0, le=2**53)] | None = None


class Retrying(_Body):
    """How often a step is asked of a provider that fails, and how long is waited."""

    attempts: Attempts | None = None
    base_ms: Annotated[int, pydantic.Field(ge=0, le=86_400_000)] | None = None
    retry_after_cap_ms: Annotated[int, pydantic.Field(ge=0, le=86_400_000)] | None = None
    attempts_of: dict[Annotated[errors.ModelErrorKind, pydantic.Strict(strict=False)], Attempts] | None = None


class Policy(_Body):
    """How a session wants to be recovered and bounded; what is left out is the engine's default."""

    recovery: Literal["auto", "ask", "never"] = "auto"
    recovery_budget: Annotated[int, pydantic.Field(ge=0, le=1000)] | None = None
    recovery_max_age_ms: Annotated[int, pydantic.Field(ge=0, le=2**53)] | None = None
    repeat_unknown: Literal["ask", "deny", "allow"] = "ask"
    max_steps: Annotated[int, pydantic.Field(ge=1, le=100_000)] | None = None
    approval: dict[Word, Literal["never", "always"]] | None = None
    session_budget: Budget | None = None
    turn_budget: Budget | None = None
    retry: Retrying | None = None

    def fact(self) -> events.Policy:
        """As the log keeps it."""
        return codec.load(self.model_dump_json(), events.Policy)


class CreateSession(_Body):
    """A new session, or the one created before with the same id and settings."""

    id: str | None = None
    agent: Word | None = None
    title: Title | None = None
    metadata: dict[str, Any] | None = None
    model: Word | None = None
    policy: Policy | None = None

    def policy_fact(self) -> events.Policy | None:
        """The policy as the log keeps it."""
        return None if self.policy is None else self.policy.fact()


class LogIn(_Body):
    """What a page logs in with."""

    token: Annotated[pydantic.SecretStr, pydantic.Field(max_length=1000)]


class ChangeSession(_Body):
    """What is to be otherwise; what is left out or null stays, a policy is replaced as a whole."""

    title: Title | None = None
    metadata: dict[str, Any] | None = None
    archived: bool | None = None
    policy: Policy | None = None
    agent: Word | None = None
    model: Word | None = None

    def changes(self) -> events.Changes:
        """The settings among them."""
        policy = None if self.policy is None else self.policy.fact()
        return events.Changes(self.title, self.metadata, self.archived, policy)


class Fork(_Body):
    """A fork with the facts up to `seq`, all of them by default."""

    id: str | None = None
    seq: Annotated[int, pydantic.Field(ge=0, le=2**53)] | None = None


class Decide(_Body):
    """What is to become of a call that waits; the model is told the note of a denial. `message_id` is the assistant message
    that the call is in, as listed: with it a decision that is sent again can never meet a later call of the same id.
    """

    decision: messages.Decision
    message_id: str | None = None
    note: Annotated[str, pydantic.StringConstraints(max_length=10_000)] | None = None


class Part(_Body):
    """One part of a prompt: text, or an image or file with its bytes in base64."""

    type: Literal["text", "image", "file"]
    text: str | None = None
    data: Annotated[str, pydantic.Field(json_schema_extra={"contentEncoding": "base64"})] | None = None
    mime: Word | None = None
    name: Word | None = None

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> Self:
        """Text has text, the others have data, and neither has both."""
        if (self.type == "text") != (self.text is not None) or (self.type == "text") == (self.data is not None):
            raise ValueError("a text part has text, an image or file has data")
        return self

    def engine_part(self) -> embedded.Part:
        """What the engine takes. Raises `InvalidInput` for data that is no base64."""
        try:
            data = None if self.data is None else base64.b64decode(self.data, validate=True)
        except ValueError:
            raise errors.InvalidInput("parts: data is not base64") from None
        return embedded.Part(self.type, self.text, data, self.mime, self.name)


class SendPrompt(_Body):
    """A prompt: either `text` or `parts`."""

    id: str | None = None
    text: str | None = None
    parts: Annotated[list[Part], pydantic.Field(min_length=1, max_length=1000)] | None = None
    delivery: messages.Delivery = "steer"
    resume: bool = True

    def prompt(self) -> str | list[embedded.Part]:
        """What the engine takes. Raises `InvalidInput` unless there is exactly one of text and parts."""
        if (self.text is None) == (self.parts is None):
            raise errors.InvalidInput("Give either text or parts")
        if self.parts is None:
            return self.text or ""
        return [one.engine_part() for one in self.parts]


class ChangePrompt(_Body):
    """Another delivery of a waiting prompt."""

    delivery: messages.Delivery


class Interrupt(_Body):
    """Stop the open turn; naming an execution, only if it is that one."""

    reason: Annotated[str, pydantic.StringConstraints(min_length=1, max_length=2000)] = "interrupt"
    execution_id: Annotated[str, pydantic.StringConstraints(max_length=200)] | None = None


class Wait(_Body):
    """Wait for a prompt to settle, or without one for the session to be idle; `timeout` in seconds."""

    message_id: str | None = None
    timeout: Annotated[float, pydantic.Field(ge=0, le=600)] = 30.0
