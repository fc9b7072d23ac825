"""Whether the code before and after a refactoring makes the same bytes: `python -m tests.simulation.same_bytes BASE`.

    python -m tests.simulation.same_bytes BASE [TREE] [--roots N] [--only NAME …] [--keep FOLDER]

BASE and TREE are commits, or folders with a checkout. TREE is this checkout if it is not given. Logs with every kind of
intent are recorded here, by simulated writers and a worker, then replayed through the coordinators of both trees. Every
object that is stored and every verdict that is published must be the same, in the same order for each table. The first
difference of each recording is explained: the keys of the header that differ, or the first byte.

`--roots`: about how many roots all recordings have together. `--only`: the recordings with these names.
`--keep`: a folder that keeps recordings, and replays of commits. A later run with the same folder uses them again.

Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Final

import structlog

from rootline.schemas.intent_rules import IntentKind
from tests.simulation import recorded_lakes
from tests.simulation.recorded_log import recordings
from tests.simulation.replayed_log import Record, read_recording

HOUSE: Final = Path(__file__).resolve().parents[2]
_REPLAY: Final = Path(__file__).with_name("replayed_log.py")
_AVRO: Final = b"Obj\x01"
_SHOWN: Final = 60
"""Bytes of a value on each side of the first difference."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a journal: an object (`put`), a verdict or a dead letter (`letter`), by name and digest."""

    what: str
    name: str
    digest: str
    start: int
    size: int
    remark: str

    @property
    def subject(self) -> str:
        """The folder of the table, or the partition of a dead letter: what has an order of its own."""
        if self.what == "verdict":
            return self.name.partition(" ")[0].replace(".", "/")
        return self.name.partition("/metadata/")[0] if self.what == "put" else f"letters {self.name.partition('/')[0]}"

    def __str__(self) -> str:
        return f"{self.what} {self.name} ({self.remark}) {self.digest[:12]}, {self.size} bytes"


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything that a replay stored and published, in order."""

    folder: Path
    lines: tuple[Line, ...]

    @staticmethod
    def of(folder: Path) -> Journal:
        """The journal in a folder."""
        text = (folder / "journal").read_text()
        return Journal(folder, tuple(Line(*json.loads(line)) for line in text.splitlines()))

    def body(self, line: Line) -> bytes:
        """The bytes of a line."""
        with (self.folder / "bodies").open("rb") as file:
            file.seek(line.start)
            return file.read(line.size)

    def by_subject(self) -> dict[str, list[Line]]:
        """The lines of each table, verdicts among its objects."""
        found: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            found[line.subject].append(line)
        return found


def differences(base: Journal, other: Journal) -> Iterator[str]:
    """Each table's first difference, explained."""
    before, after = base.by_subject(), other.by_subject()
    for subject in dict.fromkeys((*before, *after)):
        pairs = zip_longest(before.get(subject, ()), after.get(subject, ()))
        found = next(((at, *pair) for at, pair in enumerate(pairs) if not _is_same(*pair)), None)
        if found is None:
            continue
        at, one, two = found
        yield f"{subject}: the first difference is number {at} of {len(before.get(subject, ()))}"
        yield f"  before: {one or 'nothing more'}"
        yield f"  after:  {two or 'nothing more'}"
        if one is not None and two is not None and one.name == two.name:
            yield from (f"  {line}" for line in explained(base.body(one), other.body(two)))


def _is_same(one: Line | None, two: Line | None) -> bool:
    if one is None or two is None:
        return False
    return (one.what, one.name, one.digest, one.remark) == (two.what, two.name, two.digest, two.remark)


def explained(before: bytes, after: bytes) -> Iterator[str]:
    """The keys of the header that differ, or the first byte."""
    if before == after:
        yield "the same bytes: another outcome"
    elif before.startswith(_AVRO) and after.startswith(_AVRO):
        (old, start), (new, other_start) = header_of(before), header_of(after)
        for key in dict.fromkeys((*old, *new)):
            if key not in new:
                yield f"{key}: only before: {_shown(old[key], 0)}"
            elif key not in old:
                yield f"{key}: only after: {_shown(new[key], 0)}"
            elif old[key] != new[key]:
                yield from (f"{key}: {line}" for line in _first_byte(old[key], new[key]))
        if list(old) != list(new) and set(old) == set(new):
            yield f"the order of the keys: {', '.join(old)}, then {', '.join(new)}"
        if before[start:] != after[other_start:]:
            yield from (f"rows: {line}" for line in _first_byte(before[start:], after[other_start:]))
    else:
        yield from _first_byte(before, after)


def _first_byte(before: bytes, after: bytes) -> Iterator[str]:
    at = next((at for at, (one, two) in enumerate(zip_longest(before, after)) if one != two), 0)
    yield f"{len(before)} bytes before, {len(after)} after, the first difference is at {at}"
    yield f"  before: {_shown(before, at)}"
    yield f"  after:  {_shown(after, at)}"


def _shown(value: bytes, at: int) -> str:
    part = value[max(0, at - _SHOWN) : at + _SHOWN]
    text = part.decode("utf-8", "replace")
    is_text = all(char.isprintable() for char in text)
    return (
        ("…" if at > _SHOWN else "") + (text if is_text else part.hex(" ")) + ("…" if len(value) > at + _SHOWN else "")
    )


def header_of(body: bytes) -> tuple[dict[str, bytes], int]:
    """The metadata of an Avro file, in order, and its end. Read without the code that is under test."""
    found: dict[str, bytes] = {}
    at = len(_AVRO)
    while True:
        count, at = _long(body, at)
        if count == 0:
            return found, at
        if count < 0:
            count, (_, at) = -count, _long(body, at)
        for _ in range(count):
            size, at = _long(body, at)
            key, at = body[at : at + size].decode(), at + size
            size, at = _long(body, at)
            found[key], at = body[at : at + size], at + size


def _long(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at


@dataclass(slots=True)
class Coverage:
    """The content of recordings and of a replay, counted."""

    decided: dict[str, Counter[str]]
    keys: Counter[str]
    objects: Counter[str]
    codes: Counter[str]
    remarks: Counter[str]

    @staticmethod
    def empty() -> Coverage:
        return Coverage(defaultdict(Counter), Counter(), Counter(), Counter(), Counter())

    def count(self, recording: Path, journal: Journal) -> None:
        """Add one recording and its replay."""
        kinds: dict[tuple[int, int], str] = {}
        ends: Counter[int] = Counter()
        for _, event in read_recording(recording)[1]:
            if isinstance(event, Record):
                kinds[event.partition, ends[event.partition]] = event.kind or "unreadable"
                ends[event.partition] += 1
        for line in journal.lines:
            if line.what == "verdict":
                outcome, code = line.remark.split(" ")
                partition, offset = line.name.rpartition(" ")[2].split("/")
                self.decided[kinds[int(partition), int(offset)]][outcome] += 1
                self.codes[code] += outcome == "rejected"
            elif line.what == "put":
                self.remarks[line.remark] += 1
                self._object(line, journal)

    def _object(self, line: Line, journal: Journal) -> None:
        suffix = line.name.rpartition(".")[2]
        keys = header_of(journal.body(line))[0] if suffix == "avro" else {}
        name = f"{keys['content'].decode()}.avro" if "content" in keys else suffix
        self.objects[name] += 1
        if "/metadata/roots/" in line.name:
            self.keys.update(list(keys))

    @property
    def roots(self) -> int:
        """The number of roots."""
        return sum(self.objects[f"{name}.avro"] for name in ("root", "tombstone", "view"))

    def shown(self) -> Iterator[str]:
        """The counts, as text."""
        yield f"{self.roots} roots; objects: {_counts(self.objects)}"
        yield f"PUTs: {_counts(self.remarks)}"
        for kind, counts in sorted(self.decided.items()):
            yield f"  {kind:<26}{_counts(counts)}"
        yield f"rejections: {_counts(self.codes)}"
        yield f"keys of headers: {_counts(self.keys)}"

    def lacking(self, least: int) -> list[str]:
        """The kinds that were accepted less often."""
        return [kind.value for kind in IntentKind if self.decided[kind.value]["committed"] < least]


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items(), key=lambda item: -item[1]) if count)


def _tree(named: str, work: Path) -> tuple[Path, str]:
    """The folder of a checkout or of a commit, which is unpacked below `work`, and the commit if it is one."""
    if Path(named).is_dir():
        return Path(named).resolve(), ""
    asked = ("git", "rev-parse", "--verify", f"{named}^{{commit}}")
    commit = subprocess.run(asked, cwd=HOUSE, check=True, capture_output=True, text=True).stdout.strip()
    folder = work / commit
    if not folder.exists():
        packed = subprocess.run(("git", "archive", commit), cwd=HOUSE, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="tar")
    return folder, commit


def _replay(tree: Path, places: Mapping[Path, Path]) -> None:
    """Replay recordings with the code of a tree, in a process of its own. `places`: recording → folder."""
    waiting = {recording: folder for recording, folder in places.items() if not (folder / "done").exists()}
    if not waiting:
        return
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONHASHSEED": "0"}
    pairs = [str(path) for pair in waiting.items() for path in pair]
    began = time.perf_counter()
    done = subprocess.run((sys.executable, "-P", str(_REPLAY), *pairs), cwd=tree, env=environment, check=False)
    print(f"replayed in {tree}: {time.perf_counter() - began:.0f} s", flush=True)
    if done.returncode != 0:
        print(f"{done.returncode} replays failed: their journals end early", flush=True)


def _selected(names: Sequence[str], roots: int) -> dict[str, Callable[[Path], None]]:
    known = recordings(roots) | recorded_lakes.RECORDINGS
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"no such recordings: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return {name: make for name, make in known.items() if not names or name in names}


def main(arguments: Sequence[str]) -> int:
    """Print differences and counts; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("tree", metavar="TREE", nargs="?", default="worktree")
    parser.add_argument("--roots", type=int, default=5_000)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--keep", type=Path, default=None)
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as made:
        work = options.keep.resolve() if options.keep is not None else Path(made)
        work.mkdir(parents=True, exist_ok=True)
        base, base_commit = _tree(options.base, Path(made))
        tree, tree_commit = (HOUSE, "") if options.tree == "worktree" else _tree(options.tree, Path(made))
        places: dict[str, tuple[Path, Path, Path]] = {}
        for name, make in _selected(options.only, options.roots).items():
            recording = work / f"{name}-{options.roots}.jsonl.gz"
            folders = [
                work / f"{name}-{options.roots}-{commit}" if commit else Path(made) / f"{name}-{number}"
                for number, commit in enumerate((base_commit, tree_commit))
            ]
            places[name] = (recording, folders[0], folders[1])
            if not recording.exists():
                began = time.perf_counter()
                make(recording)
                print(f"recorded {name}: {time.perf_counter() - began:.0f} s", flush=True)
        _replay(base, {recording: folder for recording, folder, _ in places.values()})
        _replay(tree, {recording: folder for recording, _, folder in places.values()})
        coverage, differ = Coverage.empty(), 0
        for name, (recording, *folders) in places.items():
            before, after = map(Journal.of, folders)
            lines = list(differences(before, after))
            coverage.count(recording, before)
            differ += bool(lines)
            verdict = "DIFFERENT" if lines else "the same"
            print(f"{name}: {len(before.lines)} lines before, {len(after.lines)} after: {verdict}")
            for line in lines:
                print(f"  {line}")
    print(*coverage.shown(), sep="\n")
    if not options.only:
        print(f"kinds that were accepted less than 20 times: {', '.join(coverage.lacking(20)) or 'none'}")
    print(f"{differ} recordings differ" if differ else "every byte is the same")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
