"""Wheels and source distributions of a commit, and environments that they are installed into.

Owns: the export of a commit, the build, the comparison with the sources. Does not own: which commit, and what is run
(`__main__`, `tests.compatibility`).
Invariants: a build sees a clean export only, in this environment, without a network. The time in an archive is the
commit's.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ("src", "rootline")


class NotBuilt(Exception):
    """The commit is not there, or it cannot be built. The message names the next step."""


def commit_of(name: str) -> str:
    """The full hash of the commit that `name` means."""
    return _git(f"commit {name}", "rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()


def export(commit: str, folder: Path) -> Path:
    """The files of a commit, in a new folder."""
    try:
        commit_of(commit)
    except NotBuilt as error:
        advice = f"This clone may be shallow. Fetch the commit: git fetch --no-tags origin {commit}"
        raise NotBuilt(f"{error}\n{advice}") from None
    packed = _git(f"the files of {commit}", "archive", "--format=tar", commit)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def has_whole_history() -> bool:
    """Whether this is a clone with all earlier commits: neither a shallow one nor an export."""
    try:
        return _git("the history", "rev-parse", "--is-shallow-repository").strip() == b"false"
    except NotBuilt:
        return False


def commit_time(commit: str) -> str:
    """The time of a commit, in seconds, as SOURCE_DATE_EPOCH takes it."""
    return _git(f"commit {commit}", "show", "--no-patch", "--format=%ct", commit).decode().strip()


def build(target: str, folder: Path, *, epoch: str | None = None) -> Path:
    """Run the build backend on the sources in `folder`. The `wheel` or the `sdist`, in its folder `dist`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder / "dist")]
    variables = os.environ if epoch is None else {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    carry_out(f"building the {target}", command, folder, variables)
    [made] = (folder / "dist").glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[target])
    return made


def carry_out(what: str, command: list[str], folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command. Its output."""
    done = subprocess.run(
        command, cwd=folder, env=dict(variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NotBuilt(f"{what} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def files_of(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def sources_of(folder: Path) -> dict[str, bytes]:
    """The files below src, through the links of the three top folders."""
    top = folder / SOURCE[0]
    found: dict[str, bytes] = {}
    for at, _, names in os.walk(top.joinpath(*SOURCE[1:]), followlinks=True):
        if "__pycache__" not in at:
            paths = [Path(at) / name for name in names if not name.endswith(".pyc")]
            found |= {str(path.relative_to(top)): path.read_bytes() for path in paths}
    return found


def differences(these: Mapping[str, bytes], those: Mapping[str, bytes]) -> Iterator[str]:
    """A line for each file that is missing, added or different."""
    for name in sorted({*these, *those}):
        if these.get(name) != those.get(name):
            yield f"{'different' if name in these and name in those else 'only in one'}: {name}"


def _git(what: str, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=HOUSE, capture_output=True, check=False)
    if done.returncode != 0:
        raise NotBuilt(f"{what}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
