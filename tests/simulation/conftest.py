"""What the simulations share: their modules, a quiet log, and a place for files that costs no disk."""

import logging
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)  # these tests share modules of their own, and tests are no package

MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path):
    """A directory in memory where there is one: what is simulated is no power failure."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="perdure-", dir=MEMORY))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def quiet():
    """Deaths make engines talk."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def says(capsys):
    """Say something that is seen though the test passes."""

    def say(words):
        with capsys.disabled():
            sys.stdout.write(f"\n  {words} ")
            sys.stdout.flush()  # a walk of an hour says how far it is

    return say
