"""The terminal while somebody types in it: keys at once and unechoed, and as it was before afterwards.

Lives here: the modes. Not here: what keys mean (`editor.py`). Ctrl-C stays a signal, so that it works whatever the
program does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Generator

_PASTES_MARKED, _PASTES_PLAIN = "\x1b[?2004h", "\x1b[?2004l"


@contextlib.contextmanager
def keys(fd: int) -> Generator[None]:
    """Give every key as it is pressed."""
    before = termios.tcgetattr(fd)
    raw = termios.tcgetattr(fd)
    raw[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
    raw[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
    disabled = os.fpathconf(fd, "PC_VDISABLE")
    raw[6][termios.VSUSP] = bytes([disabled & 0xFF])  # a stopped program would leave the terminal as it is
    termios.tcsetattr(fd, termios.TCSADRAIN, raw)
    _write(_PASTES_MARKED)
    try:
        yield
    finally:
        _write(_PASTES_PLAIN)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
