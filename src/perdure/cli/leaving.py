"""Leaving a process whose tools will not.

Lives here: telling what would hold up the end of a process for ever: a task that ignores its cancellation, a thread in
which a call never returns. Not here: stopping the engine, which is over by then and has recorded what became of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = 0.05
WORKERS = "perdure worker"
_logger = logging.getLogger("perdure.cli")


def own_workers() -> ThreadPoolExecutor:
    """Make the running loop's threads ones that `leave` knows."""
    workers = ThreadPoolExecutor(thread_name_prefix=WORKERS)
    asyncio.get_running_loop().set_default_executor(workers)
    return workers


async def leave(code: int, workers: ThreadPoolExecutor) -> int:
    """The exit code, for a process that can end as usual; one that cannot ends here and now."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    if running:
        _, running = await asyncio.wait(running, timeout=PATIENCE_S)
    workers.shutdown(wait=False, cancel_futures=True)
    threads = [one for one in threading.enumerate() if one.name.startswith(WORKERS)]
    for one in threads:
        one.join(PATIENCE_S / len(threads))
    if running or any(one.is_alive() for one in threads):
        _logger.warning("left without waiting for a tool that does not end")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code
