"""From a signature to a schema, and from a model's arguments to a call (RUN-3)."""

import dataclasses
import functools
from typing import Annotated, Literal

import pydantic
import pytest

from perdure import ToolContext, errors, tool
from perdure.tools.function import BadArguments, Bound

CONTEXT = ToolContext("ses_1", "call_1", "msg_1")


@dataclasses.dataclass
class Address:
    street: str
    number: int = 1


def properties(function):
    return Bound(tool(function)).spec.parameters["properties"]


def test_run_3_a_schema_says_types_defaults_choices_and_what_is_required():
    def send(to: Address, kind: Literal["letter", "parcel"], stamps: list[int] | None = None):
        """Send it."""

    schema = Bound(tool(send)).spec.parameters
    assert schema["required"] == ["to", "kind"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"] == {"enum": ["letter", "parcel"], "type": "string"}
    assert schema["properties"]["stamps"]["default"] is None
    assert schema["$defs"]["Address"]["required"] == ["street"]


def test_run_3_a_parameter_is_described_by_docstring_annotation_or_field():
    def book(
        day: str,
        seats: Annotated[int, "how many"],
        row: Annotated[int, pydantic.Field(ge=1, description="from the front")],
        note: str = pydantic.Field("none", max_length=9),
    ):
        """Book seats.

        Args:
            day: as YYYY-MM-DD
            row: not shown, since the field says more
            note: for the usher
        """

    found = properties(book)
    assert {name: about["description"] for name, about in found.items()} == {
        "day": "as YYYY-MM-DD",
        "seats": "how many",
        "row": "from the front",
        "note": "for the usher",
    }
    assert (found["row"]["minimum"], found["note"]["default"], found["note"]["maxLength"]) == (1, "none", 9)
    assert Bound(tool(book)).spec.description == "Book seats."


def test_run_3_a_parameter_may_have_any_name():
    def odd(schema: str, json: int, model_id: str, _hidden: int, copy: float = 0.5):
        """Odd."""

    given = {"schema": "s", "json": 1, "model_id": "m", "_hidden": 2}
    assert Bound(tool(odd)).arguments(given, CONTEXT) == {**given, "copy": 0.5}


@pytest.mark.parametrize("hint", [ToolContext, ToolContext | None])
def test_run_3_the_context_is_given_by_the_engine_and_unknown_to_the_model(hint):
    def look(what: str, where=None): ...

    look.__annotations__["where"] = hint
    bound = Bound(tool(look))
    assert list(bound.spec.parameters["properties"]) == ["what"]
    assert bound.arguments({"what": "up"}, CONTEXT) == {"what": "up", "where": CONTEXT}
    with pytest.raises(BadArguments, match="where: Extra inputs are not permitted"):
        bound.arguments({"what": "up", "where": {}}, CONTEXT)


def test_run_3_bad_arguments_are_told_to_the_model_one_by_one():
    def send(to: Address, times: int): ...

    with pytest.raises(BadArguments) as caught:
        Bound(tool(send)).arguments({"to": {"number": "many"}, "extra": 1}, CONTEXT)
    words = str(caught.value)
    assert all(name in words for name in ("to.street", "to.number", "times", "extra"))


def test_run_3_a_check_of_the_users_own_that_raises_anything_is_a_bad_argument():
    def explode(value):
        raise RuntimeError("not today")

    def send(to: Annotated[str, pydantic.AfterValidator(explode)]): ...

    with pytest.raises(BadArguments, match="RuntimeError: not today"):
        Bound(tool(send)).arguments({"to": "x"}, CONTEXT)


def test_a_method_a_partial_and_an_object_are_tools_too():
    class Shop:
        def sell(self, item: str): ...

        def __call__(self, item: int): ...

    def both(item: float, where: str): ...

    for function, kind in (
        (Shop().sell, "string"),
        (Shop(), "integer"),
        (functools.partial(both, where="x"), "number"),
    ):
        assert properties(function)["item"]["type"] == kind


def test_what_cannot_be_described_is_a_configuration_error_at_start():
    class Strange: ...

    def strange(x: Strange): ...

    def unnamed(*values: int): ...

    def missing(x: "Nowhere"): ...  # noqa: F821

    for function in (strange, unnamed, missing):
        with pytest.raises(errors.ConfigError, match=function.__name__):
            Bound(tool(function))


def test_a_raw_tool_is_given_the_models_object_as_it_came():
    from perdure import Tool

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    bound = Bound(Tool(lambda arguments, context: None, "raw", "words", parameters=schema))
    assert bound.spec.parameters is schema
    assert bound.arguments({"a": "as it is"}, CONTEXT) == {"arguments": {"a": "as it is"}, "context": CONTEXT}


def test_rec_8_the_idempotency_key_tells_calls_apart_that_share_an_id():
    assert CONTEXT.idempotency_key == "ses_1:msg_1:call_1"
    assert dataclasses.replace(CONTEXT, assistant_message_id="msg_2").idempotency_key != CONTEXT.idempotency_key


def test_an_undeclared_effect_is_write_and_an_unknown_one_is_refused():
    assert tool(lambda: None).effect == "write"
    with pytest.raises(errors.ConfigError, match="none of read, idempotent, write"):
        tool(effect="maybe")
