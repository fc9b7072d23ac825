"""Which adopted Avro leaves are due to become columns, and which of them cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyroaring import BitMap

from rootline.maintenance.leaf_compaction_plan import LeafLoad, LoadedLeaf, fault_in_columns, leaves_to_read
from rootline.maintenance.limits import CompactionLimits
from rootline.schemas.bytes.manifest_codec import decode_manifest
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, ManifestStats, Status
from tests.schemas.iceberg_manifests import BY_CARRIER_AND_DAY, DEFINITION, leaf_row, manifest, record

WITHOUT_FIELDS = IcebergSpec(spec_id=3)


def loaded(name: str, live: int, **more: Any) -> LoadedLeaf:
    return LoadedLeaf(leaf_row(b"", 10, location=f"{name}.avro", **more), live)


def chosen(load: LeafLoad, limits: CompactionLimits) -> set[str]:
    return {leaf.location for leaf in load.chosen(limits)}


def test_a_single_avro_leaf_is_due_however_large_and_one_in_columns_is_not() -> None:
    columns = replace(leaf_row(b"", 10), location="c.parquet", file_format=FileFormat.PARQUET)
    load = LeafLoad((loaded("a", 9), LoadedLeaf(columns, 10)))
    assert chosen(load, CompactionLimits()) == {"a.avro"}
    assert chosen(load, CompactionLimits(adopted=False)) == set()
    assert chosen(load, CompactionLimits(adopted=False).now) == {"a.avro"}
    assert chosen(load.without({"a.avro"}), CompactionLimits()) == set()


def test_one_that_is_dead_leaves_without_being_read() -> None:
    load = LeafLoad((loaded("a", 0),))
    assert (load.chosen(CompactionLimits()), load.dead) == ((), ("a.avro",))
    never = leaf_row(b"", 10, manifest_stats=ManifestStats(0, 0, 10, 0, 0, 100, 4))
    assert LeafLoad((LoadedLeaf(never, 0),)).dead == ()  # no commit would take it out


def test_no_avro_leaf_is_read_to_find_where_loose_vectors_belong() -> None:
    loose = leaf_row(b"", 4, is_delete=True, location="d.parquet", file_format=FileFormat.PARQUET)
    load = LeafLoad((loaded("a", 10), LoadedLeaf(loose, 2)))
    found = load.chosen(CompactionLimits(adopted=False))
    assert [leaf.location for leaf in found] == ["d.parquet"]
    assert [row.location for row in leaves_to_read(load, found)] == ["d.parquet"]


def test_the_switch_is_a_property_of_the_table() -> None:
    name = "rootline.compact.adopted"
    assert CompactionLimits.of_properties({}).adopted
    assert CompactionLimits.of_properties({name: "true"}).adopted
    assert not CompactionLimits.of_properties({name: "false"}).adopted
    for value in ("", "no", "False", "0"):  # of a table that was made before values were checked
        assert CompactionLimits.of_properties({name: value}).adopted


def fault(records: list[dict[str, Any]], *dead: int, row: ContentEntry | None = None, **more: Any) -> str | None:
    body = manifest(2, records, **more)
    row = row or leaf_row(body, len(records))
    leaf = decode_manifest(body, DEFINITION, row, name="m.avro")
    return fault_in_columns(row, leaf, BitMap(dead) if dead else None, DEFINITION)


def test_entries_that_inherit_and_entries_that_are_deleted_are_no_hindrance() -> None:
    gone = record("c", Status.DELETED) | {"snapshot_id": None}
    assert fault([record("a"), record("b", Status.EXISTING, 2), gone]) is None
    assert fault([gone]) is None


@pytest.mark.parametrize("spec", [BY_CARRIER_AND_DAY, WITHOUT_FIELDS])
def test_a_partition_value_that_is_not_known_keeps_a_leaf_in_avro(spec: IcebergSpec) -> None:
    reason = fault([record("a"), record("b")], spec=spec)
    assert (reason is None) == (spec is BY_CARRIER_AND_DAY)
    if reason is not None:
        assert "partition value of id 2" in reason
        assert fault([record("a")], 0, spec=spec) is None  # what is dead does not move


def test_an_entry_that_no_leaf_of_ours_may_hold_keeps_it_in_avro_while_it_lives() -> None:
    nobody = record("b", Status.EXISTING, 2) | {"snapshot_id": None}
    assert "snapshot_id is null" in (fault([record("a"), nobody]) or "")
    assert fault([record("a"), nobody], 1) is None
    for violations in ({"record_count": -1}, {"file_size_in_bytes": -1}, {"file_path": ""}):
        assert fault([record("a"), record("b", **violations)]) is not None
    assert "occurs twice" in (fault([record("a"), record("a")]) or "")


def test_a_leaf_of_ours_is_adopted_by_its_row_alone() -> None:
    assert loaded("a", 1).is_adopted
    assert not LoadedLeaf(leaf_row(b"", 1, file_format=FileFormat.PARQUET), 1).is_adopted
    assert loaded("a", 1).row.content_type is ContentType.DATA_MANIFEST
