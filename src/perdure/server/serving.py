"""What handlers share: the engine, the frames, and the word that it is time to go.

Lives here: `Serving`, one per app, and the dependencies by which handlers get at it and at the session a path names.
Not here: routes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Path, Request

from perdure import config, errors, ids
from perdure.engine import perdure as embedded
from perdure.server import auth, frames, metrics


class Serving:
    """One app's shared state. `closing` is set when open streams and waits are to end."""

    def __init__(self, perdure: embedded.Perdure, settings: config.Settings, guard: auth.Guard) -> None:
        """Serve `perdure`, which is started and stopped elsewhere."""
        self.perdure, self.settings, self.guard = perdure, settings, guard
        self.frames, self.feed_frames = frames.Frames(), frames.Frames(frames.feed_frame)
        self.counts, self.readers = metrics.Counts(), Counter[str]()
        self.closing = asyncio.Event()

    @contextlib.contextmanager
    def reading(self, of: str) -> Generator[None, None, None]:
        """Count an open stream."""
        self.readers[of] += 1
        try:
            yield
        finally:
            self.readers[of] -= 1

    def close(self) -> None:
        """End open streams and waits: the server is about to stop."""
        if not self.closing.is_set():
            self.closing.set()
            self.perdure.engine.leave()


async def serving(request: Request) -> Serving:
    """The app's shared state."""
    return request.app.state.serving


Here = Annotated[Serving, Depends(serving)]


IN_PATH: dict[str, Any] = {"minLength": 1, "maxLength": 200, "pattern": "^[A-Za-z0-9._:@~+-]+$"}
"""What OpenAPI says of an id in a path; `ids.py` refuses others, in its own words."""


async def session(here: Here, session_id: Annotated[str, Path(json_schema_extra=IN_PATH)]) -> embedded.Session:
    """The session the path names. Raises `InvalidId`, `SessionNotFound`, `SessionGone`."""
    return await here.perdure.sessions.get(ids.check_shape("Session id", session_id))


async def no_body(request: Request) -> None:
    """Refuse what a route would ignore. Raises `InvalidInput` for a body that says anything."""
    body = await request.body()
    if body and msgspec.json.decode(body) not in ({}, None):
        raise errors.InvalidInput("body: this route takes none; leave it out")


async def message_id(message_id: Annotated[str, Path(json_schema_extra=IN_PATH)]) -> str:
    """The prompt the path names. Raises `InvalidId`."""
    return ids.check_shape("Prompt id", message_id)


Target = Annotated[embedded.Session, Depends(session)]
TAKES_NOTHING = [Depends(no_body)]
"""The dependencies of a route that takes no body."""
PromptId = Annotated[str, Depends(message_id)]
