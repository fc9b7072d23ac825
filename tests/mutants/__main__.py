"""`python -m tests.mutants [NAME …]`: plant one bug at a time in a copy of the sources, and run the tests that notice.

A mutant whose tests pass survives: a real mistake like it would pass too. The exit code counts survivors.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.planted import Mutant, planted

_HOUSE = Path(__file__).parents[2]


def main() -> int:
    """Print a line for each mutant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these words")
    options = parser.parse_args()
    chosen = [item for item in planted() if not options.names or any(word in item.name for word in options.names)]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="rootline-mutants-") as folder:
        copy = Path(folder) / "house"
        _copy(copy)
        if chosen:
            _require_green(copy, chosen)
        for number, mutant in enumerate(chosen, 1):
            began = time.perf_counter()
            is_caught = _is_caught(copy, mutant)
            survivors += not is_caught
            word = "caught" if is_caught else "SURVIVED"
            print(f"{number:3}/{len(chosen)} {word:8} {time.perf_counter() - began:5.1f} s  {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} caught, {survivors} survived")
    return min(survivors, 100)


def _copy(folder: Path) -> None:
    """The committed files and those to be committed; links stay links."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=_HOUSE,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = _HOUSE / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _require_green(house: Path, mutants: list[Mutant]) -> None:
    """Without a bug all of the tests pass: else a failure would show nothing."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    print(f"{len(tests)} tests without a planted bug …", flush=True)
    result = _run(house, tests)
    if result.returncode != 0:
        print(result.stdout[-4_000:], result.stderr[-1_000:])
        raise SystemExit("the tests fail without a planted bug: mend them first")


def _is_caught(house: Path, mutant: Mutant) -> bool:
    path = house / mutant.file
    original = path.read_text()
    path.write_text(mutant.text(house))
    try:
        result = _run(house, mutant.tests)
    finally:
        path.write_text(original)
    if result.returncode not in (0, 1):  # 1: tests failed; anything else is pytest's own trouble
        print(result.stdout[-4_000:], result.stderr[-1_000:])
        raise SystemExit(f"{mutant.name}: the tests did not run")
    return result.returncode == 1


def _run(house: Path, tests: list[str] | tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{house / 'src'}{os.pathsep}{house}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
