"""Which fields each kind of entry must and must not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from tests.schemas.entry_values import TRACKED, entries

INFO = VersionInfo(Status.ADDED, 1, 2, 2)
STATS = ManifestStats(0, 3, 0, 0, 300, 0, 1)

DATA = ContentEntry(ContentType.DATA, "data/a.parquet", FileFormat.PARQUET, INFO, 0, 10, 100, first_row_id=0)
VECTOR = ContentEntry(
    ContentType.POSITION_DELETE,
    "data/v.puffin",
    FileFormat.PUFFIN,
    INFO,
    0,
    2,
    100,
    deletion_vector=DeletionVector(4, 40),
    referenced_file="data/a.parquet",
)
EQUALITY = ContentEntry(
    ContentType.EQUALITY_DELETE, "data/e.parquet", FileFormat.PARQUET, INFO, 0, 1, 100, equality_ids=(1,)
)
LEAF = ContentEntry(
    ContentType.DATA_MANIFEST, "metadata/leaves/l", FileFormat.PARQUET, INFO, 0, 3, 900, manifest_stats=STATS
)
DELETE_LEAF = replace(LEAF, content_type=ContentType.DELETE_MANIFEST, referenced_file="metadata/leaves/l")
LEAF_VECTOR = ContentEntry(
    ContentType.MANIFEST_DV,
    "metadata/leaves/l",
    FileFormat.PUFFIN,
    INFO,
    0,
    1,
    None,
    deletion_vector=DeletionVector(inline_content=b"bits"),
    referenced_file="metadata/leaves/l",
)


@pytest.mark.parametrize("entry", [DATA, VECTOR, EQUALITY, LEAF, DELETE_LEAF, LEAF_VECTOR])
def test_a_sound_entry_of_a_root_breaks_no_rule(entry: ContentEntry) -> None:
    assert entry_violations(entry, ManifestKind.ROOT) == []


@pytest.mark.parametrize("entry", [DATA, VECTOR, EQUALITY])
def test_an_added_entry_of_a_leaf_may_inherit_its_numbers(entry: ContentEntry) -> None:
    inheriting = replace(entry, version_info=VersionInfo(Status.ADDED))
    assert entry_violations(inheriting, ManifestKind.LEAF) == []
    assert len(entry_violations(inheriting, ManifestKind.ROOT)) == 3
    existing = replace(entry, version_info=VersionInfo(Status.EXISTING))
    assert len(entry_violations(existing, ManifestKind.LEAF)) == 3


@pytest.mark.parametrize("entry", [LEAF, DELETE_LEAF, LEAF_VECTOR])
def test_leaves_and_their_vectors_occur_in_roots_only(entry: ContentEntry) -> None:
    assert any("in roots only" in sentence for sentence in entry_violations(entry, ManifestKind.LEAF))


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        (LEAF, {"version_info": VersionInfo(Status.DELETED, 1, 2, 2)}),
        (LEAF_VECTOR, {"version_info": VersionInfo(Status.DELETED, 1, 2, 2)}),
        (LEAF_VECTOR, {"file_size_in_bytes": 5}),
    ],
    ids=str,
)
def test_what_the_proposal_itself_writes_breaks_no_rule(entry: ContentEntry, change: dict[str, Any]) -> None:
    """Scenario 1 deletes a leaf and its vector; an inline vector has a location, and with it a size."""
    assert entry_violations(replace(entry, **change), ManifestKind.ROOT) == []


@pytest.mark.parametrize(
    ("entry", "change", "reason"),
    [
        (DATA, {"location": ""}, "location is empty"),
        (DATA, {"file_format": FileFormat.PUFFIN}, "file_format puffin"),
        (DATA, {"file_size_in_bytes": None}, "file_size_in_bytes is null"),
        (DATA, {"file_size_in_bytes": -1}, "file_size_in_bytes is negative"),
        (DATA, {"record_count": -1}, "record_count is negative"),
        (DATA, {"partition_spec_id": -1}, "partition_spec_id is negative"),
        (DATA, {"deletion_vector": DeletionVector(1, 2)}, "deletion_vector is set"),
        (DATA, {"referenced_file": "x"}, "referenced_file is set"),
        (DATA, {"manifest_stats": STATS}, "manifest_stats is set"),
        (DATA, {"equality_ids": (1,)}, "equality_ids is set"),
        (DATA, {"first_row_id": -1}, "first_row_id is negative"),
        (DATA, {"split_offsets": (5, 4)}, "split_offsets do not ascend"),
        (DATA, {"version_info": VersionInfo(Status.ADDED, 1, -2, 2)}, "sequence_number -2 is negative"),
        (DATA, {"version_info": VersionInfo(Status.ADDED, 1, 3, 2)}, "greater than file_sequence_number"),
        (VECTOR, {"deletion_vector": None}, "deletion_vector is null"),
        (VECTOR, {"deletion_vector": DeletionVector(4)}, "deletion_vector.size_in_bytes is null"),
        (VECTOR, {"deletion_vector": DeletionVector(-4, 4)}, "offset is negative"),
        (VECTOR, {"deletion_vector": DeletionVector(90, 11)}, "ends after its Puffin file"),
        (VECTOR, {"deletion_vector": DeletionVector(inline_content=b"x")}, "deletion_vector.inline_content is set"),
        (VECTOR, {"referenced_file": None}, "referenced_file is null"),
        (VECTOR, {"record_count": 0}, "cardinality, is not positive"),
        (VECTOR, {"sort_order_id": 1}, "sort_order_id is set"),
        (VECTOR, {"first_row_id": 1}, "first_row_id is set"),
        (EQUALITY, {"equality_ids": None}, "equality_ids is null"),
        (EQUALITY, {"equality_ids": ()}, "equality_ids is empty"),
        (LEAF, {"manifest_stats": None}, "manifest_stats is null"),
        (LEAF, {"manifest_stats": replace(STATS, added_files_count=-1)}, "negative count"),
        (LEAF, {"record_count": 4}, "counts 3 files, record_count is 4"),
        (LEAF, {"file_format": FileFormat.ORC}, "file_format orc"),
        (LEAF, {"version_info": VersionInfo(Status.ADDED, 1, 2, 3)}, "of a leaf differ"),
        (LEAF, {"referenced_file": "x"}, "referenced_file is set"),
        (LEAF_VECTOR, {"file_size_in_bytes": -5}, "file_size_in_bytes is negative"),
        (
            LEAF_VECTOR,
            {"deletion_vector": DeletionVector(1, 2, b"x")},
            "deletion_vector.offset is set on content_type MANIFEST_DV with an inline vector",
        ),
        (LEAF_VECTOR, {"referenced_file": "other"}, "of an inline manifest vector differ"),
        (LEAF_VECTOR, {"content_stats": {1: FieldStatistics()}}, "content_stats are set"),
        (DATA, {"content_stats": {1: FieldStatistics(value_count=1, null_value_count=2)}}, "id 1: more nulls"),
        (DATA, {"content_stats": {1: FieldStatistics(2, 1)}}, "id 1: the lower bound is above"),
        (
            DATA,
            {"content_stats": {1: FieldStatistics(avg_value_size_in_bytes=2, max_value_size_in_bytes=1)}},
            "id 1: avg_value_size_in_bytes is greater",
        ),
        (DATA, {"content_stats": LazyStats(StatisticsCodec(TRACKED), b"\x07", "root 3")}, "cannot be read: root 3"),
    ],
    ids=str,
)
def test_a_broken_rule_is_named(entry: ContentEntry, change: dict[str, Any], reason: str) -> None:
    sentences = entry_violations(replace(entry, **change), ManifestKind.ROOT)
    assert any(reason in sentence for sentence in sentences), sentences


@given(entries())
def test_any_entry_can_be_judged(entry: ContentEntry) -> None:
    for kind in ManifestKind:
        assert all(isinstance(sentence, str) for sentence in entry_violations(entry, kind))
