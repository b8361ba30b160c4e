"""Lists the rules of docs/spec.md that no test names.

A rule is defined where the page writes its ID in bold. A test names it in its own name (`test_log_1_…`, and several may
follow one another: `test_log_1_log_3_…`) or in its docstring or its class's (`LOG-1`). Only exact IDs count: "LOG-1 to
LOG-5" names two. Needs nothing but Python.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIXES = "LOG MSG IN EX APR REC RUN PUB CTX CMP API SEC DB".split()
ID = re.compile(rf"\b({'|'.join(PREFIXES)})-(\d+)\b")
IN_NAME = re.compile(rf"(?<=_)({'|'.join(PREFIXES)})_(\d+)(?=_|$)", re.IGNORECASE)


def defined(page: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"\*\*((?:{'|'.join(PREFIXES)})-\d+)\*\*", page)))


def named(source: str) -> Iterator[str]:
    """The rules that the tests of one file name."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.lower().startswith("test"):
            found = ID.findall(ast.get_docstring(node) or "") + IN_NAME.findall(node.name)
            yield from (f"{prefix.upper()}-{number}" for prefix, number in found)


def main() -> int:
    rules = defined((ROOT / "docs" / "spec.md").read_text())
    tested = {rule for path in (ROOT / "tests").rglob("*.py") for rule in named(path.read_text())}
    for prefix in PREFIXES:
        untested = [rule for rule in rules if rule.startswith(f"{prefix}-") and rule not in tested]
        if untested:
            print(f"{prefix:4}{' '.join(untested)}")
    unknown = sorted(tested - set(rules))
    if unknown:
        print(f"named by a test, but no rule: {' '.join(unknown)}")
    print(f"{len(tested & set(rules))} of {len(rules)} rules are named by a test")
    return bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
