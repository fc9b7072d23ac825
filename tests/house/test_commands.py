"""What the documents tell a person to run exists, and what exists is told."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rootline.cli.app import command_tree
from rootline.schemas.distribution import DISTRIBUTION, VERSION
from rootline.schemas.error_codes import CODES

LINK = re.compile(r"\[[^\]]*\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
ROOTLINE = re.compile(r"(?:^|[`$(] ?|bin/)rootline ((?:[a-z]+ ?)+)", re.MULTILINE)
RETIRED = {("upgrade",)}
"""Commands of an earlier commit, which the documents name with it."""


def documents(house: Path) -> list[Path]:
    """The pages for people."""
    tops = [house / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    return [*tops, *sorted((house / "docs").rglob("*.md"))]


def phony_targets(house: Path) -> set[str]:
    """The targets of the Makefile."""
    match = re.search(r"^\.PHONY: (.+)$", (house / "Makefile").read_text(), re.MULTILINE)
    assert match is not None
    return set(match[1].split())


def test_make_alone_lists_every_target(house: Path) -> None:
    listed = subprocess.run(["make", "--silent"], cwd=house, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == phony_targets(house)


def test_the_targets_that_people_know_are_there(house: Path) -> None:
    known = {"help", "setup", "demo", "test", "test-fast", "check", "bench", "simulate"}
    assert known <= phony_targets(house)


def test_every_make_command_in_the_documents_exists(house: Path) -> None:
    named = {
        (page.name, target)
        for page in documents(house)
        for code in re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL)
        for target in MAKE.findall(code)
    }
    assert {(page, target) for page, target in named if target not in phony_targets(house)} == set()
    assert named


def test_ci_runs_what_the_documents_tell_a_person_to_run(house: Path) -> None:
    readme = (house / "README.md").read_text() + (house / "CONTRIBUTING.md").read_text()
    lines = re.findall(r"^make (.+)$", (house / ".ci" / "run").read_text(), re.M)
    run = {word for line in lines for word in shlex.split(line) if "=" not in word}
    assert run <= phony_targets(house)
    assert {target for target in run if f"make {target}" not in readme} <= {"setup-java"}


def test_every_rootline_command_in_the_documents_exists(house: Path) -> None:
    commands = set(_commands(command_tree(), ())) | RETIRED
    unknown = {
        (name, words)
        for name, text in [
            *((page.name, page.read_text()) for page in documents(house)),
            *((code.code, f"{code.meaning} {code.do} {code.do_not}") for code in CODES.values()),
        ]
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        for words in ROOTLINE.findall(code)
        if not any(tuple(words.split()[:length]) in commands for length in (1, 2))
    }
    assert unknown == set()


def _commands(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    children = getattr(command, "commands", {})
    found = [path] if path and not children else []
    for name, child in children.items():
        found += _commands(child, (*path, name))
    return found


def test_every_link_in_the_documents_leads_somewhere(house: Path) -> None:
    dead = [
        f"{page.relative_to(house)}: {target}"
        for page in documents(house)
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert dead == []


def test_every_test_that_the_documents_name_exists(house: Path) -> None:
    sources = (house / "tests").rglob("*.py")
    defined = {name for path in sources for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {
        (page.name, name) for page in documents(house) for name in re.findall(r"`(test_[a-z0-9_]+)`", page.read_text())
    }
    assert {(page, name) for page, name in named if name not in defined} == set()
    assert len(named) > 40


def test_every_page_that_an_error_message_names_exists(house: Path) -> None:
    sources = [path for room in ("schemas", "coordinator", "workers", "src") for path in (house / room).rglob("*.py")]
    named = {page for path in sources for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert {page for page in named if not (house / page).exists()} == set()


def test_nothing_tells_anyone_to_install_the_project_of_others_that_is_named_rootline(house: Path) -> None:
    """Lines of CHANGELOG.md are history."""
    rooms = ("schemas", "coordinator", "workers", "src", "examples", "tests", "benchmarks", "docs", "deploy", ".ci")
    paths = [path for room in rooms for path in (house / room).rglob("*") if "__pycache__" not in path.parts]
    paths += [house / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "mkdocs.yml")]
    wrong = re.compile(
        r"""pip3? install[^\n]*?[\s"']rootline(?![-\w./])"""  # also behind other words
        r"|(?<!un)install[ ]rootline(?![-\w])"
        r"|(?<![-\w])rootline\[[a-z{]"
    )
    texts = {path: path.read_bytes().decode(errors="replace") for path in paths if path.is_file()}
    found = {f"{path.relative_to(house)}: {match[0]}" for path, text in texts.items() for match in wrong.finditer(text)}
    assert found == set()
    project = tomllib.loads((house / "pyproject.toml").read_text())
    assert project["project"]["name"] == DISTRIBUTION
    assert project["tool"]["hatch"]["version"]["path"] == "src/rootline/schemas/distribution.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_the_scripts_behind_the_makefile_can_be_run(house: Path) -> None:
    scripts = sorted((house / ".ci").iterdir())
    assert [path.name for path in scripts if not path.stat().st_mode & 0o111] == []
    for path in scripts:
        shell = "bash" if "bash" in path.read_text().splitlines()[0] else "sh"
        subprocess.run([shell, "-n", str(path)], check=True)


def test_everything_that_is_needed_is_installed_in_its_pinned_version(house: Path) -> None:
    lines = (house / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if "==" in line}
    project = tomllib.loads((house / "pyproject.toml").read_text())["project"]
    listed = [project["dependencies"], *project["optional-dependencies"].values()]
    named = [Requirement(text) for texts in listed for text in texts]
    waiting = [needed for needed in named if needed.marker is None or needed.marker.evaluate()]
    seen: set[tuple[str, str]] = set()
    wrong: set[str] = set()
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        if pinned.get(name) != _version_of(name):
            wrong.add(f"{name}: installed {_version_of(name)}, pinned {pinned.get(name)}")
        for extra in needed.extras or {""}:
            if (name, extra) in seen or _version_of(name) is None:
                continue
            seen.add((name, extra))
            further = [Requirement(text) for text in metadata.requires(name) or []]
            waiting += [item for item in further if item.marker is None or item.marker.evaluate({"extra": extra})]
    assert wrong == set()


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
