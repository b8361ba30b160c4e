"""Compiles requirements/*.txt and those of bench/peers: every version pinned, every file by its hash, for every platform.

The locks name no index: where packages come from is the machine's business, what they are is ours.
dev.txt comes first and holds everything; the other two are cut from its versions, so that one environment can take
all three. The benchmark's peers get a lock each, for an environment each.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ".venv/bin/uv"
FLAGS = "--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --quiet".split()

LOCKS = {
    "requirements/dev.txt": ["pyproject.toml", "requirements/build.in", "--all-extras"],
    "requirements/run.txt": ["pyproject.toml", "--constraints", "requirements/dev.txt"],
    "requirements/build.txt": ["requirements/build.in", "--constraints", "requirements/dev.txt"],
    "bench/peers/langgraph.txt": ["bench/peers/langgraph.in"],
    "bench/peers/openai_agents.txt": ["bench/peers/openai_agents.in"],
    "bench/peers/pydantic_ai.txt": ["bench/peers/pydantic_ai.in"],
}


def main() -> None:
    for lock, sources in LOCKS.items():
        command = [UV, "pip", "compile", *sources, *FLAGS, "--custom-compile-command", "make lock", "-o", lock]
        subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, check=True)
        print(f"{lock}: {sum('==' in line for line in (ROOT / lock).read_text().splitlines())} packages")


if __name__ == "__main__":
    main()
