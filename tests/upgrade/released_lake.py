"""The lakes that the released version cb577a9 wrote, unpacked for one test, and what is known of them.

Owns: unpacking, upgrading a log, and the facts. Does not own: how they were made (`write_released_lake`).
Invariants: the stored bytes are never changed; each test has a copy of its own.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict
from tests.golden_files import FOLDER

RELEASED: Final = FOLDER / "released"
FLIGHTS, PLAIN, FILES = "demo.flights", "demo.plain", "demo.files"
UPGRADE: Final = (
    "CREATE TABLE heads (table_name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID",
    "ALTER TABLE intents ADD COLUMN content BLOB",
    "ALTER TABLE intents ADD COLUMN oldest_file_ms INTEGER",
    "ALTER TABLE intents ADD COLUMN trace BLOB",
    "ALTER TABLE verdicts ADD COLUMN layout INTEGER",
    "CREATE TRIGGER no_older_verdicts BEFORE INSERT ON verdicts WHEN NEW.layout IS NULL BEGIN"
    " SELECT RAISE(ABORT, 'this lake was upgraded (rootline upgrade): use a newer version of Rootline'); END",
    "INSERT INTO meta SELECT 'upgraded-from', max(log_offset) + 1 FROM intents",
    "UPDATE meta SET value = '2' WHERE name = 'layout'",
)
"""What `rootline upgrade` of caa9e5f4 does to a log of the released version."""


@dataclass(frozen=True)
class Told:
    """An intent that the released version has decided, and its verdict."""

    intent: Intent
    verdict: Verdict


@dataclass(frozen=True)
class Facts:
    """`rows`: table → version → the ids in it, ascending. `pending`: published and not decided, in this order."""

    rows: dict[str, list[list[int]]]
    told: tuple[Told, ...]
    pending: tuple[Intent, ...]
    export: str


def facts_of(name: str) -> Facts:
    """What is known of the lake `name`."""
    held: dict[str, Any] = json.loads((RELEASED / f"{name}.json").read_text())
    told = tuple(Told(_intent(item["intent"]), Verdict.model_validate(item["verdict"])) for item in held["told"])
    return Facts(held["rows"], told, tuple(map(_intent, held["pending"])), held["export"])


def unpack(name: str, folder: Path) -> Path:
    """The lake's own folder, below `folder`."""
    with tarfile.open(RELEASED / f"{name}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "lake"


def unpack_upgraded(name: str, folder: Path) -> Path:
    """As `unpack`, and the log is as `rootline upgrade` of caa9e5f4 leaves it."""
    lake = unpack(name, folder)
    with closing(sqlite3.connect(lake / ".rootline" / FILE_NAME, isolation_level=None)) as log_file:
        for statement in UPGRADE:
            log_file.execute(statement)
    return lake


def _intent(held: dict[str, Any]) -> Intent:
    return Intent.model_validate_json(json.dumps(held))
