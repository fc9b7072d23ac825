"""The lakes that the released version cb577a9 wrote, unpacked for one test, and what is known of them.

Owns: unpacking, and the facts. Does not own: how they were made (`write_released_lake`).
Invariants: the stored bytes are never changed; each test has a copy of its own.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict
from tests.golden_files import FOLDER

RELEASED: Final = FOLDER / "released"
FLIGHTS, PLAIN, FILES = "demo.flights", "demo.plain", "demo.files"


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


def _intent(held: dict[str, Any]) -> Intent:
    return Intent.model_validate_json(json.dumps(held))
