"""Log lines: plain, one a record, with their facts as key=value."""

import logging
import sys

import pytest

from perdure import errors
from perdure.cli import logs


def line(message, *, traces=False, error=None, **extra):
    record = logging.LogRecord("perdure.x", logging.WARNING, "f.py", 1, message, None, error)
    record.created, record.msecs = 0.25, 250
    vars(record).update(extra)
    return logs.Lines(traces=traces).format(record)


def raised():
    try:
        raise ValueError("bad = 1")
    except ValueError:
        return sys.exc_info()


def test_a_record_is_a_line_with_its_facts():
    assert line("dropped", session_id="s1", why="too slow") == (
        '1970-01-01T00:00:00.250Z warning perdure.x: dropped session_id=s1 why="too slow"'
    )


def test_an_error_is_told_in_the_line_and_its_traceback_at_debug_only():
    assert line("failed", error=raised()).endswith('failed error="ValueError: bad = 1"')
    assert "Traceback" in line("failed", error=raised(), traces=True)


def test_what_a_caller_sent_cannot_forge_a_line_sec_2():
    assert len(line("a\nb", path="x\ny z=1\u2028").splitlines()) == 1


def test_an_unknown_level_is_refused():
    with pytest.raises(errors.ConfigError, match="debug, info, warning, error"):
        logs.configure("loud")
