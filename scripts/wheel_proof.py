"""Proves that what we ship works where nothing of this checkout is in reach.

Builds the wheel, compares it with the sources file by file, installs it with the locked run-time packages into a fresh
environment in another directory, and runs the demo there.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"


def run(*command: str | Path, cwd: Path) -> str:
    """What the command printed; if it fails, its words and an exit."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"wheel: {' '.join(map(str, command))} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(where: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", where, ROOT, cwd=where)
    (wheel,) = where.glob("*.whl")
    return wheel


def missing(wheel: Path) -> list[str]:
    """Sources that the wheel forgot."""
    sources = {p.relative_to(SOURCES).as_posix() for p in (SOURCES / "perdure").rglob("*") if p.is_file()}
    shipped = set(zipfile.ZipFile(wheel).namelist())
    return sorted(name for name in sources - shipped if "__pycache__" not in name)


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-wheel-") as name:
        away = Path(name)
        wheel = build(away)
        if forgotten := missing(wheel):
            sys.exit(f"wheel: not in {wheel.name}: {', '.join(forgotten)}")
        venv.create(away / "env", symlinks=True)
        python = away / "env" / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "-qq")
        run(*pip, "install", "--no-compile", "--require-hashes", "-r", ROOT / "requirements" / "run.txt", cwd=away)
        run(*pip, "install", "--no-deps", wheel, cwd=away)
        run(*pip, "check", cwd=away)
        if not run(away / "env" / "bin" / "perdure", "demo", "--json", cwd=away).strip():
            sys.exit("wheel: perdure demo --json printed nothing")
        print(f"{wheel.name}: installed and ran elsewhere, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
