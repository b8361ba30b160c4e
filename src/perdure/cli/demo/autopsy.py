"""What a dead process left in its database, before anybody else has touched it.

Lives here: `examine`, on a copy of the files, so that the next server finds the original exactly as the kill left it.
Not here: what should have been found (`scenes.py`).
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perdure.core import messages
from perdure.store import claims, inbox, port, sqlite


@dataclass(frozen=True, slots=True)
class Remains:
    """A session as its dead owner left it: the claim, what waits, the transcript, the last seq."""

    claim: claims.ClaimRow | None
    pending: tuple[inbox.InputRow, ...]
    messages: tuple[messages.Message, ...]
    seq: int

    @property
    def parts(self) -> tuple[messages.Part, ...]:
        """Parts of the newest assistant."""
        newest = self.messages[-1] if self.messages else None
        return newest.parts if isinstance(newest, messages.Assistant) else ()

    def calls(self) -> list[str]:
        """Where the tool calls of the whole session stand."""
        return [
            messages.tool_status(part)
            for message in self.messages
            if isinstance(message, messages.Assistant)
            for part in message.parts
            if isinstance(part, messages.ToolPart)
        ]


async def examine(database: Path, session_id: str) -> Remains:
    """Look at a copy of the database and its WAL."""

    def work(tx: port.Tx) -> Remains:
        return Remains(
            tx.claims.of_session(session_id),
            tuple(map(tx.inbox.whole, tx.inbox.pending(session_id))),
            tuple(tx.messages.page(session_id, -1, 1000)),
            tx.events.sequence(session_id)[0],
        )

    with tempfile.TemporaryDirectory(prefix="perdure-autopsy-") as place:
        for name in (database.name, f"{database.name}-wal"):
            if (database.parent / name).exists():
                shutil.copy(database.parent / name, place)
        store = await sqlite.SqliteStore.open(Path(place) / database.name)
        try:
            return await store.read(work)
        finally:
            await store.close()
