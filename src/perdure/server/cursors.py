"""Opaque cursors: where a page ended, in a form that nobody is tempted to take apart.

Lives here: writing and reading them. A cursor names the kind of list it belongs to, so that one list's cursor is
refused by another.
"""

from __future__ import annotations

import base64
import binascii

from perdure import errors


def write(kind: str, *fields: int | str) -> str:
    """A cursor for a list of that kind."""
    plain = "/".join([kind, *(str(field) for field in fields)])
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def read(kind: str, cursor: str, fields: int) -> list[str]:
    """The fields of a cursor. Raises `InvalidInput` for one that this list never gave."""
    try:
        plain = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        plain = ""
    found = plain.split("/")
    if found[0] != kind or len(found) != fields + 1:
        raise errors.InvalidInput("cursor: this list never gave that cursor")
    return found[1:]


def number(field: str) -> int:
    """A field that is a number. Raises `InvalidInput`."""
    if not (field.isascii() and field.isdigit() and len(field) < 19):
        raise errors.InvalidInput("cursor: this list never gave that cursor")
    return int(field)
