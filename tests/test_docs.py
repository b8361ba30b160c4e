"""What is generated in docs/ is what its generator would write now; links lead somewhere, and tests that pages name exist."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GENERATORS = sorted((ROOT / "scripts").glob("docs_*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
RULE = re.compile(r"\b[A-Z]{2,3}-\d+\b")


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda path: path.stem)
def test_a_generated_page_is_up_to_date(generator):
    done = subprocess.run([sys.executable, generator, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """What a link may name after `#`."""
    words = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one) for one in HEADING.findall(FENCE.sub("", page.read_text())))
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in words)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_link_leads_somewhere(page):
    prose = CODE.sub("", FENCE.sub("", page.read_text()))
    broken = [
        f"{file}#{anchor}"
        for file, anchor in LINK.findall(prose)
        if not (target := page.parent / file if file else page).exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []


@functools.cache
def names(file: Path) -> frozenset[str]:
    """The tests of a file."""
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_test_that_a_page_names_exists(page):
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(page.read_text())
        if not (ROOT / file).exists() or (name and name not in names(ROOT / file))
    ]
    assert missing == []


def test_the_picture_of_the_house_names_files_and_rooms_that_exist():
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    house = ROOT / "src" / "perdure"
    files = re.findall(r"`([\w/]+\.(?:py|sql))`", text)
    assert [file for file in files if not ((house / file).exists() or (ROOT / file).exists())] == []
    rooms = {path.parent.name for path in house.glob("*/__init__.py")}
    assert rooms - set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set()


def test_every_promise_names_a_test_and_the_rules_it_names_exist():
    rules = set(RULE.findall((ROOT / "docs" / "spec.md").read_text()))
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise")]
    assert promises
    assert [row for row in promises if not re.search(r"`(tests|scripts)/", row)] == []
    assert [row for row in promises if set(RULE.findall(row.split("|")[2])) - rules] == []
