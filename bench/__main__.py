"""`python -m bench [WORD …] [--json]`: run the benchmarks whose names hold one of the words.

Without a word all are run but the comparison with peers, which has packages to install first: `python -m bench peers`.
"""

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
from pathlib import Path

from bench.row import Row

HERE = Path(__file__).parent
BY_NAME_ONLY = {"bench_peers"}


def chosen(words: list[str]) -> list[str]:
    names = sorted(path.stem for path in HERE.glob("bench_*.py"))
    if not words:
        return [name for name in names if name not in BY_NAME_ONLY]
    return [name for name in names if any(word in name for word in words)]


def table(rows: list[Row]) -> str:
    """The rows, in columns as wide as they need to be."""
    cells = [("name", "median", "unit", "note")]
    cells += [
        (row.name, f"{row.median:,.0f}" if row.median >= 100 else f"{row.median:.3g}", row.unit, row.note)
        for row in rows
    ]
    wide = [max(len(line[column]) for line in cells) for column in range(4)]
    return "\n".join(
        f"{name:{wide[0]}}  {median:>{wide[1]}}  {unit:{wide[2]}}  {note}".rstrip()
        for name, median, unit, note in cells
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    asked = parser.parse_args()
    modules = chosen(asked.words)
    if not modules:
        print(f"no benchmark is named like {' or '.join(asked.words)}", file=sys.stderr)
        return 2
    rows = [row for name in modules for row in importlib.import_module(f"bench.{name}").run()]
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    if asked.json:
        print(json.dumps({**machine, "rows": [dataclasses.asdict(row) for row in rows]}, indent=2))
    else:
        print(table(rows))
        print(f"python {machine['python']}, {machine['machine']}, {machine['cpus']} cpus")
    return 0


if __name__ == "__main__":
    sys.exit(main())
