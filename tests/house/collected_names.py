"""The names of all tests in two commits, compared: `python -m tests.house.collected_names BASE [COMMIT | worktree]`.

With `--write FILE COMMIT` the names of one commit, sorted, with parameters and without paths, so that a test may move.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parents[2]


def names(commit: str) -> Counter[str]:
    """How often each name is there: a class, a function and its parameters."""
    if commit == "worktree":
        return _collected(HOUSE)
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(["git", "archive", commit], cwd=HOUSE, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(scratch, filter="tar")
        return _collected(Path(scratch))


def _collected(house: Path) -> Counter[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(house / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"pytest could not collect the tests of {house}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    lines = [line for line in done.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    return Counter(line.partition("::")[2] for line in lines)


def main(arguments: list[str]) -> int:
    """Print which names vanished and which are new; 1 if any vanished."""
    match arguments:
        case ["--write", target, commit]:
            Path(target).write_text("".join(f"{name}\n" for name in sorted(names(commit).elements())))
            return 0
        case [base]:
            other = "worktree"
        case [base, other]:
            pass
        case _:
            print(__doc__)
            return 2
    before, after = names(base), names(other)
    vanished, new = before - after, after - before
    for what, found in (("vanished", vanished), ("new", new)):
        for name in sorted(found.elements()):
            print(f"{what:10} {name}")
    counts = f"{before.total()} tests before, {after.total()} after"
    print(f"{counts}; {vanished.total()} vanished, {new.total()} are new")
    return 1 if vanished else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
