"""`make release`: the wheel and the source distribution of a commit, in `dist`, after they were tried.

    python -m tests.release [--commit NAME] [--python PATH …] [--quick]

Owns: the order of the steps, the report. Does not own: building (`built`), the environments and programs
(`environments`).
Invariants: `dist` is written when everything has succeeded, and contains nothing but this release and its SHA256SUMS.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.release import environments
from tests.release.built import (
    HOUSE,
    NotBuilt,
    build,
    carry_out,
    commit_of,
    commit_time,
    differences,
    export,
    files_of,
    sources_of,
)

DIST = HOUSE / "dist"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release. The exit code."""
    wanted = _wanted(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="rootline-release-") as work:
            run(wanted, Path(work))
    except NotBuilt as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def run(wanted: argparse.Namespace, work: Path) -> None:
    """Build, compare, try, and write `dist`."""
    commit = commit_of(wanted.commit)
    print(f"commit {commit}", flush=True)
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=HOUSE, capture_output=True, text=True, check=False)
    if changed.stdout:
        print("note: the release is the commit's; this folder has changes that are not committed", flush=True)
    with step("built twice, from two exports"):
        made = [archives(commit, work / name) for name in ("first", "second-in-a-folder-of-another-name")]
        sources = work / "first"
        wheel, sdist = made[0]
    with step("both builds have the same bytes"):
        for one, other in zip(*made, strict=True):
            if one.name != other.name or one.read_bytes() != other.read_bytes():
                raise NotBuilt(f"{one.name}: the second build has other bytes. Compare {one} and {other}")
    with step("the version is that of the sources"):
        version = runpy.run_path(str(sources / "src/rootline/schemas/distribution.py"))["VERSION"]
        for made_file in (wheel, sdist):
            if f"-{version}" not in made_file.name:
                raise NotBuilt(f"{made_file.name}: distribution.py says {version}")
    with step("the wheel, and a wheel made from the sdist, have the bytes of the sources"):
        unpacked = work / "unpacked"
        shutil.unpack_archive(sdist, unpacked, filter="data")
        detour = build("wheel", next(unpacked.iterdir()))
        for what, built in (("the wheel", wheel), ("the wheel from the sdist", detour)):
            if found := list(differences(files_of(built), sources_of(sources))):
                raise NotBuilt("\n".join([f"{what} and the sources differ:", *found]))
    with step("twine finds no fault in the metadata"):
        check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
        carry_out("twine check", check, work, os.environ)
    environments.try_all(wheel, sources, work, wanted.python, step, is_quick=wanted.quick)
    with step("written to dist"):
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        sums = []
        for path in (sdist, wheel):
            shutil.copy2(path, DIST)
            sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


def archives(commit: str, folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution, from an export of their own."""
    export(commit, folder)
    epoch = commit_time(commit)
    return build("wheel", folder, epoch=epoch), build("sdist", folder, epoch=epoch)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Print the step, and how long it took."""
    print(f"  {what} …", end="", flush=True)
    begun = time.monotonic()
    yield
    print(f" {time.monotonic() - begun:.0f} s", flush=True)


def _wanted(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=main.__doc__)
    parser.add_argument("--commit", default="HEAD", help="what is released; default: HEAD")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        type=Path,
        help="an interpreter to try; without it, this one and those of each claimed version that are found",
    )
    parser.add_argument("--quick", action="store_true", help="build and compare only; install nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
