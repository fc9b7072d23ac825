"""One rule table, two evaluators: what is said of one entry is said of columns, and the quick way says the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from rootline.schemas.bytes.leaf_columns import RULED_COLUMNS, column_violation
from rootline.schemas.bytes.leaf_schema import ROW_FIELDS
from rootline.schemas.content_entry import (
    FILE_TYPES,
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.entry_rules import FIELD_RULES, LEAST, ManifestKind, fault_of_row, shape_rules
from tests.schemas.sound_entries import root_rows
from tests.schemas.test_entry_rules import DATA, DELETE_LEAF, EQUALITY, LEAF, LEAF_VECTOR, VECTOR
from tests.support.examples import examples

RULED: Final = pa.schema([field for field in ROW_FIELDS if field.name in RULED_COLUMNS])
SOUND: Final = (DATA, VECTOR, EQUALITY)
NUMBER = st.sampled_from([None, -1, 0, 1, 2**40])
SMALL = st.sampled_from([-1, 0, 1])
VECTORS = st.none() | st.builds(DeletionVector, NUMBER, NUMBER, st.sampled_from([None, b"", b"bits"]))
CHANGES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "file_format": st.sampled_from(FileFormat),
    "version_info": st.builds(VersionInfo, st.sampled_from(Status), NUMBER, NUMBER, NUMBER),
    "partition_spec_id": SMALL,
    "record_count": SMALL,
    "file_size_in_bytes": NUMBER,
    "deletion_vector": VECTORS,
    "sort_order_id": st.sampled_from([None, 0, 3]),
    "referenced_file": st.sampled_from([None, "", "data/a.parquet", "metadata/leaves/l"]),
    "split_offsets": st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple),
    "equality_ids": st.sampled_from([None, (), (1,)]),
    "first_row_id": NUMBER,
}


@st.composite
def changed(draw: st.DrawFn, sound: tuple[ContentEntry, ...] = SOUND) -> ContentEntry:
    """A sound entry of which some fields are other ones, as often as not broken."""
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True))
    return replace(draw(st.sampled_from(sound)), **{name: draw(CHANGES[name]) for name in names})


def columns_of(entries: list[ContentEntry]) -> pa.Table:
    rows = []
    for entry in entries:
        row = {name: getattr(entry, name) for name in RULED.names}
        row["version_info"] = {name: getattr(entry.version_info, name) for name in VersionInfo.__slots__}
        vector = entry.deletion_vector
        row["deletion_vector"] = vector and {name: getattr(vector, name) for name in DeletionVector.__slots__}
        rows.append(row)
    return pa.Table.from_pylist(rows, RULED)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(changed(), min_size=1, max_size=4))
def test_columns_break_a_rule_where_one_of_their_entries_does(entries: list[ContentEntry]) -> None:
    said = [sentence for entry in entries for sentence in shape_rules(entry, ManifestKind.LEAF)]
    found = column_violation(columns_of(entries))
    assert found in said if said else found is None


@settings(max_examples=examples(400), deadline=None)
@given(changed())
def test_both_evaluators_say_the_same_sentence_of_one_entry(entry: ContentEntry) -> None:
    said = list(shape_rules(entry, ManifestKind.LEAF))
    found = column_violation(columns_of([entry]))
    assert found in said if said else found is None


@settings(max_examples=examples(400), deadline=None)
@given(changed((*SOUND, LEAF, DELETE_LEAF, LEAF_VECTOR)) | root_rows())
def test_the_quick_way_finds_the_first_fault_of_a_row(entry: ContentEntry) -> None:
    assert fault_of_row(entry) == next(shape_rules(entry, ManifestKind.ROOT), None)


def test_every_field_that_the_table_names_is_a_column_that_is_looked_at() -> None:
    rules = [FIELD_RULES[content_type] for content_type in FILE_TYPES]
    named = {name for each in rules for name in (*each.required, *each.null, *each.not_empty)}
    named |= {least.field for least in (*LEAST, *(least for each in rules for least in each.least))}
    assert named <= {*RULED_COLUMNS, "manifest_stats"}


def test_every_type_of_entry_has_its_row_in_the_table() -> None:
    assert FIELD_RULES.keys() == set(ContentType)
    assert all(not set(each.required) & set(each.null) for each in FIELD_RULES.values())


def test_a_row_with_manifest_stats_is_refused_in_a_leaf_too() -> None:
    entry = replace(DATA, manifest_stats=ManifestStats(0, 3, 0, 0, 300, 0, 1))
    assert list(shape_rules(entry, ManifestKind.LEAF)) == ["manifest_stats is set on content_type DATA"]
