"""A Python function as a tool: its JSON Schema and the checking of arguments.

Lives here: `Bound`, made once per tool at start-up from type hints by pydantic. Not here: effects, timeouts, what
becomes of a result (`runner/tools.py`). A function that pydantic cannot describe is a `ConfigError` when the engine
starts, not when a model calls it. Fields are numbered and carry the parameter's name as an alias, so that a parameter
may have any name, `schema` and `model_id` included.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Mapping
from typing import Annotated, Any, cast

import pydantic
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from perdure import agent, errors
from perdure.core import messages, request
from perdure.tools import docstring


class BadArguments(Exception):
    """The model's arguments do not fit the tool; the model is told."""


class Bound:
    """A tool with its schema."""

    __slots__ = ("_context", "_model", "_names", "spec", "tool")

    def __init__(self, tool: agent.Tool) -> None:
        """Read the function's signature. Raises `ConfigError`."""
        self.tool = tool
        self._context: str | None = "context"
        self._model: type[pydantic.BaseModel] | None = None
        self._names: dict[str, str] = {}
        if tool.parameters is not None:
            self.spec = request.ToolSpec(tool.name, tool.description, tool.parameters)
            return
        try:
            schema, words = self._read()
        except errors.ConfigError:
            raise
        except Exception as error:
            raise errors.ConfigError(f"Tool {tool.name!r} cannot be described: {error}") from error
        self.spec = request.ToolSpec(tool.name, words, schema)

    def _read(self) -> tuple[messages.JsonObject, str]:
        """Make the model of the arguments; its schema, and the tool's description."""
        function = self.tool.function
        hints, parameters = _hints(function), inspect.signature(function).parameters
        self._context = next((name for name in parameters if _is_context(hints.get(name))), None)
        fields: dict[str, Any] = {}
        for name, parameter in parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise errors.ConfigError(f"Tool {self.tool.name!r}: parameter {name!r} must be passable by name")
            if name != self._context:
                field = f"argument{len(fields)}"
                self._names[field] = name
                fields[field] = _field(name, hints.get(name, Any), parameter)
        config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        self._model = pydantic.create_model(self.tool.name, __config__=config, **fields)
        schema = self._model.model_json_schema(schema_generator=_Schema)
        schema.pop("title", None)
        words, described = docstring.split(self.tool.description)
        if not described:
            described = docstring.split(getattr(function, "__doc__", None) or "")[1]
        for name, about in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).items():
            about.pop("title", None)
            if name in described:
                about.setdefault("description", described[name])
        return schema, words

    def arguments(self, given: messages.JsonObject, context: agent.ToolContext) -> dict[str, Any]:
        """Checked keyword arguments for the function. Raises `BadArguments` in words for the model."""
        if self._model is None:
            return {"arguments": given, "context": context}
        try:
            checked = self._model.model_validate(given)
        except pydantic.ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(step) for step in problem['loc']) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False, include_context=False, include_input=False)
            )
            raise BadArguments(problems) from error
        except Exception as error:  # a type may check its values with code of its own
            raise BadArguments(f"{type(error).__name__}: {error}") from error
        arguments = {name: getattr(checked, field) for field, name in self._names.items()}
        if self._context:
            arguments[self._context] = context
        return arguments


class _Schema(GenerateJsonSchema):
    """A default that JSON cannot hold is left out of the schema without a word: Python supplies it."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Say nothing."""


def _hints(function: agent.Function) -> Mapping[str, Any]:
    """The type hints of a function, of what a partial wraps, or of an object's `__call__`."""
    while isinstance(function, functools.partial):
        function = cast("agent.Function", function.func)
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    return typing.get_type_hints(function, include_extras=True)


def _is_context(hint: Any) -> bool:
    return hint is agent.ToolContext or agent.ToolContext in typing.get_args(hint)


def _field(name: str, hint: Any, parameter: inspect.Parameter) -> Any:
    """The parameter as a field: words in `Annotated` describe it, and so does a `Field` in either place."""
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, str):
            hint = Annotated[hint, pydantic.Field(description=extra)]
    if isinstance(parameter.default, FieldInfo):
        return Annotated[hint, parameter.default, pydantic.Field(alias=name)]
    default = ... if parameter.default is parameter.empty else parameter.default
    return (hint, pydantic.Field(default, alias=name))
