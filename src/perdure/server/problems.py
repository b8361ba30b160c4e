"""Errors as problem documents (RFC 9457): the one table from error class to HTTP status.

Lives here: the table, the document, the handlers that turn an exception into one, and what a route declares of them. Not
here: any decision about what is an error, the OpenAPI document (`describing.py`). A class without a row of its own has its
nearest ancestor's; what is no error of ours is a 500 that tells nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perdure import errors
from perdure.core import codec

MEDIA_TYPE = "application/problem+json"
_logger = logging.getLogger("perdure.server")

STATUS: dict[type[errors.PerdureError], int] = {
    errors.PerdureError: 500,
    errors.InvalidInput: 422,
    errors.MalformedJson: 400,
    errors.TooLarge: 413,
    errors.NotFound: 404,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.ConfigError: 500,
    errors.Conflict: 409,
    errors.SessionGone: 410,
    errors.ClaimRefused: 409,
    errors.ClaimLost: 409,
    errors.InvalidDurableEvent: 409,
    errors.Undecodable: 500,
    errors.SubscriberOverflow: 503,
    errors.StoreError: 503,
    errors.StoreFull: 507,
    errors.StoreFailed: 500,
    errors.StoreCorrupt: 500,
    errors.ModelError: 502,
    errors.SourceUnavailable: 503,
    errors.ContextBlocked: 503,
    errors.Defect: 500,
}
FOREIGN = {
    "not-found": 404,
    "method-not-allowed": 405,
    "unexpected": 500,
    "not-http": 400,
    "headers-too-large": 431,
    "stopping": 503,
}
"""Types of problems that are none of our errors: of the protocol, of routing, of the server's end, and of what nobody
foresaw.
"""

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


def status_of(kind: type[errors.PerdureError]) -> int:
    """The status of an error class: its own row, else its nearest ancestor's."""
    return next(STATUS[one] for one in kind.__mro__ if one in STATUS)


def document(error: errors.PerdureError) -> dict[str, Any]:
    """An error as a problem document; what the error carries besides its words are members of their own."""
    status = status_of(type(error))
    title = (type(error).__doc__ or type(error).__name__).strip().splitlines()[0]
    more = {name: value for name, value in vars(error).items() if not name.startswith("_") and value is not None}
    return more | _document(error.type, title, status, str(error), error.remedy)


def _document(kind: str, title: str, status: int, detail: str, remedy: str) -> dict[str, Any]:
    clean = detail.encode("utf-8", "replace").decode()
    return {"type": kind, "title": title, "status": status, "detail": clean, "remedy": remedy}


def response(error: errors.PerdureError) -> Response:
    """An error as a response; what is our fault or the disk's is logged."""
    problem = document(error)
    if problem["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _logger.error("request failed", extra={"problem": error.type, "detail": str(error)}, exc_info=error)
    return _response(problem)


def unexpected(error: Exception) -> Response:
    """What nobody foresaw: logged in full, told in a sentence."""
    _logger.error("request failed unexpectedly", exc_info=error)
    remedy = errors.PerdureError.remedy
    return _response(_document("unexpected", "The server failed.", 500, "The server failed unexpectedly.", remedy))


def stopping() -> Response:
    """The server ends before the request is done."""
    detail = "The server is stopping; the request may have been done."
    remedy = "Send the request again: the same id does nothing twice."
    return _response(_document("stopping", "The server is stopping.", 503, detail, remedy))


def unreadable(status: int, detail: str) -> Response:
    """What is no request at all: not HTTP/1.1, or with more headers than anybody needs."""
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        remedy = "Send fewer or shorter headers."
        return _response(_document("headers-too-large", "The headers are too large.", status, detail, remedy))
    remedy = "Send HTTP/1.1; the connection is closed."
    return _response(_document("not-http", "This is no valid HTTP request.", 400, detail, remedy))


def _response(problem: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    status: int = problem["status"]
    more = {**_HEADERS.get(status, {}), **(headers or {})}
    return Response(codec.dump(problem), status, more, MEDIA_TYPE)


# -- handlers ------------------------------------------------------------------------------------------------------------


async def _perdure_error(_: Request, error: Exception) -> Response:
    return response(cast("errors.PerdureError", error))


async def _invalid_request(request: Request, error: Exception) -> Response:
    found = cast("RequestValidationError", error).errors()
    if any(one["loc"] == ("body",) for one in found) and "json" not in request.headers.get("content-type", ""):
        return response(errors.InvalidInput("The body is not declared as JSON: send 'Content-Type: application/json'"))
    said = "; ".join(_complaint(one) for one in found[:3])
    if any(one["type"] == "json_invalid" for one in found):
        return response(errors.MalformedJson(said))
    return response(errors.InvalidInput(said))


def _complaint(one: Any) -> str:
    where = ".".join(str(step) for step in cast("Sequence[Any]", one["loc"])[1:]) or "body"
    return f"{where[:200]}: {one['msg']}"


async def _http_error(_: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    phrase = HTTPStatus(known.status_code).phrase
    detail = {404: "There is no such route.", 405: "This route does not take that method."}.get(known.status_code)
    kind = phrase.lower().replace(" ", "-")
    told = _document(kind, phrase, known.status_code, detail or str(known.detail), "See /openapi.json for the routes.")
    return _response(told, dict(known.headers or {}))


def _allowing(routes: Sequence[APIRoute]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answer a method that no route of the path takes: `Allow` names those of all of them, not of the first one only."""

    async def not_allowed(request: Request, _: Exception) -> Response:
        path = request.scope["path"]
        methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
        allow = {"Allow": ", ".join(sorted(methods))}
        return await _http_error(
            request, HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers=allow if methods else None)
        )

    return not_allowed


def install(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Have every error of a handler answered with a problem document."""
    app.add_exception_handler(HTTPStatus.METHOD_NOT_ALLOWED, _allowing(routes))
    app.add_exception_handler(errors.PerdureError, _perdure_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)


# -- what a route declares -----------------------------------------------------------------------------------------------------


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of the problems a route may answer with; `describing.py` has the schemas."""
    return {one: described(one) for one in statuses}


def described(status: int) -> dict[str, Any]:
    """A problem's response."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/Problem{status}"}}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def types_of(status: int) -> list[str]:
    """Every `type` that a problem of that status may have."""
    ours = {one.type for one in _tree(errors.PerdureError) if status_of(one) == status}
    return sorted(ours | {kind for kind, known in FOREIGN.items() if known == status})


def _tree(root: type[errors.PerdureError]) -> Iterator[type[errors.PerdureError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _tree(kind)
