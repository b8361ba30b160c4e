"""Log lines: plain, one a record, with their facts as key=value."""

import json
import logging
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

from perdure import errors, telemetry
from perdure.cli import logs


def line(message, *, traces=False, error=None, form=logs.Lines, **extra):
    record = logging.LogRecord("perdure.x", logging.WARNING, "f.py", 1, message, None, error)
    record.created, record.msecs = 0.25, 250
    vars(record).update(extra)
    return form(traces=traces).format(record)


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


def test_a_record_can_be_an_object_of_json():
    told = line("a\nb\u2028", form=logs.Json, session_id="s", at=logs, error=raised())
    assert len(told.splitlines()) == 1
    assert json.loads(told) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "perdure.x",
        "message": "a\nb\u2028",
        "session_id": "s",
        "at": repr(logs),
        "error": "ValueError: bad = 1",
    }
    assert "Traceback" in json.loads(line("x", form=logs.Json, error=raised(), traces=True))["traceback"]


def test_a_fact_cannot_take_the_place_of_what_a_record_is_sec_2():
    assert json.loads(line("x", form=logs.Json, level="none", time="never"))["level"] == "warning"


def test_a_line_of_json_says_where_in_a_trace_it_was_said(monkeypatch):
    monkeypatch.setattr(telemetry, "_tracer", TracerProvider().get_tracer("tests"))
    with telemetry.turn("s"):
        assert json.loads(line("x", form=logs.Json)).items() >= telemetry.ids().items() != set()


def test_an_unknown_level_or_format_is_refused():
    with pytest.raises(errors.ConfigError, match="debug, info, warning, error"):
        logs.configure("loud")
    with pytest.raises(errors.ConfigError, match="text, json"):
        logs.configure("info", "xml")
