"""Every page does what it says: its programs run, its commands are typed, and what it shows is what they print."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import page as pages  # noqa: E402
import reader as readers  # noqa: E402

ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The URL of a model provider that says back what it is told."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.testing.fake_provider", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    yield json.loads(process.stdout.readline())["url"]
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_says(page, provider, tmp_path):
    directory = tmp_path / "reader"
    directory.mkdir()
    reader = readers.Reader(directory, provider)
    try:
        for block in pages.blocks(page):
            reader.follow(block)
    finally:
        reader.close()


@pytest.mark.parametrize(
    "line", ["perdure serve --bind 0.0.0.0", "perdure approve", "make coffee", "perdure backup a b"]
)
def test_a_command_that_does_not_exist_is_seen(line):
    with pytest.raises(Exception):  # noqa: B017, whatever says so
        readers.check(line)


def test_a_line_that_was_not_printed_is_seen(provider, tmp_path):
    reader = readers.Reader(tmp_path, provider)
    try:
        reader.type(pages.Command("echo one; echo two", ("one", "t…"), 0))
        with pytest.raises(AssertionError, match="prints"):
            reader.type(pages.Command("echo one; echo two", ("two", "one"), 0))
        with pytest.raises(AssertionError, match="ends with 3"):
            reader.type(pages.Command("(exit 3)", (), 0))
    finally:
        reader.close()
