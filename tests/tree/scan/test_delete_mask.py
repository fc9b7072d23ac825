"""What the columns of a leaf say about deletes never hides one that the index finds."""

from __future__ import annotations

import uuid
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given, settings

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Invalid
from rootline.tree.scan.delete_index import DeleteIndex, may_have_deletes
from tests.support.examples import examples
from tests.tree.filter.test_prune import BUCKET, DEFINITION, MONTH, NUMBER, RATIO, TEXT, entry_statistics
from tests.tree.filter.test_prune import entry as data_entry

SPECS = st.sampled_from([0, 1, 2])
MEMBERS = {0: (), 1: (MONTH, BUCKET), 2: (TEXT,)}
LEAF_ROW = ContentEntry(
    *(
        ContentType.DATA_MANIFEST,
        "metadata/leaves/l",
        FileFormat.PARQUET,
        VersionInfo(Status.EXISTING, 1, 3, 3),
        0,
        1,
        9,
    ),
    manifest_stats=ManifestStats(0, 1, 0, 0, 10, 0, 1),
)


@st.composite
def statistics(draw: st.DrawFn, spec_id: int) -> dict[int, FieldStatistics]:
    """Of any columns, and nearly always of the members of the spec."""
    found = dict(draw(entry_statistics()))
    if draw(st.integers(0, 9)):
        for member in MEMBERS[spec_id]:
            value = draw(st.sampled_from(["a", "b", None] if member == TEXT else [0, 1, None]))
            found[member] = FieldStatistics(value, value)
    return found


@st.composite
def data_files(draw: st.DrawFn, spec_id: int) -> ContentEntry:
    number = draw(st.integers(1, 4))
    entry = data_entry(draw(statistics(spec_id)), spec_id)
    name = draw(st.sampled_from(["data/a", "data/b", "data/c"]))
    return replace(entry, location=name, version_info=VersionInfo(Status.EXISTING, 1, number, number))


@st.composite
def deletes(draw: st.DrawFn) -> ContentEntry:
    entry = draw(data_files(draw(SPECS)))
    if draw(st.integers(0, 3)) == 0:
        target = draw(st.sampled_from([None, "data/a"]))
        return replace(entry, content_type=ContentType.POSITION_DELETE, location="data/p", referenced_file=target)
    ids = draw(st.lists(st.sampled_from([NUMBER, RATIO, TEXT]), min_size=1, max_size=2, unique=True))
    return replace(entry, content_type=ContentType.EQUALITY_DELETE, location="data/e", equality_ids=tuple(sorted(ids)))


def has_deletes(index: DeleteIndex, data: ContentEntry) -> bool:
    """Whether the index finds deletes. A file that does not say its partition has no answer."""
    try:
        return bool(index.of_file(data))
    except Invalid:
        return False


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), SPECS, st.lists(deletes(), min_size=1, max_size=4))
def test_a_file_that_the_mask_leaves_out_has_no_deletes(
    data: st.DataObject, spec_id: int, found: list[ContentEntry]
) -> None:
    try:
        index = DeleteIndex.of(found, DEFINITION, None)
    except Invalid:
        return  # a delete that does not say its partition: the plan is refused before any mask
    files = data.draw(st.lists(data_files(spec_id), min_size=1, max_size=5))
    encoded = encode_leaf(files, DEFINITION, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    flags = may_have_deletes(index, leaf, replace(LEAF_ROW, partition_spec_id=spec_id)).tolist()
    assert all(flag or not has_deletes(index, file) for flag, file in zip(flags, files, strict=True))


def test_the_mask_leaves_out_what_bounds_or_age_keep_from_every_delete() -> None:
    delete = ContentEntry(
        *(ContentType.EQUALITY_DELETE, "data/e", FileFormat.PARQUET, VersionInfo(Status.EXISTING, 1, 3, 3), 0, 1, 9),
        equality_ids=(NUMBER,),
        content_stats={NUMBER: FieldStatistics(5, 6, True, 2, 0)},
    )
    ranges = {"inside": (5, 5, 1), "apart": (1, 2, 1), "younger": (5, 5, 3), "unknown": (None, None, 1)}
    files = [
        replace(
            data_entry({NUMBER: FieldStatistics(low, high, True, 10, 0)}, 0),
            location=f"data/{name}",
            version_info=VersionInfo(Status.EXISTING, 1, number, number),
        )
        for name, (low, high, number) in ranges.items()
    ]
    encoded = encode_leaf(files, DEFINITION, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    index = DeleteIndex.of([delete], DEFINITION, None)
    assert may_have_deletes(index, leaf, LEAF_ROW).tolist() == [True, False, False, True]
