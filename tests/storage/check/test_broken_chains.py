"""A check finds what is wrong although every digest is right: roots that a faulty writer could have made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rootline.schemas.bytes.root.root_codec import Row, decode_root, encode_root, seal
from rootline.schemas.codes.error_codes import CODES
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey, SequenceNumber, SnapshotId, TableName, Version
from rootline.schemas.object_keys import key_of, root_key
from rootline.schemas.root_header import CommittedRun, Operation, RootHeader
from rootline.schemas.statistics import FieldStatistics
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import CheckSummary, DataFiles
from tests.maintenance.table_builder import TableBuilder, location_of
from tests.storage.check.damaged_table import everything_table, findings_of, memory_of

pytestmark = pytest.mark.slow

Entries = list[ContentEntry]


async def forged(
    builder: TableBuilder,
    *,
    header: Callable[[RootHeader], RootHeader] = lambda header: header,
    entries: Callable[[Entries], Entries] = lambda entries: entries,
) -> ObjectKey:
    """The head, made anew with another header or other entries, and all digests right."""
    version = builder.state.header.version
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


def snapshot_with(**changes: object) -> Callable[[RootHeader], RootHeader]:
    return lambda header: replace(header, snapshot=replace(header.snapshot, **changes))  # type: ignore[arg-type]


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
        (snapshot_with(parent_id=SnapshotId(7)), "parent-mismatch"),
        (snapshot_with(snapshot_id=SnapshotId(7)), "snapshot-wrong"),
        (snapshot_with(timestamp_ms=1_700_000_000_000), "snapshot-wrong"),
        (snapshot_with(sequence_number=SequenceNumber(1)), "snapshot-wrong"),
        (lambda header: replace(header, next_row_id=0), "snapshot-wrong"),
        (lambda header: replace(header, offsets=()), "progress-lost"),
        (
            lambda header: replace(header, offsets=(header.offsets[0]._replace(next_offset=1),)),
            "progress-lost",
        ),
        (lambda header: replace(header, ledger={}), "progress-lost"),
        (
            lambda header: replace(
                header,
                ledger={
                    writer: replace(record, committed=(CommittedRun(1, 1, header.version, 0),))
                    for writer, record in header.ledger.items()
                },
            ),
            "progress-lost",
        ),
        (
            lambda header: replace(
                header,
                outcomes=replace(
                    header.outcomes,
                    runs=(header.outcomes.runs[0]._replace(version=Version(3)), *header.outcomes.runs[1:]),
                ),
            ),
            "progress-lost",
        ),
        (lambda header: replace(header, tags={"unseen": 1}), "tags-wrong"),
        (lambda header: replace(header, restored_at=SequenceNumber(1)), "snapshot-wrong"),
        (lambda header: replace(header, totals=replace(header.totals, rows=1)), "totals-wrong"),
        (snapshot_with(operation=Operation.REPLACE), "live-set-wrong"),
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


async def test_two_manifest_vectors_of_one_status_are_found() -> None:
    builder = await everything_table()
    key = await forged(
        builder,
        entries=lambda entries: [
            *entries,
            *(entry for entry in entries if entry.content_type is ContentType.MANIFEST_DV),
        ],
    )
    assert (key, "vector-mismatch") in await codes(builder)


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
