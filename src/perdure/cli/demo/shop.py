"""The shop that the demo's agent works for: a tool whose effect can be counted, and two gates.

Lives here: the tool `refund` (one line in a ledger file per refund) and the gates that the demo closes so that a kill
strikes where it says. Not here: the app that serves it (`app.py`), the demo itself (`story.py`). A gate is a file in
PERDURE_DEMO_DIR and closed while it exists. The gate `tool` stands in the tool, after its side effect and before its
result. The gate `writer` stands in the store's one writer, after a commit was answered and before the next begins: a
prompt admitted while it is closed has its receipt, and nothing can have started.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from perdure import agent, errors

FOLDER = "PERDURE_DEMO_DIR"
LEDGER, TOOL_GATE, WRITER_GATE = "ledger.txt", "gate-tool", "gate-writer"
POLL_S = 0.01


def folder() -> Path:
    """Where the demo keeps its files. Raises `ConfigError` where nobody says."""
    given = os.environ.get(FOLDER)
    if not given:
        raise errors.ConfigError(f"{FOLDER} is not set: this app is for `perdure demo` alone")
    return Path(given)


@agent.tool(effect="write")
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    line = f"refund {order} {cents}\n".encode()
    ledger = os.open(folder() / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, line)
    os.close(ledger)
    while (folder() / TOOL_GATE).exists():  # noqa: ASYNC110, another process opens it
        await asyncio.sleep(POLL_S)
    return f"refunded {cents} cents of order {order}"


def hold_writer(moment: str) -> None:
    """Hold the writer's thread between a commit and the next while the gate is closed."""
    while moment == "delivered" and (folder() / WRITER_GATE).exists():
        time.sleep(POLL_S)
