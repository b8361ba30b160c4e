"""The OpenAPI document: everything that can be asked and everything that can come back.

Lives here: what FastAPI cannot know by itself: problem types by status, every event by its type, what a stream's items are,
who may call. Not here: the routes' own words. OpenAPI 3.1 has no words for the items of a stream: they stand under
`x-itemSchema`, in the form that 3.2 gives to `itemSchema`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from perdure.core import codec, events
from perdure.server import cookies, problems
from perdure.server.sse import EventStream

Schema = dict[str, Any]
OPEN = ("/health", "/v1/login")
ALWAYS = (500, 507)
"""Statuses that any route may answer with which asks the database."""

PROBLEM: Schema = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status", "detail", "remedy"],
    "properties": {
        "type": {"type": "string", "description": "Stable; what a program decides by."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "remedy": {"type": "string", "description": "What to do about it."},
    },
}


def describe(app: FastAPI) -> Schema:
    """The document, made once."""
    if app.openapi_schema is None:
        told = get_openapi(
            title=app.title, version=app.version, summary=app.summary, openapi_version="3.1.0", routes=app.routes
        )
        for path, operation in _operations(told):
            _complete(path, operation)
        schemas = told["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas |= _problems() | _events() | _items()
        _secure(told)
        app.openapi_schema = told
    return app.openapi_schema


def _operations(told: Schema) -> Iterator[tuple[str, Schema]]:
    for path, verbs in told["paths"].items():
        for operation in verbs.values():
            yield path, operation


def _complete(path: str, operation: Schema) -> None:
    """Add what every route may answer with, and what the items of its stream are."""
    responses = operation["responses"]
    for status in () if path in OPEN else ALWAYS:
        responses[str(status)] = problems.described(status)
    stream = responses.get("200", {}).get("content", {}).get(EventStream.media_type)
    if stream is not None:
        stream["x-itemSchema"] = _ref("FeedItem" if path == "/v1/events" else "StreamItem")


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _secure(told: Schema) -> None:
    cookie = {"type": "apiKey", "in": "cookie", "name": cookies.NAME + "*"}
    told["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}, "cookie": cookie}
    told["security"] = [{"bearer": []}, {"cookie": []}]
    for path, operation in _operations(told):
        if path in OPEN:
            operation["security"] = []


# -- problems ----------------------------------------------------------------------------------------------------------------


def _problems() -> Schema:
    statuses = sorted({*problems.STATUS.values(), *problems.FOREIGN.values()})
    return {"Problem": PROBLEM} | {f"Problem{status}": _problem(status) for status in statuses}


def _problem(status: int) -> Schema:
    narrowed = {"type": {"enum": problems.types_of(status)}, "status": {"const": status}}
    return {"title": f"Problem{status}", "allOf": [_ref("Problem"), {"type": "object", "properties": narrowed}]}


# -- events ------------------------------------------------------------------------------------------------------------------


def _events() -> Schema:
    """Every payload by its class, every event by its type, and `Event`, which is one of them."""
    signals: tuple[type[Any], ...] = typing.get_args(events.Signal)
    kinds = [*codec.SESSION_FACTS, *signals]
    _, payloads = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/Data.{name}")
    found = {f"Data.{name}": schema for name, schema in payloads.items()}
    found |= {_name(kind): _event(kind) for kind in kinds}
    found["Fact"] = {"title": "Fact", "oneOf": [_ref(_name(kind)) for kind in codec.SESSION_FACTS]}
    found["Signal"] = {"title": "Signal", "oneOf": [_ref(_name(kind)) for kind in signals]}
    found["EventView"] = {
        "title": "Event",
        "description": "An event in its envelope.",
        "anyOf": [_ref("Fact"), _ref("Signal")],
    }
    return found


def _name(kind: type[Any]) -> str:
    return f"Event.{kind.__name__}"


def _event(kind: Any) -> Schema:
    durable = kind.aggregate_field is not None
    properties: Schema = {
        "id": {"type": "string"},
        "type": {"const": kind.event_type},
        "version": {"const": kind.event_version if durable else 1},
        "created": {"type": "integer", "description": "Epoch ms."},
        "data": _ref(f"Data.{kind.__name__}"),
    }
    required = list(properties)
    if durable:
        properties |= {"metadata": {"type": "object"}, "durable": _ref("Durable")}
        required.append("durable")
    about = {"title": kind.event_type, "description": (kind.__doc__ or "").strip()}
    return about | {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


# -- streams -----------------------------------------------------------------------------------------------------------------


def _items() -> Schema:
    hello: Schema = {"epoch": {"type": "string", "description": "Random per process."}}
    of_session = {
        "Hello": _object(hello | {"session_id": {"type": "string"}}),
        "Synced": _object({"seq": {"type": "integer", "description": "Everything up to here was given."}}),
    }
    of_all = {
        "FeedHello": _object(hello),
        "FeedSynced": _object({"position": {"type": "integer", "description": "Everything up to here was given."}}),
    }
    seq = {"type": "string", "pattern": "^[0-9]+$", "description": "The seq of a fact."}
    position = seq | {"description": "The commit position of a fact."}
    items = {
        "StreamItem": [
            _item("hello", "Hello"),
            _item("synced", "Synced"),
            _item("session.*", "Fact", seq),
            _item("session.*", "Signal"),
        ],
        "FeedItem": [_item("hello", "FeedHello"), _item("synced", "FeedSynced"), _item("session.*", "Fact", position)],
    }
    told = {name: {"title": name, "anyOf": [*some, _item("problem", "Problem")]} for name, some in items.items()}
    return of_session | of_all | told


def _object(properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _item(name: str, data: str, number: Schema | None = None) -> Schema:
    """An item of a stream: its `event`, its `data` as JSON text, and its `id` if it has one."""
    event = {"pattern": "^session[.]"} if name == "session.*" else {"const": name}
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(data)}
    return _object({"event": {"type": "string", **event}, "data": text} | ({} if number is None else {"id": number}))
