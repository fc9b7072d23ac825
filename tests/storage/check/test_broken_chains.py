"""A check finds what is wrong although every digest is right: roots that a faulty writer could have made."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.root_codec import Row, decode_root, encode_root, seal
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    Status,
    VersionInfo,
)
from rootline.schemas.error_codes import CODES
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey, SequenceNumber, SnapshotId, TableName, Version
from rootline.schemas.object_keys import key_of, root_key
from rootline.schemas.parts.ledger import CommittedRun
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress
from rootline.schemas.root_header import Operation, RootHeader
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import CheckSummary, DataFiles
from rootline.tree.state.aggregates import aggregates_of
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.storage.check.damaged_table import everything_table, findings_of, memory_of
from tests.support.changed_headers import of_part

pytestmark = pytest.mark.slow

Entries = list[ContentEntry]


async def forged(
    builder: TableBuilder,
    *,
    back: int = 0,
    header: Callable[[RootHeader], RootHeader] = lambda header: header,
    entries: Callable[[Entries], Entries] = lambda entries: entries,
) -> ObjectKey:
    """The head, or a version before it, made anew with another header or other entries, and all digests right."""
    version = Version(builder.state.header.version - back)
    key = root_key(builder.table, version)
    stored = await builder.store.get(key)
    assert stored is not None
    root = decode_root(stored.body, name=key)
    rows = [Row.of(entry, root.codec) for entry in entries([row.entry for row in root.rows])]
    _, body = encode_root(header(root.header), [seal(rows, root.codec, root.sync)], root.codec, root.sync)
    memory_of(builder).place(key, body)
    return key


async def codes(builder: TableBuilder) -> set[tuple[str, str]]:
    return {(found.object, found.code) for found in await findings_of(memory_of(builder), builder.table)}


def altered(
    content_type: ContentType, change: Callable[[ContentEntry], ContentEntry | None]
) -> Callable[[Entries], Entries]:
    """`change` applied to the first settled row of a content type; `None` drops it."""

    def alter(entries: Entries) -> Entries:
        at = next(
            number
            for number, entry in enumerate(entries)
            if entry.content_type is content_type and entry.version_info.status is Status.EXISTING
        )
        changed = change(entries[at])
        return entries[:at] + ([] if changed is None else [changed]) + entries[at + 1 :]

    return alter


async def test_a_head_that_is_made_anew_without_a_change_is_sound() -> None:
    builder = await everything_table()
    await forged(builder)
    assert await codes(builder) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda header: replace(header, parent_digest=bytes(32)), "parent-mismatch"),
        (of_part("snapshot", parent_id=SnapshotId(7)), "parent-mismatch"),
        (of_part("snapshot", snapshot_id=SnapshotId(7)), "snapshot-wrong"),
        (of_part("snapshot", timestamp_ms=1_700_000_000_000), "snapshot-wrong"),
        (of_part("snapshot", sequence_number=SequenceNumber(1)), "snapshot-wrong"),
        (of_part("row_ids", next=0), "snapshot-wrong"),
        (of_part("log", offsets=()), "progress-lost"),
        (
            lambda header: of_part("log", offsets=(header.log.offsets[0]._replace(next_offset=1),))(header),
            "progress-lost",
        ),
        (of_part("ledger", writers={}), "progress-lost"),
        (
            lambda header: of_part(
                "ledger",
                writers={
                    writer: replace(record, committed=(CommittedRun(1, 1, header.version, 0),))
                    for writer, record in header.ledger.writers.items()
                },
            )(header),
            "progress-lost",
        ),
        (
            lambda header: of_part(
                "outcomes",
                newest=replace(
                    header.outcomes.newest,
                    runs=(
                        header.outcomes.newest.runs[0]._replace(version=Version(3)),
                        *header.outcomes.newest.runs[1:],
                    ),
                ),
            )(header),
            "progress-lost",
        ),
        (lambda header: replace(header, tags={"unseen": 1}), "tags-wrong"),
        (
            lambda header: replace(
                header, progress=(JobProgress("job", SequenceNumber(1), ClientSnapshot(7, "append"), {}),)
            ),
            "snapshot-wrong",
        ),
        (of_part("restores", restored_at=SequenceNumber(1)), "snapshot-wrong"),
        (lambda header: replace(header, totals=replace(header.totals, rows=1)), "totals-wrong"),
        (of_part("snapshot", operation=Operation.REPLACE), "live-set-wrong"),
        (of_part("snapshot", operation=Operation.DELETE), "live-set-wrong"),
    ],
)
async def test_a_header_that_does_not_follow_is_found(change: Callable[[RootHeader], RootHeader], code: str) -> None:
    builder = await everything_table()
    key = await forged(builder, header=change)
    assert (key, code) in await codes(builder)


def _other_stats(entry: ContentEntry) -> ContentEntry:
    wrong = {**entry.content_stats, 1: replace(entry.content_stats[1], upper_bound=5)}
    return replace(entry, content_stats=wrong)


def _other_counts(entry: ContentEntry) -> ContentEntry:
    assert entry.manifest_stats is not None
    return replace(entry, manifest_stats=replace(entry.manifest_stats, existing_rows_count=1))


def _lends_other_numbers(entry: ContentEntry) -> ContentEntry:
    return replace(entry, version_info=replace(entry.version_info, sequence_number=2, file_sequence_number=2))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (altered(ContentType.DATA, lambda entry: None), "live-set-wrong"),
        (altered(ContentType.DATA, lambda entry: replace(entry, record_count=5)), "entry-changed"),
        (
            altered(ContentType.DATA, lambda entry: replace(entry, content_stats={2: FieldStatistics("asia", "asia")})),
            "entry-changed",
        ),
        (altered(ContentType.DATA, lambda entry: replace(entry, location=location_of(0))), "entry-doubled"),
        (altered(ContentType.DATA, lambda entry: replace(entry, first_row_id=None)), "entry-invalid"),
        (altered(ContentType.DATA_MANIFEST, _other_stats), "aggregate-wrong"),
        (altered(ContentType.DATA_MANIFEST, _other_counts), "aggregate-wrong"),
        (altered(ContentType.DATA_MANIFEST, lambda entry: replace(entry, record_count=3)), "leaf-mismatch"),
        (altered(ContentType.DATA_MANIFEST, lambda entry: replace(entry, partition_spec_id=9)), "leaf-mismatch"),
        (altered(ContentType.DATA_MANIFEST, lambda entry: None), "live-set-wrong"),
        (altered(ContentType.DATA_MANIFEST, _lends_other_numbers), "entry-changed"),
        (altered(ContentType.DATA_MANIFEST, lambda entry: replace(entry, first_row_id=3)), "entry-changed"),
        (altered(ContentType.DELETE_MANIFEST, lambda entry: None), "live-set-wrong"),
        (
            altered(ContentType.DELETE_MANIFEST, lambda entry: replace(entry, referenced_file="metadata/leaves/x")),
            "leaf-mismatch",
        ),
        (altered(ContentType.MANIFEST_DV, lambda entry: None), "live-set-wrong"),
        (altered(ContentType.MANIFEST_DV, lambda entry: replace(entry, record_count=9)), "vector-corrupt"),
    ],
)
async def test_rows_that_changed_in_silence_are_found(change: Callable[[Entries], Entries], code: str) -> None:
    builder = await everything_table()
    await builder.append(31)
    key = await forged(builder, entries=change)
    assert (key, code) in await codes(builder)


async def with_leaf() -> tuple[TableBuilder, ContentEntry, ContentEntry]:
    """A table of a leaf of six files, the second one dead, and of a file in the root; rows of leaf and vector."""
    builder = TableBuilder(MemoryObjectStore())
    await builder.create()
    await builder.append_leaf(*range(6))
    await builder.remove(1)
    await builder.append(9)
    [leaf] = [row.entry for row in builder.state.live.leaf_rows.values()]
    [[vector]] = builder.state.live.manifest_vector_rows.values()
    return builder, leaf, vector.entry


def without_files(*numbers: int, leaf: bool = False) -> Callable[[RootHeader], RootHeader]:
    """The header of a root in which these files are not live any more, and perhaps the leaf."""
    files = [data_file(number) for number in numbers]

    def change(header: RootHeader) -> RootHeader:
        totals = header.totals
        live = replace(
            totals,
            data_files=totals.data_files - len(files),
            rows=totals.rows - sum(file.record_count for file in files),
            data_bytes=totals.data_bytes - sum(file.file_size_in_bytes for file in files),
            data_manifests=totals.data_manifests - leaf,
        )
        return replace(header, totals=live, snapshot=replace(header.snapshot, operation=Operation.OVERWRITE))

    return change


def shown(entry: ContentEntry, status: Status, builder: TableBuilder) -> ContentEntry:
    """A row that the head shows as ADDED or DELETED."""
    snapshot = builder.state.header.snapshot
    number = snapshot.sequence_number
    if status is Status.DELETED:
        return entry.with_version_info(replace(entry.version_info, status=status, snapshot_id=snapshot.snapshot_id))
    return entry.with_version_info(VersionInfo(status, snapshot.snapshot_id, number, number))


def vector_of(entry: ContentEntry, *ordinals: int) -> ContentEntry:
    """Another manifest vector of the same leaf."""
    content = DeletionVector(inline_content=encode_inline(BitMap(ordinals)))
    return replace(entry, deletion_vector=content, record_count=len(ordinals))


@pytest.mark.parametrize("ordinals", [None, (0, 2, 3, 4, 5)])
async def test_a_leaf_that_others_delete_as_a_whole_is_no_finding(ordinals: tuple[int, ...] | None) -> None:
    """With the vector that it had, or one of the difference: decision 0053."""
    builder, leaf, vector = await with_leaf()
    last = vector if ordinals is None else vector_of(vector, *ordinals)
    status = Status.DELETED if ordinals is None else Status.ADDED
    rows = [shown(leaf, Status.DELETED, builder), shown(last, status, builder)]

    def entries(known: Entries) -> Entries:
        return [*(entry for entry in known if entry.content_type is ContentType.DATA), *rows]

    await forged(builder, entries=entries, header=without_files(0, 2, 3, 4, 5, leaf=True))
    assert await findings_of(memory_of(builder), builder.table) == []
    await forged(builder, entries=entries, header=without_files(9))
    assert {code for _, code in await codes(builder)} == {"totals-wrong"}


async def test_a_vector_of_a_leaf_that_others_deleted_may_not_outlive_it() -> None:
    builder, leaf, vector = await with_leaf()
    gone = shown(leaf, Status.DELETED, builder)
    await builder.append(10)

    def is_file(entry: ContentEntry) -> bool:
        return entry.content_type is ContentType.DATA

    left = without_files(0, 2, 3, 4, 5, leaf=True)
    before = await forged(builder, back=1, entries=lambda known: [*filter(is_file, known), gone, vector], header=left)
    stored = await builder.store.get(before)
    assert stored is not None
    parent = decode_root(stored.body, name=before)

    def follows(header: RootHeader) -> RootHeader:
        kept = parent.header.earlier_bytes + parent.size_in_bytes
        return replace(left(header), parent_digest=parent.digest, earlier_bytes=kept)

    key = await forged(builder, entries=lambda known: [*filter(is_file, known), vector], header=follows)
    assert await codes(builder) == {(key, "vector-mismatch")}


async def test_several_manifest_vectors_of_one_status_are_read_as_their_union() -> None:
    builder, _, vector = await with_leaf()
    rows = [shown(vector_of(vector, ordinal), Status.ADDED, builder) for ordinal in (2, 3)]
    key = await forged(builder, entries=lambda known: [*known, *rows], header=without_files(2, 3))
    assert await findings_of(memory_of(builder), builder.table) == []
    rows[1] = shown(vector_of(vector, 2, 7), Status.ADDED, builder)
    await forged(builder, entries=lambda known: [*known, *rows], header=without_files(2))
    assert (key, "vector-mismatch") in await codes(builder)


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_leaf_that_carries_entries_over_and_shows_others_as_removed_is_no_finding(is_shown: bool) -> None:
    builder, leaf, _ = await with_leaf()
    entries = [entry for at, entry in enumerate(builder.state.leaves[leaf.location].entries()) if at != 1]
    carried = [entry.with_version_info(replace(entry.version_info, status=Status.EXISTING)) for entry in entries]
    carried[0] = shown(carried[0], Status.DELETED, builder)
    written = carried if is_shown else carried[1:]
    encoded = encode_leaf(written, builder.definition, leaf_uuid=uuid.UUID(int=8), content=LeafContent.DATA)
    memory_of(builder).place(key_of(builder.table, encoded.location), encoded.body)
    made = decode_leaf(encoded.body, location=encoded.location)
    aggregates = aggregates_of(made, builder.definition.spec_by_id(leaf.partition_spec_id).expr_ids)
    row = replace(
        shown(leaf, Status.ADDED, builder),
        location=encoded.location,
        record_count=len(written),
        file_size_in_bytes=len(encoded.body),
        manifest_stats=aggregates.manifest_stats,
        content_stats=aggregates.content_stats,
        first_row_id=None,
    )

    def others(known: Entries) -> Entries:
        return [*(entry for entry in known if entry.content_type is ContentType.DATA), row]

    await forged(builder, entries=others, header=without_files(0))
    found = {code for _, code in await codes(builder)}
    assert found == (set() if is_shown else {"live-set-wrong"})


async def test_a_vector_without_its_data_file_and_one_too_many_are_found() -> None:
    builder = await everything_table()
    await builder.append(50)
    await builder.delete_rows({50: [1]})
    await builder.append(51)

    def without_file(entries: Entries) -> Entries:
        return [entry for entry in entries if entry.location != location_of(50)]

    key = await forged(builder, entries=without_file)
    assert (key, "vector-mismatch") in await codes(builder)

    builder = await everything_table()
    vector = builder.state.vector_of(location_of(4))
    assert vector is not None
    doubled = replace(vector, location="data/elsewhere.puffin")
    key = await forged(builder, entries=lambda entries: [*entries, doubled])
    assert (key, "vector-mismatch") in await codes(builder)


async def test_a_vector_file_of_another_length_than_its_entry_says_is_named() -> None:
    builder = await everything_table()
    vector = builder.state.vector_of(location_of(22))
    assert vector is not None
    shorter = replace(vector, file_size_in_bytes=10)
    await forged(builder, entries=lambda entries: [shorter if entry == vector else entry for entry in entries])
    # the version before states it right, so the entry changed; a chain of this root alone names the file
    for version in range(builder.state.header.version):
        memory_of(builder).discard(root_key(builder.table, Version(version)))
    assert (key_of(builder.table, vector.location), "length-wrong") in await codes(builder)


async def test_a_missing_version_is_a_gap_and_the_rest_is_checked_on() -> None:
    builder = await everything_table()
    gone = root_key(builder.table, Version(3))
    memory_of(builder).discard(gone)
    key = await forged(builder, header=lambda header: replace(header, totals=replace(header.totals, rows=1)))
    assert await codes(builder) == {(gone, "version-gap"), (key, "totals-wrong")}


async def test_a_root_under_another_version_s_name_is_found() -> None:
    builder = await everything_table()
    first = await builder.store.get(root_key(builder.table, Version(1)))
    assert first is not None
    second = root_key(builder.table, Version(2))
    memory_of(builder).place(second, first.body)
    assert (second, "root-corrupt") in await codes(builder)


async def test_foreign_objects_among_the_roots_are_told_but_no_fault() -> None:
    builder = await everything_table()
    foreign = ObjectKey("demo/flights/metadata/roots/0000000000000000-5.avro")
    memory_of(builder).place(foreign, b"not ours")
    summary = CheckSummary()
    found = [
        finding
        async for finding in check_table(builder.store, builder.table, data_files=DataFiles.IGNORED, summary=summary)
    ]
    assert found == []
    assert summary.foreign_objects == [foreign]


async def test_a_summary_counts_each_object_once_and_progress_follows_the_roots() -> None:
    builder = await everything_table()
    summary, seen = CheckSummary(), list[int]()
    checked = check_table(
        builder.store,
        builder.table,
        data_files=DataFiles.IGNORED,
        summary=summary,
        progress=lambda so_far: seen.append(so_far.roots),
    )
    assert [finding async for finding in checked] == []
    versions = builder.state.header.version + 1
    assert (summary.roots, summary.roots_total, summary.head_version) == (versions, versions, versions - 1)
    stored = (await builder.store.list("demo/flights/metadata/leaves/")).keys
    assert summary.leaves == len(stored)
    assert summary.definitions == 1
    assert summary.vectors == 9  # one of them a manifest vector
    assert seen[:versions] == list(range(1, versions + 1))


async def test_files_with_rows_are_looked_for_and_measured_on_request() -> None:
    builder = await everything_table()
    store = memory_of(builder)
    missing = {found.object for found in await findings_of(store, builder.table, DataFiles.LISTED)}
    assert key_of(builder.table, location_of(0)) in missing
    for number in (*range(14), 20, 21, 22, 30, 40, 41, 42, 43, 60, 61, 62):
        store.place(key_of(builder.table, location_of(number)), bytes(100_000 + number))
    assert await findings_of(store, builder.table, DataFiles.READ) == []
    store.place(key_of(builder.table, location_of(7)), b"short")
    assert await findings_of(store, builder.table, DataFiles.LISTED) == []
    (finding,) = await findings_of(store, builder.table, DataFiles.READ)
    assert (finding.object, finding.code) == (key_of(builder.table, location_of(7)), "length-wrong")


async def test_a_table_that_does_not_exist_is_said_to_be_unknown() -> None:
    builder = await everything_table()
    with pytest.raises(Invalid, match=r"demo\.nothing"):
        await findings_of(memory_of(builder), TableName("demo.nothing"))


def test_every_code_of_a_finding_can_be_explained() -> None:
    found = {
        "version-gap", "parent-mismatch", "snapshot-wrong", "progress-lost", "entry-invalid", "entry-doubled",
        "entry-changed", "leaf-mismatch", "aggregate-wrong", "totals-wrong", "vector-mismatch", "live-set-wrong",
        "definition-mismatch", "length-wrong", "root-corrupt", "leaf-corrupt", "vector-corrupt",
        "definition-unreadable", "object-missing",
    }  # fmt: skip
    assert found <= CODES.keys()


async def test_a_writer_with_many_commits_far_apart_leaves_readable_roots() -> None:
    builder = TableBuilder()
    await builder.create()
    for number in range(150):
        await builder.append(2 * number, writer_id="ingest", writer_sequence=number)
        await builder.append(2 * number + 1)
    assert await codes(builder) == set()
