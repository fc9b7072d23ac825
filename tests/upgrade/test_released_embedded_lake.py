"""A lake in a folder that the released version wrote, with intents that wait for a verdict, under this version.

Its log was upgraded by caa9e5f4. What the released version told and what it left undecided is in tests/golden/released;
the last verdicts of `PENDING` are those that it gave itself to a copy of the same lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict
from tests.upgrade.released_lake import FLIGHTS, PLAIN, Facts, facts_of, unpack_upgraded

PENDING: Final = (
    ("committed", 6, None),
    ("duplicate", 2, None),
    ("rejected", None, "table-unknown"),
    ("rejected", None, "file-already-live"),
    ("committed", 6, None),
)
"""Kind, version and code of the verdicts on the intents that were waiting."""


@pytest.fixture(scope="module")
def facts() -> Facts:
    return facts_of("embedded")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack_upgraded("embedded", tmp_path)


@pytest.fixture
def released(folder: Path) -> Iterator[Lake]:
    with connect(folder) as lake:
        yield lake


def send(lake: Lake, *intents: Intent) -> list[Verdict]:
    """Publish them as they are, one after the other; what they are told."""
    with lake.producer("loader") as producer:
        return [producer.publish(intent).verdict() for intent in intents]


def ids(lake: Lake, table: str, version: int | None = None) -> list[int]:
    return sorted(lake.table(table).scan(version=version).to_arrow()["id"].to_pylist())


def shown(verdict: Verdict) -> tuple[str, int | None, str | None]:
    return verdict.kind.value, verdict.version, verdict.code


def test_every_version_has_the_rows_that_the_released_version_read(released: Lake, facts: Facts) -> None:
    for table, versions in facts.rows.items():
        assert [ids(released, table, version) for version in range(len(versions))] == versions


def test_what_was_decided_is_told_the_same_when_it_is_sent_again(released: Lake, facts: Facts) -> None:
    again = send(released, *(told.intent for told in facts.told))
    for told, verdict in zip(facts.told, again, strict=True):
        kind = "duplicate" if told.verdict.kind == "committed" else told.verdict.kind
        assert shown(verdict) == (kind, told.verdict.version, told.verdict.code), told.intent.intent_id


def test_what_waited_is_decided_as_the_released_version_decides_it(released: Lake, facts: Facts) -> None:
    last_told = max(told.verdict.offset for told in facts.told)
    [now] = send(released, facts.told[0].intent)
    with released.producer("loader") as producer:
        again = [producer.publish(intent).verdict() for intent in facts.pending]
    for verdict, (kind, version, code) in zip(again, PENDING, strict=True):
        assert shown(verdict) == ("duplicate" if kind == "committed" else kind, version, code)
    assert now.offset > last_told + len(facts.pending), "what waited came first"


def test_nothing_is_wrong_with_it_before_or_after_this_version_writes_to_it(released: Lake, facts: Facts) -> None:
    for table in (FLIGHTS, PLAIN):
        assert list(released.table(table).check()) == []
    released.table(PLAIN).append(released.table(FLIGHTS).scan().to_arrow())
    released.table(FLIGHTS).delete_where("id = 0")
    released.table(FLIGHTS).overwrite(released.table(PLAIN).scan(where="id < 3").to_arrow(), where="carrier = 'AA'")
    for table in (FLIGHTS, PLAIN):
        assert list(released.table(table).check()) == []
        assert [ids(released, table, version) for version in range(len(facts.rows[table]))] == facts.rows[table]
    assert [*released.table(FLIGHTS).tags().items()] == [("kept", 3)]


def test_its_exports_go_on(released: Lake, folder: Path) -> None:
    before = {path for path in (folder / "demo" / "flights" / "export").rglob("*") if path.is_file()}
    exported = released.table(FLIGHTS).export()
    assert exported.version == 7
    assert all(path.exists() for path in before)
