"""The stored lakes, unpacked for one test, and the facts that are stored beside them.

Owns: their place, unpacking, the facts. Does not own: making them (`make`), their content (`story`).
Invariants: the stored bytes never change; each test has its own copy.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rootline.client.lake import Lake
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict
from tests.golden_files import FOLDER
from tests.stored.story import FEED, PAUSED, STUCK, TABLES, VIEW, Told, as_json, files_of, rows_of

STORED: Final = FOLDER / "stored"


@dataclass(frozen=True)
class Facts:
    """The facts of one lake.

    `versions`: table → version → index into `contents`, which are the rows. `told`: decided. `undecided`: published,
    in this order, and not decided. `more`: facts of one kind of lake only.
    """

    contents: list[list[dict[str, Any]]]
    versions: dict[str, dict[int, int]]
    tables: list[str]
    tags: dict[str, dict[str, int]]
    view: Any
    files: list[str]
    told: tuple[Told, ...]
    undecided: tuple[Intent, ...]
    more: dict[str, Any]

    @staticmethod
    def of(name: str) -> Facts:
        """The facts of the lake `name`."""
        held: dict[str, Any] = json.loads(gzip.decompress((STORED / f"{name}.json.gz").read_bytes()))
        told = tuple(Told(intent_of(item["intent"]), Verdict.model_validate(item["verdict"])) for item in held["told"])
        versions = {table: {int(at): index for at, index in by.items()} for table, by in held["versions"].items()}
        undecided = tuple(map(intent_of, held["undecided"]))
        same = {name: held[name] for name in ("contents", "tables", "tags", "view", "files")}
        return Facts(**same, versions=versions, told=told, undecided=undecided, more=held["more"])

    def rows(self, table: str, version: int | None = None) -> list[dict[str, Any]]:
        """The rows of a version; without one, of the newest."""
        by_version = self.versions[table]
        return self.contents[by_version[max(by_version) if version is None else version]]


def unpack(name: str, folder: Path) -> Path:
    """Unpack the lake `name` below `folder`; its own folder."""
    with tarfile.open(STORED / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / name


def assert_as_stored(lake: Lake, facts: Facts, versions: Callable[[Iterable[int]], Iterable[int]] = tuple) -> None:
    """Read versions of every table (without `versions` all), the view, the tags and the names; all are as stored."""
    assert lake.list_tables() == facts.tables
    for table in TABLES:
        handle = lake.table(table)
        for version in versions(facts.versions[table]):
            assert rows_of(handle, version) == facts.rows(table, version), (table, version)
        assert rows_of(handle) == facts.rows(table), table
        assert handle.tags() == facts.tags[table]
    assert as_json(lake.view(VIEW).metadata().model_dump(mode="json")) == facts.view


def assert_sound(lake: Lake, data_files: str = "all") -> None:
    """Check every table, its data files so closely; nothing is wrong."""
    for table in TABLES:
        assert list(lake.table(table).check(data_files=data_files)) == [], table
    for table in {FEED, STUCK, PAUSED} & set(lake.list_tables()):
        assert list(lake.table(table).check(data_files="ignored")) == [], table


def append_to_all(lake: Lake) -> None:
    """Append to every table two of its own rows; its newest version until then keeps its rows."""
    for table in TABLES:
        handle = lake.table(table)
        more = handle.scan(limit=2).to_arrow()
        before, head = rows_of(handle), handle.head().version
        assert handle.append(more).version == head + 1
        assert len(rows_of(handle)) == len(before) + len(more) > len(before)
        assert rows_of(handle, head) == before, table


def assert_told_as_before(lake: Lake, facts: Facts) -> None:
    """Send decided intents again; each gets the verdict that it had, a commit as a duplicate."""
    with lake.producer() as producer:
        for told in facts.told:
            verdict = producer.publish(told.intent).verdict(timeout_s=60)
            kind = "duplicate" if told.verdict.kind.value == "committed" else told.verdict.kind.value
            assert shown(verdict) == (kind, told.verdict.version, told.verdict.code), told.intent.intent_id


def shown(verdict: Verdict) -> tuple[str, int | None, str | None]:
    """Kind, version and code."""
    return verdict.kind.value, verdict.version, verdict.code


def feed_files(lake: Lake) -> list[str]:
    """The live files of the table whose files do not exist."""
    return files_of(lake.table(FEED))


def intent_of(held: dict[str, Any]) -> Intent:
    """An intent that is stored as JSON."""
    return Intent.model_validate_json(json.dumps(held))
