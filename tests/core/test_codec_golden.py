"""How every durable fact is stored, pinned to the byte (LOG-11): a stored event is never read otherwise than it was meant."""

import importlib.util
import json
from pathlib import Path

import pytest

from perdure.core import codec, columns

WHERE = Path(__file__).parents[1] / "golden" / "examples.py"
_spec = importlib.util.spec_from_file_location("golden_examples", WHERE)
examples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(examples)

DEFINITIONS = list(codec.session_registry())
NAMES = [codec.versioned(definition) for definition in DEFINITIONS]


def test_every_definition_has_a_golden_file_and_every_file_a_definition_log_11():
    assert sorted(path.name.removesuffix(".json") for path in examples.FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=NAMES)
def test_a_stored_fact_reads_and_writes_the_same_bytes_log_11(definition):
    path = examples.path_of(definition)
    lines = examples.lines_of(path)
    assert [json.loads(line) for line in lines] == json.loads(path.read_text("utf-8"))
    for line in lines:
        value = codec.session_registry().decode(codec.versioned(definition), line)
        assert type(value) is definition
        assert codec.dump(value) == line


@pytest.mark.parametrize("definition", DEFINITIONS, ids=NAMES)
def test_the_golden_lines_hold_every_field_and_the_values_that_were_stored_log_11(definition):
    lines = examples.lines_of(examples.path_of(definition))
    for full in (True, False):
        example = examples.of(definition, full=full)
        text = codec.dump(example)
        assert text in lines, "python tests/golden/examples.py adds the line for a field that is new"
        assert codec.load(text, definition) == example


@pytest.mark.parametrize("definition", DEFINITIONS, ids=NAMES)
def test_every_fact_of_a_session_is_stored_without_the_id_that_its_row_tells_db(definition):
    for line in examples.lines_of(examples.path_of(definition)):
        session_id = json.loads(line)["session_id"]
        stored = columns.without_session(line, session_id)
        assert "session_id" not in json.loads(stored)
        assert columns.with_session(stored, session_id) == line
