"""`make site`: stages the pages, builds the site, and fails on any fault that a reader would meet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents.built_site import findings
from tests.documents.staged_pages import stage

HOUSE = Path(__file__).parents[2]


def build(house: Path, target: Path) -> list[str]:
    """Build into `target`/site; the faults that were found, none if all is well."""
    for name in ("site", "site-pages", ".cache"):
        shutil.rmtree(target / name, ignore_errors=True)
    stage(house, target)
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([str(program), "build", "--strict"], cwd=target, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stdout + done.stderr]
    return list(findings((target / "site").resolve()))


def main() -> None:
    """Say where the site is, or what is wrong with it."""
    faults = build(HOUSE, HOUSE / "build")
    if faults:
        sys.exit("\n".join(faults))
    sys.stdout.write("the site is in build/site; to look at it: python3 -m http.server -d build/site\n")


if __name__ == "__main__":
    main()
