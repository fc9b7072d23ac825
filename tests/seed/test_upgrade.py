"""The section "Upgrade": manifest lists of older formats become root manifests, their manifests become leaves."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, write_manifest, write_manifest_list
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.typedef import Record

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.manifest_codec import decode_manifest_list
from rootline.schemas.content_entry import (
    ContentType,
    EntryPlace,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt
from rootline.storage.check.chain import check_table
from rootline.storage.metadata.table_loader import read_net_change
from rootline.tree.check.root_diff import diff
from rootline.tree.state.live_index import ordinals_of_vector
from rootline.tree.state.table_state import TableState
from tests.schemas.iceberg_manifests import (
    BY_CARRIER_AND_DAY,
    CARRIER,
    DAY,
    DEFINITION,
    ID,
    ONE_DAY,
    SCHEMA,
    list_entry,
    manifest,
    manifest_list,
    record,
)
from tests.seed.migrated_table import Migrated, rows_of
from tests.support.state_rules import state_violations

M1, M2, D1 = "metadata/m1.avro", "metadata/m2.avro", "metadata/d1.avro"


def summary(low: bytes, high: bytes, *, has_null: bool = False) -> dict[str, Any]:
    return {"contains_null": has_null, "contains_nan": False, "lower_bound": low, "upper_bound": high}


def day(number: int) -> bytes:
    return number.to_bytes(4, "little")


async def version_3() -> Migrated:
    """A V3 snapshot: M1 lists A, B and a file that was deleted, M2 lists C, D1 a vector of rows of B."""
    table = Migrated(MemoryObjectStore(), DEFINITION)
    for number, name in enumerate("abc"):
        table.write_rows(name, rows_of(number * 10, "UA" if name != "c" else "DL"))
    vector = table.write_vector("v", "data/b.parquet", [0, 9])
    m1 = manifest(3, [
        table.stored(record("a", Status.EXISTING, 2, first_row_id=0)),
        record("gone", Status.DELETED, 2, first_row_id=90),
        table.stored(record("b")),
    ])  # fmt: skip
    m2 = manifest(3, [table.stored(record("c", partition={"carrier": "DL", "at_day": ONE_DAY}))])
    d1 = manifest(3, [vector], content="deletes")
    for location, body in ((M1, m1), (M2, m2), (D1, d1)):
        table.place(location, body)
    files: dict[str, Any] = {"existing_files_count": 1, "deleted_files_count": 1, "existing_rows_count": 10}
    body = manifest_list(3, [
        list_entry(M1, len(m1), first_row_id=100, deleted_rows_count=10, min_sequence_number=2, **files,
                   partitions=[summary(b"UA", b"UA"), summary(day(ONE_DAY), day(ONE_DAY))]),
        list_entry(M2, len(m2), first_row_id=120, sequence_number=5, min_sequence_number=5,
                   partitions=[summary(b"DL", b"DL", has_null=True), summary(day(ONE_DAY), day(ONE_DAY + 1))]),
        list_entry(D1, len(d1), content=1, added_rows_count=2, sequence_number=6, min_sequence_number=6),
    ])  # fmt: skip
    await table.migrate(decode_manifest_list(body, DEFINITION, name="snap.avro"))
    return table


async def test_a_version_3_manifest_list_becomes_rows_of_a_root() -> None:
    table = await version_3()
    m1, m2, d1 = [row.entry for row in table.state.root.rows]
    assert [entry.location for entry in (m1, m2, d1)] == [M1, M2, D1]
    assert [entry.content_type for entry in (m1, m2, d1)] == [
        ContentType.DATA_MANIFEST,
        ContentType.DATA_MANIFEST,
        ContentType.DELETE_MANIFEST,
    ]
    assert {entry.file_format for entry in (m1, m2, d1)} == {FileFormat.AVRO}
    assert [entry.version_info for entry in (m1, m2, d1)] == [
        VersionInfo(Status.EXISTING, 7, number, number) for number in (4, 5, 6)
    ]
    assert [entry.record_count for entry in (m1, m2, d1)] == [3, 1, 1]
    assert m1.manifest_stats == ManifestStats(1, 1, 1, 10, 10, 10, 2)
    assert [entry.first_row_id for entry in (m1, m2, d1)] == [100, 120, None]
    assert table.state.header.row_ids.next == 130


async def test_a_partition_summary_becomes_statistics_of_the_specs_members() -> None:
    table = await version_3()
    m1, m2, d1 = [row.entry.content_stats for row in table.state.root.rows]
    assert m1[CARRIER] == FieldStatistics("UA", "UA", null_value_count=0)
    assert m2[CARRIER] == FieldStatistics("DL", "DL", null_value_count=None)
    assert m2[DAY] == FieldStatistics(ONE_DAY, ONE_DAY + 1, null_value_count=0)
    assert not d1


async def test_a_migrated_table_is_planned_and_read_as_before() -> None:
    table = await version_3()
    ids = [*range(10), *range(11, 19), *range(20, 30)]  # rows 0 and 9 of B are deleted
    assert await table.ids() == ids
    assert await table.ids("carrier = 'DL'") == list(range(20, 30))
    assert (await table.plan("carrier = 'DL'")).leaves_pruned == 1
    assert await table.ids("id >= 15 and carrier = 'UA'") == [15, 16, 17, 18]
    assert await table.ids("carrier = 'ZZ'") == []


async def test_row_ids_of_a_migrated_leaf_are_those_of_the_older_format() -> None:
    table = await version_3()
    found = {live.entry.location: live.entry.first_row_id for live in table.state.live.entries()}
    assert found == {"data/a.parquet": 0, "data/b.parquet": 100, "data/c.parquet": 120, "data/v.puffin": None}


async def test_a_removal_from_an_older_leaf_is_a_manifest_vector_at_its_physical_ordinal() -> None:
    table = await version_3()
    await table.remove("data/b.parquet")
    masks = [row.entry for row in table.state.root.rows if row.entry.content_type is ContentType.MANIFEST_DV]
    assert {mask.location: (mask.version_info.status, list(ordinals_of_vector(mask))) for mask in masks} == {
        M1: (Status.ADDED, [2]),
        D1: (Status.ADDED, [0]),
    }
    assert {entry.location for entry in diff(table.state.root, table.state.leaves).removed} == {
        "data/b.parquet",
        "data/v.puffin",
    }
    assert await table.ids() == [*range(10), *range(20, 30)]
    assert table.state.find(EntryPlace(ContentType.DATA, "data/b.parquet")) is None


async def test_what_changed_in_an_older_leaf_is_read_from_the_root_that_changed_it() -> None:
    table = await version_3()
    await table.remove("data/a.parquet")
    change = await read_net_change(table.store, table.name, 0, 1)
    assert [changed.location for changed in change.removed_files] == ["data/a.parquet"]
    assert not change.added_files


async def test_older_leaves_are_rewritten_into_columnar_ones_without_a_change() -> None:
    table = await version_3()
    await table.remove("data/a.parquet")
    before = {live.entry.location: live.entry for live in table.state.live.entries()}
    ids = await table.ids()
    new = await table.rewrite(M1, M2)
    assert table.shown() == {new: Status.EXISTING, D1: Status.EXISTING}
    after = {live.entry.location: live.entry for live in table.state.live.entries()}
    assert after.keys() == before.keys()
    for location, entry in after.items():
        assert entry.first_row_id == before[location].first_row_id
        assert entry.version_info.sequence_number == before[location].version_info.sequence_number
        assert dict(entry.content_stats) == dict(before[location].content_stats)
    assert await table.ids() == ids
    assert not diff(table.state.root, table.state.leaves)
    assert await findings_of(table) == []


async def test_files_are_added_beside_older_leaves() -> None:
    table = await version_3()
    await table.append("d", rows_of(90, "AA"))
    assert await table.ids("id >= 25") == [*range(25, 30), *range(90, 100)]
    assert table.shown() == {
        M1: Status.EXISTING,
        M2: Status.EXISTING,
        D1: Status.EXISTING,
        "data/d.parquet": Status.ADDED,
    }


async def test_a_version_2_table_of_pyiceberg_is_migrated_and_gets_row_ids(tmp_path: Path) -> None:
    table = Migrated(MemoryObjectStore(), DEFINITION)
    io, listed = PyArrowFileIO(), []
    for number, (name, carrier) in enumerate((("a", "UA"), ("b", "DL"))):
        table.write_rows(name, rows_of(number * 10, carrier))
        path = tmp_path / f"m{number}.avro"
        output = io.new_output(str(path))
        with write_manifest(2, BY_CARRIER_AND_DAY, SCHEMA, output, 7, "deflate") as writer:
            writer.add_entry(_pyiceberg_entry(table, name, carrier))
        made = writer.to_manifest_file()
        table.place(f"metadata/m{number}.avro", path.read_bytes())
        made[0] = f"metadata/m{number}.avro"
        listed.append(made)
    output = io.new_output(str(tmp_path / "snap.avro"))
    with write_manifest_list(2, output, 7, None, 1, "deflate") as writer_of_list:
        writer_of_list.add_manifests(listed)
    body = (tmp_path / "snap.avro").read_bytes()
    await table.migrate(decode_manifest_list(body, DEFINITION, name="snap.avro", next_row_id=500))
    assert [row.entry.first_row_id for row in table.state.root.rows] == [500, 510]
    assert table.state.header.row_ids.next == 520
    assert await table.ids() == list(range(20))
    assert await table.ids("carrier = 'DL'") == list(range(10, 20))
    assert (await table.plan("carrier = 'DL'")).leaves_pruned == 1
    assert {live.entry.version_info.sequence_number for live in table.state.live.entries()} == {1}


def _pyiceberg_entry(table: Migrated, name: str, carrier: str) -> ManifestEntry:
    data_file = DataFile.from_args(
        file_path=f"data/{name}.parquet",
        file_format=IcebergFormat.PARQUET,
        partition=Record(carrier, ONE_DAY),
        record_count=10,
        file_size_in_bytes=table.size_of(f"data/{name}.parquet"),
        value_counts={ID: 10},
        null_value_counts={ID: 0},
    )
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=7, sequence_number=None, data_file=data_file
    )


async def test_the_leaf_is_chosen_by_its_file_format_and_never_by_its_name() -> None:
    table = Migrated(MemoryObjectStore(), DEFINITION)
    table.write_rows("a", rows_of(0, "UA"))
    body = manifest(3, [table.stored(record("a"))])
    named_like_parquet = f"metadata/leaves/{uuid.UUID(int=1)}-data-0011223344556677.parquet"
    table.place(named_like_parquet, body)
    rows = manifest_list(3, [list_entry(named_like_parquet, len(body), first_row_id=0)])
    await table.migrate(decode_manifest_list(rows, DEFINITION, name="snap.avro"))
    assert await table.ids() == list(range(10))


async def findings_of(table: Migrated) -> list[tuple[str, str]]:
    return [(found.code, found.reason) async for found in check_table(table.store, table.name)]


async def test_check_finds_nothing_in_a_migrated_table_and_what_was_done_to_it() -> None:
    table = await version_3()
    assert state_violations(table.state) == []
    await table.remove("data/b.parquet")
    await table.append("d", rows_of(90, "AA"))
    assert state_violations(table.state) == []
    assert await findings_of(table) == []


async def test_check_names_a_summary_that_does_not_contain_what_its_manifest_lists() -> None:
    table = Migrated(MemoryObjectStore(), DEFINITION)
    table.write_rows("a", rows_of(0, "UA"))
    body = manifest(3, [table.stored(record("a"))])
    table.place(M1, body)
    wrong = [summary(b"VA", b"WA"), summary(day(ONE_DAY), day(ONE_DAY))]
    rows = manifest_list(3, [list_entry(M1, len(body), first_row_id=0, existing_files_count=0, partitions=wrong)])
    await table.migrate(decode_manifest_list(rows, DEFINITION, name="snap.avro"))
    found = await findings_of(table)
    assert [code for code, _ in found] == ["aggregate-wrong"]
    assert "lower bound 'VA' for id 2, but an entry has 'UA'" in found[0][1]


async def test_position_delete_files_of_version_2_are_carried_out() -> None:
    table = Migrated(MemoryObjectStore(), DEFINITION)
    table.write_rows("a", rows_of(0, "UA"))
    table.write_position_deletes("p", {"data/a.parquet": [1, 2]})
    m1 = manifest(2, [table.stored(record("a", Status.EXISTING, 1))])
    d1 = manifest(2, [table.stored(record("p", content=1, record_count=2))], content="deletes")
    table.place(M1, m1)
    table.place(D1, d1)
    rows = manifest_list(2, [
        list_entry(M1, len(m1), added_files_count=0, existing_files_count=1, added_rows_count=0, existing_rows_count=10,
                   min_sequence_number=1),
        list_entry(D1, len(d1), content=1, added_rows_count=2),
    ])  # fmt: skip
    await table.migrate(decode_manifest_list(rows, DEFINITION, name="snap.avro"))
    assert await table.ids() == [0, *range(3, 10)]
    assert state_violations(table.state) == []
    assert await findings_of(table) == []
    left = {name: [values[0], *values[3:]] for name, values in rows_of(0, "UA").items()}
    await table.replace("data/a.parquet", "rewritten", left)
    assert await table.ids() == [0, *range(3, 10)]
    assert state_violations(table.state) == []
    assert await findings_of(table) == []


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"added_rows_count": None}, "does not count"),
        ({"partitions": [summary(b"a", b"b")]}, "1 partition summaries, spec 3 has 2 members"),
    ],
)
def test_a_list_that_cannot_be_migrated_is_refused_and_named(entry: dict[str, Any], reason: str) -> None:
    body = manifest_list(1, [list_entry(M1, 10, **entry)])
    with pytest.raises(Corrupt, match=reason) as caught:
        decode_manifest_list(body, DEFINITION, name="snap.avro")
    assert caught.value.message.startswith("snap.avro: entry 0")


async def test_the_state_of_a_migrated_table_is_found_again_from_its_bytes() -> None:
    table = await version_3()
    again: TableState = await table.reloaded()
    assert again.live.rows == table.state.live.rows
    assert [live.entry for live in again.live.entries()] == [live.entry for live in table.state.live.entries()]
