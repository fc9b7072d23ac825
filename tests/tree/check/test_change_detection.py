"""The proposal's scenarios of change detection, in every way that a writer of the format may encode them.

The tables are those of the text: a leaf m1 has 10 entries, a vector m1_dv says that 7 of them are dead.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Sequence

import pytest
from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.root_codec import Root, Row, decode_root, encode_root, seal
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Version, snapshot_id_of
from rootline.tree.check.root_diff import RootDiff, diff
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.scan_plan import ScanPlanner, manifest_vectors
from rootline.tree.state.aggregates import aggregates_of
from rootline.tree.state.table_state import TableState
from tests.tree.tables import BY_CARRIER, CODEC, DEFINITION, TABLE_UUID, Lake, append, new_lake, stats

OLD = snapshot_id_of(TABLE_UUID, Version(1))
NEW = snapshot_id_of(TABLE_UUID, Version(2))
DEAD, LIVING = range(7), (7, 8, 9)
EXISTING, ADDED, DELETED = Status.EXISTING, Status.ADDED, Status.DELETED


def old(status: Status = EXISTING) -> VersionInfo:
    """Numbers of what was there before; a DELETED one carries the snapshot that deletes it."""
    return VersionInfo(status, NEW if status is DELETED else OLD, 1, 1)


def file(number: int, numbers: VersionInfo) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.DATA,
        location=f"data/{number}.parquet",
        file_format=FileFormat.PARQUET,
        version_info=numbers,
        partition_spec_id=BY_CARRIER,
        record_count=10,
        file_size_in_bytes=1000,
        first_row_id=None if numbers.sequence_number is None else number * 10,
        content_stats=stats(range(10), "UA"),
    )


def name(number: int) -> str:
    return f"data/{number}.parquet"


@dataclasses.dataclass
class Figure:
    """The leaves of a scenario, and the root that the new commit makes."""

    lake: Lake = dataclasses.field(default_factory=new_lake)
    leaves: dict[str, Leaf] = dataclasses.field(default_factory=dict)

    def leaf(self, number: int, entries: Sequence[ContentEntry]) -> Leaf:
        encoded = encode_leaf(entries, DEFINITION, leaf_uuid=uuid.UUID(int=number), content=LeafContent.DATA)
        leaf = decode_leaf(encoded.body, location=encoded.location)
        self.leaves[leaf.location] = leaf
        return leaf

    def m1(self) -> Leaf:
        """A leaf of ten entries."""
        return self.leaf(1, [file(number, old()) for number in range(10)])

    def root(self, *rows: ContentEntry) -> Root:
        """The next version, with exactly these rows, read back from its bytes."""
        parent = self.lake.head.header
        snapshot = dataclasses.replace(parent.snapshot, snapshot_id=NEW, sequence_number=2)  # type: ignore[arg-type]
        header = dataclasses.replace(parent, version=Version(2), snapshot=snapshot)
        sync = self.lake.head.root.sync
        _, body = encode_root(header, [seal([Row.of(row, CODEC) for row in rows], CODEC, sync)], CODEC, sync)
        return decode_root(body, name="root 2")

    def changes(self, root: Root) -> tuple[set[str], set[str]]:
        """Locations that came, and that went, by this root alone."""
        found = diff(root, self.leaves)
        assert len(found.added) == len({entry.place for entry in found.added})
        assert len(found.removed) == len({entry.place for entry in found.removed})
        numbers = [entry.version_info for entry in (*found.added, *found.removed)]
        assert all(None not in (info.sequence_number, info.snapshot_id) for info in numbers)
        return {entry.location for entry in found.added}, {entry.location for entry in found.removed}

    def live(self, root: Root) -> set[str]:
        """Locations that a scan of this root reads; the index that commits build on says the same."""
        planner = ScanPlanner(root, DEFINITION, PruningFilter.of(None, DEFINITION))
        planned = {task.data.location for task in planner.plan(self.leaves, manifest_vectors(root)).tasks()}
        indexed = {live.entry.location for live in TableState.of(root, DEFINITION, self.leaves).live.entries()}
        assert planned == indexed
        return planned


def row_of(leaf: Leaf, numbers: VersionInfo) -> ContentEntry:
    aggregates = aggregates_of(leaf, DEFINITION.spec_by_id(BY_CARRIER).expr_ids)
    return ContentEntry(
        content_type=ContentType.DATA_MANIFEST,
        location=leaf.location,
        file_format=FileFormat.PARQUET,
        version_info=numbers,
        partition_spec_id=BY_CARRIER,
        record_count=leaf.length,
        file_size_in_bytes=leaf.size_in_bytes,
        manifest_stats=aggregates.manifest_stats,
        content_stats=aggregates.content_stats,
    )


def vector_of(leaf: Leaf, ordinals: Iterable[int], numbers: VersionInfo) -> ContentEntry:
    bits = BitMap(ordinals)
    return ContentEntry(
        content_type=ContentType.MANIFEST_DV,
        location=leaf.location,
        file_format=FileFormat.PUFFIN,
        version_info=numbers,
        partition_spec_id=BY_CARRIER,
        record_count=len(bits),
        deletion_vector=DeletionVector(inline_content=encode_inline(bits)),
        referenced_file=leaf.location,
    )


ADDED_NOW = VersionInfo(ADDED, NEW, 2, 2)


def test_scenario_1_option_1_a_leaf_and_its_vector_are_deleted() -> None:
    figure = Figure()
    m1 = figure.m1()
    root = figure.root(row_of(m1, old(DELETED)), vector_of(m1, DEAD, old(DELETED)))
    assert [entry_violations(row.entry, ManifestKind.ROOT) for row in root.rows] == [[], []]
    assert figure.changes(root) == (set(), {name(number) for number in LIVING})
    assert figure.live(root) == set()


def test_scenario_1_option_2_a_leaf_is_deleted_and_a_vector_of_the_difference_is_added() -> None:
    figure = Figure()
    m1 = figure.m1()
    root = figure.root(row_of(m1, old(DELETED)), vector_of(m1, LIVING, ADDED_NOW))
    assert figure.changes(root) == (set(), {name(number) for number in LIVING})
    assert figure.live(root) == set()


@pytest.mark.parametrize("prior", [EXISTING, DELETED])
def test_scenario_1_option_2_may_show_the_prior_vector_too(prior: Status) -> None:
    figure = Figure()
    m1 = figure.m1()
    vectors = vector_of(m1, DEAD, old(prior)), vector_of(m1, LIVING, ADDED_NOW)
    root = figure.root(row_of(m1, old(DELETED)), *vectors)
    assert figure.changes(root) == (set(), {name(number) for number in LIVING})
    assert figure.live(root) == set()


def test_scenario_1_as_our_writers_encode_it_the_leaf_stays_and_a_vector_is_added() -> None:
    figure = Figure()
    m1 = figure.m1()
    root = figure.root(row_of(m1, old()), vector_of(m1, DEAD, old()), vector_of(m1, LIVING, ADDED_NOW))
    assert figure.changes(root) == (set(), {name(number) for number in LIVING})
    assert figure.live(root) == set()


def test_a_leaf_without_a_vector_that_is_deleted_takes_all_its_entries_with_it() -> None:
    figure = Figure()
    root = figure.root(row_of(figure.m1(), old(DELETED)))
    assert figure.changes(root) == (set(), {name(number) for number in range(10)})
    assert figure.live(root) == set()


def test_scenario_2_a_leaf_that_is_added_with_existing_entries_changes_nothing() -> None:
    figure = Figure()
    m2 = figure.leaf(2, [file(number, old()) for number in LIVING])
    root = figure.root(row_of(m2, ADDED_NOW))
    assert figure.changes(root) == (set(), set())
    assert figure.live(root) == {name(number) for number in LIVING}


def test_scenario_2_changes_nothing_either_when_the_old_leaf_and_vector_are_shown_as_deleted() -> None:
    figure = Figure()
    m1, m2 = figure.m1(), figure.leaf(2, [file(number, old()) for number in LIVING])
    root = figure.root(row_of(m1, old(DELETED)), vector_of(m1, DEAD, old(DELETED)), row_of(m2, ADDED_NOW))
    assert [entry.location for entry in RootDiff(root).carriers] == [m2.location]
    assert figure.changes(root) == (set(), set())
    assert figure.live(root) == {name(number) for number in LIVING}


def test_scenario_2_changes_nothing_as_our_writers_encode_it_with_an_existing_leaf() -> None:
    figure = Figure()
    m1, m2 = figure.m1(), figure.leaf(2, [file(number, old()) for number in LIVING])
    written_now = VersionInfo(EXISTING, NEW, 2, 2)
    for dropped in ((), (row_of(m1, old(DELETED)), vector_of(m1, DEAD, old(DELETED)))):
        root = figure.root(row_of(m2, written_now), *dropped)
        assert figure.changes(root) == (set(), set())
        assert figure.live(root) == {name(number) for number in LIVING}


def combined(figure: Figure, *, inherits: bool) -> Leaf:
    """Scenario 3's m2: of the three that lived in m1 one is deleted; five files are new."""
    fresh = VersionInfo(ADDED, None, None, None) if inherits else ADDED_NOW
    carried = [file(7, old(DELETED)), file(8, old()), file(9, old())]
    return figure.leaf(2, [*carried, *(file(number, fresh) for number in range(20, 25))])


FIVE = {name(number) for number in range(20, 25)}


@pytest.mark.parametrize("inherits", [True, False])
def test_scenario_3_a_rewrite_combined_with_changes(inherits: bool) -> None:
    figure = Figure()
    m1, m2 = figure.m1(), combined(figure, inherits=inherits)
    root = figure.root(row_of(m1, old(DELETED)), vector_of(m1, DEAD, old(DELETED)), row_of(m2, ADDED_NOW))
    assert figure.changes(root) == (FIVE, {name(7)})
    assert figure.live(root) == {name(8), name(9), *FIVE}


def test_scenario_3_is_the_same_change_when_the_old_leaf_has_vanished_from_the_root() -> None:
    figure = Figure()
    root = figure.root(row_of(combined(figure, inherits=True), ADDED_NOW))
    assert figure.changes(root) == (FIVE, {name(7)})
    assert figure.live(root) == {name(8), name(9), *FIVE}


def test_scenario_3_leaves_no_change_behind_in_the_next_root() -> None:
    figure = Figure()
    m2 = combined(figure, inherits=True)
    root = figure.root(row_of(m2, VersionInfo(EXISTING, OLD, 1, 1)))
    assert RootDiff(root).changed == ()
    assert figure.changes(root) == (set(), set())
    assert figure.live(root) == {name(8), name(9), *FIVE}


def test_an_entry_of_a_mixed_leaf_that_its_vectors_hold_was_dead_or_comes_and_goes_at_once() -> None:
    figure = Figure()
    m2 = combined(figure, inherits=True)  # ordinals 0 DELETED, 1 and 2 EXISTING, 3 to 7 ADDED
    root = figure.root(row_of(m2, ADDED_NOW), vector_of(m2, [2, 3], old()), vector_of(m2, [1, 4], ADDED_NOW))
    assert figure.changes(root) == ({name(22), name(23), name(24)}, {name(7), name(8)})
    assert figure.live(root) == {name(22), name(23), name(24)}


def test_a_dropped_leafs_entry_that_moved_into_the_root_has_only_moved() -> None:
    figure = Figure()
    m1 = figure.m1()
    moved = [file(8, old()), file(9, old())]
    root = figure.root(row_of(m1, old(DELETED)), vector_of(m1, DEAD, old(DELETED)), *moved)
    assert figure.changes(root) == (set(), {name(7)})
    assert figure.live(root) == {name(8), name(9)}


def test_two_vectors_of_one_status_are_read_as_their_union() -> None:
    figure = Figure()
    m1 = figure.m1()
    vectors = vector_of(m1, [7], ADDED_NOW), vector_of(m1, [8], ADDED_NOW), vector_of(m1, DEAD, old())
    root = figure.root(row_of(m1, old()), *vectors)
    assert figure.changes(root) == (set(), {name(7), name(8)})
    assert figure.live(root) == {name(9)}


def test_a_vector_in_a_puffin_file_is_asked_for_by_name() -> None:
    figure = Figure()
    m1 = figure.m1()
    stored = dataclasses.replace(
        vector_of(m1, LIVING, ADDED_NOW),
        deletion_vector=DeletionVector(4, 40),
        file_size_in_bytes=100,
    )
    root = figure.root(row_of(m1, old()), stored)
    with pytest.raises(Corrupt, match="was not read"):
        diff(root, figure.leaves)
    found = diff(root, figure.leaves, {(m1.location, 4): BitMap(LIVING)})
    assert {entry.location for entry in found.removed} == {name(number) for number in LIVING}


def test_a_commit_on_a_root_with_a_dropped_leaf_leaves_its_vectors_behind() -> None:
    figure = Figure()
    m1 = figure.m1()
    for prior in (EXISTING, DELETED):
        vectors = vector_of(m1, DEAD, old(prior)), vector_of(m1, LIVING, ADDED_NOW)
        root = figure.root(row_of(m1, old(DELETED)), *vectors)
        lake = dataclasses.replace(figure.lake, state=TableState.of(root, DEFINITION, {}), offset=10)
        lake.put(append("next"))
        assert [row.entry.content_type for row in lake.head.root.rows] == [ContentType.DATA]
