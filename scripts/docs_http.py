"""Writes docs/reference/http.md from the OpenAPI document and the table of errors; `--check` only says if it is current."""

import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pages

from perdure import agent, config, errors
from perdure.engine import perdure as embedded
from perdure.models import scripted
from perdure.server import app, problems

HEAD = """# HTTP

Written from the OpenAPI document, which a server gives at `/openapi.json`, by `make docs`.

Every route but `/health`, logging in and a page's own files asks for `Authorization: Bearer TOKEN`, or for the cookie that
logging in gives. Bodies are JSON and say so (`Content-Type: application/json`, which `curl --json` sends). Reading never
waits for a turn. A field marked `?` may be left out; times are epoch milliseconds, costs micro-dollars. `GET /v1/events`
and `GET /v1/sessions/{session_id}/events` answer with a page, or with a stream of server-sent events where the request
has `Accept: text/event-stream`; what the events are is in [events.md](events.md). Any route that asks for the token may
answer with the problems 401, 403, 500, 503 and 507, which are not listed again."""

PROBLEMS = """## Problems

An error is `application/problem+json`: `{"type", "title", "status", "detail", "remedy"}`, and more where the error has more to
say. A program decides by `type`, a person reads `detail` and `remedy`. Besides these, `not-found` and `method-not-allowed` are
said of routes that do not exist, `unexpected` of what nobody foresaw, `stopping` (503) of a request that
the server's end cut off, `not-http` (400) and `headers-too-large` (431) of what is no request; the
connection is then closed."""

EVENTS = {"EventView": "Event", "Fact": "Event", "Signal": "Event"}
EVERYWHERE = {"401", "403", "500", "503", "507"}
Schema = dict[str, Any]


def document() -> Schema:
    """The OpenAPI document of a server that opens nothing."""
    someone = agent.Agent("default", scripted.ScriptedModel([]))
    served = embedded.Perdure([someone], settings=config.Settings())
    return app.create_app(served, token="none").openapi()  # noqa: S106, nobody asks for it


class Schemas:
    """The schemas of the document, and which of them were met."""

    def __init__(self, all_of_them: dict[str, Schema]) -> None:
        self.known, self.met = all_of_them, dict[str, None]()

    def called(self, schema: Schema) -> str:
        """What a schema is called where it is used."""
        if "$ref" in schema:
            return self._link(schema["$ref"].rpartition("/")[2])
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return " · ".join(f"`{one}`" for one in schema["enum"])
        if choices := schema.get("anyOf", schema.get("oneOf")):
            return " or ".join(dict.fromkeys(self.called(one) for one in choices if one.get("type") != "null"))
        match schema.get("type"):
            case "array":
                return f"list of {self.called(schema.get('items', {}))}"
            case "object":
                more = schema.get("additionalProperties")
                return f"object of {self.called(more)}" if isinstance(more, dict) and more else "object"
            case "string":
                return "text" + _bounds(schema, "minLength", "maxLength", " characters")
            case "integer" | "number":
                return "number" + _bounds(schema, "minimum", "maximum", "")
            case "boolean":
                return "true or false"
            case _:
                return "any"

    def _link(self, name: str) -> str:
        if name in EVENTS:
            return "[Event](events.md)"
        self.met.setdefault(name)
        return f"[{_title(name)}](#{_title(name).lower()})"

    def fields(self, schema: Schema) -> str:
        """The fields of an object, as a table."""
        required = set(schema.get("required", ()))
        rows = []
        for name, field in schema.get("properties", {}).items():
            default = field.get("default")
            usual = "" if default is None else f", usually `{_json(default)}`"
            said = f". {field['description']}" if "description" in field else ""
            rows.append([f"`{name}`{'' if name in required else '?'}", self.called(field) + usual + said])
        return pages.table(["field", "value"], rows) if rows else ""

    def described(self) -> Iterator[str]:
        """Those met so far and those met on the way, by name."""
        done: dict[str, str] = {}
        while waiting := [name for name in self.met if name not in done]:
            for name in waiting:
                schema = self.known[name]
                about = schema.get("description", "")
                choices = (
                    self.called(schema)
                    if "properties" not in schema and ("anyOf" in schema or "oneOf" in schema)
                    else ""
                )
                done[name] = pages.joined(f"### {_title(name)}", about, choices, self.fields(schema))
        return (done[name] for name in sorted(done))


def _title(name: str) -> str:
    """`Policy-Input` and `Policy-Output` are what a caller sends and what it is given."""
    noun, _, way = name.partition("-")
    return f"{noun}{'Sent' if way == 'Input' else ''}"


def _bounds(schema: Schema, low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is None and most is None:
        return ""
    least, most = (
        None if one is None else f"{one:.0f}" if float(one).is_integer() else str(one) for one in (least, most)
    )
    return f", {least or ''}…{most or ''}{unit}"


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


# -- routes --------------------------------------------------------------------------------------------------------------


def route(method: str, path: str, said: Schema, schemas: Schemas) -> str:
    parameters = [
        [f"`{one['name']}`{'' if one.get('required') else '?'}", one["in"], _parameter(one["schema"], schemas)]
        for one in said.get("parameters", ())
        if one["in"] != "path"
    ]
    return pages.joined(
        f"### {method.upper()} {path}",
        said.get("description", ""),
        pages.table(["parameter", "in", "value"], parameters) if parameters else "",
        _body(said.get("requestBody"), schemas),
        _answers(said["responses"], schemas),
    )


def _parameter(schema: Schema, schemas: Schemas) -> str:
    default = schema.get("default")
    return schemas.called(schema) + ("" if default in {None, ""} else f", usually `{_json(default)}`")


def _body(body: Schema | None, schemas: Schemas) -> str:
    if not body:
        return ""
    kinds = [schemas.called(one["schema"]) for one in body["content"].values()]
    return f"Body{'' if body.get('required') else ', if any'}: {', '.join(kinds)}."


def _answers(responses: Schema, schemas: Schemas) -> str:
    good, bad = [], []
    for status, response in responses.items():
        if int(status) >= 400:
            bad += [status] if status not in EVERYWHERE else []
            continue
        kinds = [
            f"`{kind}`" if kind != "application/json" else schemas.called(one.get("schema", {}))
            for kind, one in response.get("content", {}).items()
        ]
        good.append(f"{status}{' with ' + ' or '.join(kinds) if kinds else ', with nothing'}")
    refusals = f" Problems: {', '.join(sorted(bad))}." if bad else ""
    return f"Answers {', '.join(good)}.{refusals}"


def routes(said: Schema, schemas: Schemas) -> Iterator[str]:
    """By their tags, in the order of the document."""
    found = [
        (operation.get("tags", ["other"])[0], method, path, operation)
        for path, methods in said["paths"].items()
        for method, operation in methods.items()
    ]
    tags = list(dict.fromkeys(tag for tag, *_ in found))
    for tag, group in itertools.groupby(sorted(found, key=lambda one: tags.index(one[0])), key=lambda one: one[0]):
        yield f"## Routes: {tag}"
        yield from (route(method, path, operation, schemas) for _, method, path, operation in group)


# -- problems ------------------------------------------------------------------------------------------------------------


def kinds(above: type[errors.PerdureError]) -> Iterator[type[errors.PerdureError]]:
    """Every error class, each after the one it is a kind of."""
    yield above
    for one in above.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from kinds(one)


def problem_table(classes: Iterable[type[errors.PerdureError]]) -> str:
    rows = []
    for one in classes:
        title = (inspect.getdoc(one) or "").splitlines()[0]
        rows.append([f"`{one.type}`", str(problems.status_of(one)), title, one.remedy])
    return pages.table(["type", "status", "title", "remedy"], rows)


def page() -> str:
    said = document()
    schemas = Schemas(said["components"]["schemas"])
    served = list(routes(said, schemas))
    table = problem_table(kinds(errors.PerdureError))
    return pages.joined(HEAD, *served, "## Bodies", *schemas.described(), PROBLEMS, table)


if __name__ == "__main__":
    sys.exit(pages.main("reference/http.md", page()))
