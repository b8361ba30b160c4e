"""A Python function as a tool: its JSON Schema and the checking of arguments.

Lives here: `Bound`, made once per tool at start-up from type hints by pydantic. Not here: effects, timeouts, what
becomes of a result (`runner/tools.py`). A function that pydantic cannot describe is a `ConfigError` when the engine
starts, not when a model calls it.
"""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pydantic

from perdure import agent, errors
from perdure.core import messages, request


class BadArguments(Exception):
    """The model's arguments do not fit the tool; the model is told."""


class Bound:
    """A tool with its schema."""

    __slots__ = ("_context", "_model", "spec", "tool")

    def __init__(self, tool: agent.Tool) -> None:
        """Read the function's signature. Raises `ConfigError`."""
        self.tool = tool
        try:
            hints = typing.get_type_hints(tool.function, include_extras=True)
            parameters = inspect.signature(tool.function).parameters
        except (NameError, TypeError, ValueError) as error:
            raise errors.ConfigError(f"Tool {tool.name!r} cannot be described: {error}") from error
        self._context = next((name for name in parameters if hints.get(name) is agent.ToolContext), None)
        fields: dict[str, Any] = {}
        for name, parameter in parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise errors.ConfigError(f"Tool {tool.name!r}: parameter {name!r} must be passable by name")
            if name != self._context:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[name] = (hints.get(name, Any), default)
        try:
            self._model = pydantic.create_model(
                tool.name, __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
            )
            schema = self._model.model_json_schema()
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError, TypeError) as error:
            raise errors.ConfigError(f"Tool {tool.name!r} cannot be described: {error}") from error
        schema.pop("title", None)
        self.spec = request.ToolSpec(tool.name, tool.description, schema)

    def arguments(self, given: messages.JsonObject, context: agent.ToolContext) -> dict[str, Any]:
        """Checked keyword arguments for the function. Raises `BadArguments` in words for the model."""
        try:
            checked = self._model.model_validate(given)
        except pydantic.ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(step) for step in problem['loc']) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False)
            )
            raise BadArguments(problems) from error
        arguments = {name: getattr(checked, name) for name in type(checked).model_fields}
        if self._context:
            arguments[self._context] = context
        return arguments
