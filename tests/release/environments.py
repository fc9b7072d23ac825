"""Environments of their own: each extra alone, and the program that shows that it works.

Owns: which interpreters are tried, the environments, the sizes of what is installed. Does not own: the programs
(`programs`), the wheel (`built`).
Invariants: an environment has the wheel, one list of extras, and the pinned versions of their dependencies. What
has no extra is installed as a user does it; the others differ from it by their extras only. A program
runs in an empty folder, with an empty home and no setting. A traceback on stderr is a failure, also when the exit code
is 0.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.release.built import HOUSE, NotBuilt, carry_out

CLAIMED: Final = ("3.11", "3.12", "3.13")
"""The versions of Python that the classifiers of pyproject.toml name. On the first one each extra is installed alone,
on the others all of them together."""
PROGRAMS: Final = Path(__file__).with_name("programs")
NOT_FOR_USERS: Final = ("dev", "docs")
_SIZES: Final = """
import importlib.metadata, os
sizes = {}
for found in importlib.metadata.distributions():
    files = [path for path in map(found.locate_file, found.files or ()) if os.path.isfile(path)]
    sizes[found.metadata["Name"]] = sum(os.path.getsize(path) for path in files)
for own in ("pip", "setuptools"):
    sizes.pop(own, None)
print(round(sum(sizes.values()) / 1e6))
for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
    print(name, round(size / 1e6))
"""
Step = Callable[[str], AbstractContextManager[None]]


def try_all(
    wheel: Path, sources: Path, work: Path, pythons: Sequence[Path], step: Step, *, is_quick: bool = False
) -> None:
    """Install the wheel with each extra, and run its program, on every interpreter.

    Raises:
        NotBuilt: an installation or a program failed.
    """
    if is_quick:
        print("  --quick: nothing was installed, so nothing is known of extras and versions of Python", flush=True)
        return
    extras = [extra for extra in declared_extras(sources) if extra not in NOT_FOR_USERS]
    for version, python in interpreters(pythons):
        if python is None:
            print(f"  Python {version}: not found, not tried", flush=True)
            continue
        together = [extras] if version != CLAIMED[0] else [[extra] for extra in extras]
        bare = work / f"python-{version}"
        for number, listed in enumerate([[], *together]):
            named = ", ".join(listed) or "no extra"
            folder = work / f"{bare.name}-{number}" if listed else bare
            with step(f"Python {full_version(python)}, {named}"):
                installed = install(python, folder, wheel, listed, sources, bare if listed else None)
                for extra in listed or [""]:
                    run_program(installed, folder, extra, sources)
                total, *largest = sizes(installed)
            print(f"    {total} MB" if listed else f"    {total} MB: {', '.join(largest[:8])}", flush=True)
            if listed:
                shutil.rmtree(folder)
        shutil.rmtree(bare)


def declared_extras(sources: Path) -> list[str]:
    """The extras that pyproject.toml declares."""
    project = tomllib.loads((sources / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"])


def interpreters(given: Sequence[Path]) -> Iterator[tuple[str, Path | None]]:
    """The version and the interpreter of each one that is given; else of each claimed version, if it is found."""
    if given:
        yield from ((full_version(python).rpartition(".")[0], python) for python in given)
        return
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in CLAIMED:
        yield version, Path(sys.executable) if version == ours else found_python(version)


def found_python(version: str) -> Path | None:
    """An interpreter of this version: on the path, or the newest one of pyenv, whose shims may refuse to run."""
    for folder in map(Path, os.get_exec_path()):
        candidate = folder / f"python{version}"
        installed = sorted((folder.parent / "versions").glob(f"{version}.*/bin/python{version}"))
        for path in (candidate, *reversed(installed)) if candidate.exists() else ():
            if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0:
                return path
    return None


def full_version(python: Path) -> str:
    """Such as 3.12.1."""
    return carry_out("asking Python", [str(python), "-V"], HOUSE, os.environ).split()[1]


def install(
    python: Path, folder: Path, wheel: Path, extras: Sequence[str], sources: Path, bare: Path | None = None
) -> Path:
    """Install the wheel with these extras into an environment in `folder`. The environment's Python.

    `bare`: the folder of the environment without an extra. Its dependencies are linked, which saves minutes.
    """
    folder.mkdir()
    without = [] if bare is None else ["--without-pip"]
    make = [str(python), "-m", "venv", *without, str(folder / "venv")]
    carry_out("making an environment", make, folder, os.environ)
    installed = folder / "venv" / "bin" / "python"
    if bare is not None:
        [site], [new] = (place.glob("venv/lib/python*/site-packages") for place in (bare, folder))
        but_ours = shutil.ignore_patterns("rootline", "rootline_lake-*")
        shutil.copytree(site, new, copy_function=os.link, ignore=but_ours, dirs_exist_ok=True)
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    constraints = {name: str(sources / "constraints.txt") for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")}
    command = [str(installed), "-m", "pip", "install", "--quiet", "--progress-bar", "off", wanted]
    carry_out(f"installing {wanted}", command, folder, {**os.environ, **constraints})
    carry_out("pip check", [str(installed), "-m", "pip", "check"], folder, os.environ)
    return installed


def run_program(python: Path, folder: Path, extra: str, sources: Path) -> None:
    """Run the program of an extra, or README's without one."""
    text = (PROGRAMS / f"with_{extra}.py" if extra else sources / "README.md").read_text()
    program = text if extra else first_program(text)
    place, home = folder / f"run-{extra}", folder / f"home-{extra}"
    place.mkdir()
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "LANG", "TMPDIR")}
    done = subprocess.run(
        [str(python), "-c", program],
        cwd=place,
        env={**kept, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0 or "Traceback" in done.stderr:
        what = f"the program of {extra}" if extra else "README's program"
        raise NotBuilt(f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def first_program(readme: str) -> str:
    """The first Python of the README that opens a lake."""
    found: list[str] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    return next(block for block in found if "rootline.connect(" in block)


def sizes(python: Path) -> list[str]:
    """MB of everything that is installed but pip, then of each distribution, the largest first."""
    return carry_out("measuring", [str(python), "-c", _SIZES], HOUSE, os.environ).splitlines()
