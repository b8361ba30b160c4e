"""What a reader of all sessions is sent: every fact after a commit position, the boundary, then everything as it comes.

Lives here: the frames of that stream, in the log's own order. Not here: sockets (`sse.py`), one session's stream with its
live text (`joining.py`). A fact's frame is made once, whoever many read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from perdure.log.log import Synced
from perdure.server import frames
from perdure.server.serving import Serving


async def reader(here: Serving, after: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    """The frames of one reader. Raises what the feed raises."""
    engine = here.perdure.engine
    yield frames.note("hello", {"epoch": engine.epoch})
    live = False
    async with aclosing(engine.log.feed(after)) as feed:
        async for item in feed:
            if not isinstance(item, Synced):
                yield here.feed_frames.live(item) if live else frames.feed_frame(item)
                continue
            yield frames.note("synced", {"position": item.seq})
            if not follow:
                return
            live = True
