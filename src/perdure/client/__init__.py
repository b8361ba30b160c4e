"""The client of a Perdure server: `async with Client(url, token=…) as app`.

The same nouns and the same answers as the embedded engine (`engine/perdure.py`), the same errors, over HTTP. This is
the room's door.
"""

from __future__ import annotations

from perdure.client.client import Client, Page, Recoveries, Sessions
from perdure.client.problems import HistoryReplaced, ServerUnreachable
from perdure.client.session import Session
from perdure.client.wire import ApprovalInfo, InputInfo, Part, SessionInfo

__all__ = [
    "ApprovalInfo",
    "Client",
    "HistoryReplaced",
    "InputInfo",
    "Page",
    "Part",
    "Recoveries",
    "ServerUnreachable",
    "Session",
    "SessionInfo",
    "Sessions",
]
