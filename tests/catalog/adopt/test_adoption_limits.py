"""Lists and manifests that are too long, or decompress to too much, are refused by name before they are in memory."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table

from rootline.catalog import adoption_plan
from rootline.client.lake import Lake
from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS
from rootline.schemas.errors import Corrupt, Invalid
from tests.catalog.adopt.test_adoption import written
from tests.catalog.adopted_lake import NAME
from tests.schemas.bytes.iceberg.test_foreign_avro import container, record
from tests.schemas.iceberg_manifests import list_entry, manifest_list

NO_PARTITIONS = {"partition_spec_id": 0, "partitions": None}


def list_of(table: Table) -> Path:
    """The file of the current manifest list."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return Path(snapshot.manifest_list.removeprefix("file://"))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return written(tmp_path / "old", 2)[0]


def test_manifests_that_are_too_many_or_too_long_together_are_refused_unread(lake: Lake, table: Table) -> None:
    rows = [list_entry(f"file:///nowhere/{number}.avro", 600 << 20, **NO_PARTITIONS) for number in range(2)]
    list_of(table).write_bytes(manifest_list(2, rows))
    with pytest.raises(
        Invalid, match=r"2 manifests of 1258291200 bytes with 2 entries, .*: rewrite the manif"
    ) as raised:
        lake.adopt(table.metadata_location, NAME, dry_run=True)
    assert raised.value.code == "adoption-unsupported"
    assert str(list_of(table)) in raised.value.message


def test_a_manifest_that_is_too_long_is_refused_unread(lake: Lake, table: Table, tmp_path: Path) -> None:
    long = tmp_path / "long.avro"
    with long.open("wb") as file:
        file.truncate(600 << 20)
    list_of(table).write_bytes(manifest_list(2, [list_entry(f"file://{long}", 600 << 20, **NO_PARTITIONS)]))
    with pytest.raises(Corrupt, match=r"long.avro: 629145600 bytes are stored, 536870912 are read"):
        lake.adopt(table.metadata_location, NAME, dry_run=True)


def test_a_list_that_is_longer_than_the_limit_is_refused_unread(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption_plan, "MANIFEST_LIMITS", replace(MANIFEST_LIMITS, object_bytes=100))
    with pytest.raises(Corrupt, match=r"avro: \d+ bytes are stored, 100 are read: write a smaller object"):
        lake.adopt(table.metadata_location, NAME, dry_run=True)


def test_a_list_that_is_a_bomb_is_refused_by_name(lake: Lake, table: Table) -> None:
    bomb = lzma.compress(bytes(300 << 20), preset=0)
    list_of(table).write_bytes(container(record("bytes"), b"xz", (1, bomb)))
    with pytest.raises(Corrupt, match="a block decompresses to more than 268435456 bytes: rewrite the manif") as raised:
        lake.adopt(table.metadata_location, NAME, dry_run=True)
    assert list_of(table).name in raised.value.message


def test_metadata_that_is_longer_than_the_limit_is_refused(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption_plan, "METADATA_BYTES_MAX", 100)
    with pytest.raises(Invalid, match=r"bytes are stored, 100 are read") as raised:
        lake.adopt(table.metadata_location, NAME, dry_run=True)
    assert raised.value.code == "metadata-unreadable"


def test_a_count_that_is_not_a_number_is_refused_with_the_metadata_to_give(lake: Lake, table: Table) -> None:
    metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"next-row-id": "many"}))
    with pytest.raises(Invalid, match=r"next-row-id .* is 'many', not a whole number: give the metadata") as raised:
        lake.adopt(table.metadata_location, NAME, dry_run=True)
    assert raised.value.code == "metadata-unreadable"
