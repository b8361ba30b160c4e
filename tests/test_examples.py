"""Every example runs, from anywhere, and shows what its head says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9][0-9]_*.py"))
SHOWS = {
    "01_first_session": ["outcome: succeeded", "There are 7 lamps left."],
    "02_kill_and_resume": [
        "the first process ended by signal 9",
        "outcome: succeeded",
        "Tool execution outcome unknown after server restart",
        "the ledger: refunded 500 cents of order 7\n",
    ],
    "03_approval": ["waiting: approval", "outcome: succeeded", "refunded 5000 cents of order 7"],
}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_shows_what_it_says(example, tmp_path):
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in SHOWS[example.stem]:
        assert words in done.stdout


def test_every_example_says_what_it_shows():
    assert {path.stem for path in EXAMPLES} == set(SHOWS)
