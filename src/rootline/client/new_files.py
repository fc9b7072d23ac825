"""Storing new data files of a table, naming them in an intent (one by one, or in leaf manifests), and appending them.

Owns: the order of an append (write, store, publish, wait), storing files and retrying, leaves for many files, the age
of files that another process stored. Does not own: Parquet (`data_file_writer`), the columns and bytes of leaf
manifests, called leaves (`leaf_codec`), the result of a PUT (`stored_objects`), publishing (`producer`).
Invariants: every file is in the store, with exactly these bytes, before the intent that names it is on the log. A leaf
belongs to one intent, so each call writes its own. A file gets the same entry whether it is named in a leaf or in the
intent. The intent carries a writer, so that publishing it twice commits it once. Nothing is deleted: a file that no
intent names is an orphan, deleted by the sweep.

Source: format page, "Leaf manifest" and the limits of intents.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rootline.client.data_file_writer import WrittenFile, write_files, write_rewritten_files
from rootline.client.given_rows import GivenRows
from rootline.client.producer import await_verdict, publish_intent
from rootline.client.session import Commit, Session, WriterStamp, commit_of, oldest_date
from rootline.client.time_travel import read_head
from rootline.maintenance.file_leaves import (
    LEAF_ENTRIES,
    cluster,
    clustered,
    columns_of,
    cut,
    cut_evenly,
    leaf_columns,
    sort_ids,
)
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, decode_leaf, encode_columns, encode_leaf
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Internal, Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import whole_number
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import newest_root, read_root
from rootline.storage.replanning import LEAST_WAIT_S
from rootline.storage.rows.metadata_columns import LINEAGE, may_state_lineage
from rootline.storage.stored_objects import DatedBody, StoredFile, store_dated, stored_dates, stored_files
from rootline.tree.proof.file_proof import statistics_of

T = TypeVar("T")
_ATTEMPTS: Final = 5
_RETRY: Final = RetryPolicy(delay_s_min=0.25, delay_s_max=2.0)
_AT_ONCE: Final = 8


async def upload_all(session: Session, table: TableName, files: Iterable[tuple[str, bytes]]) -> None:
    """Store every (location, body), several at the same time.

    Raises:
        Unavailable: `store-unavailable`, after several attempts; `store-denied`, after the first.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(location: str, body: bytes) -> None:
        async with slots:
            await _upload(session, table, location, body)

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for location, body in files:
                group.create_task(one(location, body))
    except* (Unavailable, Internal) as failures:
        failed = failures.exceptions[0]  # raised here, it would become a group of one
    if failed is not None:
        raise failed


async def _upload(session: Session, table: TableName, location: str, body: bytes) -> None:
    key = key_of(table, location)

    async def attempt() -> tuple[int, DatedBody]:
        return session.environment.now_ms(), await store_dated(session.store, key, body)

    begun_ms, stored = await repeated(session, attempt, f"{key}: not stored")
    if stored.body != body:
        raise Internal("invariant-broken", f"{key}: an object of this fresh name has other bytes than were written")
    session.uploads.note(table, location, begun_ms if stored.stored_ms is None else stored.stored_ms)


async def repeated(session: Session, attempt: Callable[[], Awaitable[T]], failure: str) -> T:
    """The result of an attempt that may be repeated, with a few repetitions if the store does not answer.

    Raises:
        Unavailable: `store-unavailable`, after several attempts, beginning with `failure`; `store-denied`, after the
            first.
    """
    reason = ""
    for failures in range(_ATTEMPTS):
        if failures:
            await asyncio.sleep(_RETRY.after_failure(failures, session.environment.jitter()))
        try:
            return await attempt()
        except Unavailable as error:
            if error.code == "store-denied":  # a retry does not help
                raise
            reason = error.message
    raise Unavailable("store-unavailable", f"{failure} in {_ATTEMPTS} attempts; last error: {reason}")


async def oldest_listed(session: Session, table: TableName, locations: Sequence[str]) -> int | None:
    """The upload time of the oldest of these files, in milliseconds since the epoch, or `None` if it is unknown. The
    store is asked only for many files that were not all uploaded here, and only if the table needs the time. The
    coordinator asks about few files itself.

    Raises:
        Invalid: `file-missing`, one of them is not in the store.
        Unavailable: `store-unavailable`.
    """
    from rootline.tree.commit import arrival_rules

    known = session.uploads.oldest(table, locations)
    if known is not None or len(locations) <= arrival_rules.ASKED_MAX:
        return known
    root = await newest_root(session.store, table)
    if root is None or not root.header.locations.horizon_ms:
        return None
    own = [location for location in dict.fromkeys(locations) if not is_absolute(location)]
    if len(own) <= arrival_rules.ASKED_MAX:
        return None
    dates = await stored_dates(session.store, table, own)
    absent = next((location for location, date in dates.items() if date is None), None)
    if absent is not None:
        raise Invalid("file-missing", f"{absent!r} does not exist, or cannot be read: upload it first")
    return oldest_date(dates.values())


async def dated_files(session: Session, table: TableName, locations: Sequence[str]) -> dict[str, StoredFile]:
    """Ask the store for the length and date of files that others uploaded. An intent that adds them and is published
    by this session claims the oldest date, so the coordinator need not ask.

    Only a table whose root has a horizon needs it. Raises the errors of `stored_files`.
    """
    found = await stored_files(session.store, table, list(dict.fromkeys(locations)))
    for location, file in found.items():
        if file.stored_ms is not None:
            session.uploads.note(table, location, file.stored_ms)
    return found


FileList: TypeAlias = Sequence[DataFile] | pa.Table
"""Files one by one, or a table with the columns of `rootline.maintenance.file_leaves.leaf_columns`."""
LEAF_FILES_PROPERTY: Final = "rootline.append.leaf-files"
LEAF_FILES_DEFAULT: Final = 1_000
"""The number of files in one append from which a writer lists them in leaves. A root with so many entries would be
flushed anyway.
"""
INTENT_BYTES_MAX: Final = 500_000
"""The approximate maximum of an intent's file descriptions, in bytes: half of an intent's maximum size."""
_FILE_BYTES: Final = 64
_STATISTIC_BYTES: Final = 80


def leaf_files_of(properties: Mapping[str, str]) -> int:
    """The number of files in one append from which a writer lists them in leaves, not in the intent."""
    return whole_number(properties, LEAF_FILES_PROPERTY, LEAF_FILES_DEFAULT)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """An intent's `add_data_files` and `add_manifests`. One of them is empty."""

    files: tuple[DataFile, ...] = ()
    leaves: tuple[AddedManifest, ...] = ()


@dataclass(frozen=True, slots=True)
class _MadeLeaf:
    encoded: EncodedLeaf
    entries: int
    spec_id: int
    content_type: ContentType = ContentType.DATA_MANIFEST

    @property
    def manifest(self) -> AddedManifest:
        return AddedManifest(
            location=self.encoded.location,
            content_type=self.content_type,
            file_size_in_bytes=len(self.encoded.body),
            record_count=self.entries,
            partition_spec_id=self.spec_id,
        )


def are_many(files: FileList, definition: TableDefinition) -> bool:
    """Whether `files` must be written into leaves."""
    least = leaf_files_of(definition.properties)
    if len(files) >= least or isinstance(files, pa.Table):
        return len(files) >= least
    return sum(map(_size_of, files)) > INTENT_BYTES_MAX


async def for_intent(session: Session, table: TableName, definition: TableDefinition, files: FileList) -> NewFiles:
    """`files` in the form for an intent. Many files are listed in leaves, which are stored before this returns.

    Raises:
        Invalid: `rows-invalid`, an Arrow table lacks a column that describes files; `statistics-invalid`,
            `statistics-missing`.
        Unavailable: `store-unavailable`.
    """
    if are_many(files, definition):
        return NewFiles(leaves=await write_leaves(session, table, definition, files))
    if isinstance(files, pa.Table):
        files = await asyncio.to_thread(_one_by_one, files, definition)
    return NewFiles(files=tuple(files))


async def write_leaves(
    session: Session, table: TableName, definition: TableDefinition, files: FileList, spec_id: int | None = None
) -> tuple[AddedManifest, ...]:
    """Write leaves of `files` and store them, for the `add_manifests` of one intent.

    `spec_id`: the spec of files that are given as columns, by default the table's. Raises the errors of `for_intent`.
    """

    async def of_columns(piece: pa.Table, spec: int) -> AddedManifest:
        leaf_uuid = next(_fresh_uuids(session))
        made = await asyncio.to_thread(encode_columns, piece, leaf_uuid=leaf_uuid, content=LeafContent.DATA)
        return await _stored_leaf(session, table, _MadeLeaf(made, len(piece), spec))

    if not len(files):
        return ()
    if isinstance(files, pa.Table):
        spec = definition.default_spec_id if spec_id is None else spec_id
        columns = await asyncio.to_thread(_clustered_columns, files, definition, spec)
        written = [of_columns(piece, spec) for piece in cut_evenly(columns)]
    else:
        written = []
        for spec, of_spec in _by_spec(files):
            listed = await asyncio.to_thread(_listed, of_spec, definition, spec)
            if isinstance(listed, pa.Table):
                written += [of_columns(piece, spec) for piece in cut_evenly(listed)]
            else:
                written += [_leaf_of(session, table, definition, piece) for piece in cut(listed, LEAF_ENTRIES)]
    named = files.column("location").to_pylist() if isinstance(files, pa.Table) else [file.location for file in files]
    leaves, oldest_ms = await asyncio.gather(asyncio.gather(*written), oldest_listed(session, table, named))
    session.uploads.note_leaves(table, [leaf.location for leaf in leaves], oldest_ms)
    return tuple(leaves)


async def write_vector_leaves(
    session: Session, table: TableName, definition: TableDefinition, vectors: Sequence[ContentEntry]
) -> tuple[AddedManifest, ...]:
    """Write leaves of deletion vectors and store them. The vectors' Puffin files are in the store already."""
    written = []
    for spec in sorted({entry.partition_spec_id for entry in vectors}):
        entries = cluster([entry for entry in vectors if entry.partition_spec_id == spec], definition, spec)
        written += [
            _leaf_of(session, table, definition, piece, LeafContent.DELETE) for piece in cut(entries, LEAF_ENTRIES)
        ]
    leaves = tuple(await asyncio.gather(*written))
    oldest_ms = session.uploads.oldest(table, {entry.location for entry in vectors})
    session.uploads.note_leaves(table, [leaf.location for leaf in leaves], oldest_ms)
    return leaves


async def _leaf_of(
    session: Session,
    table: TableName,
    definition: TableDefinition,
    piece: Sequence[ContentEntry],
    content: LeafContent = LeafContent.DATA,
) -> AddedManifest:
    """Store a leaf of entries of one spec."""
    leaf_uuid = next(_fresh_uuids(session))
    made = await asyncio.to_thread(encode_leaf, piece, definition, leaf_uuid=leaf_uuid, content=content)
    kind = ContentType.DATA_MANIFEST if content is LeafContent.DATA else ContentType.DELETE_MANIFEST
    return await _stored_leaf(session, table, _MadeLeaf(made, len(piece), piece[0].partition_spec_id, kind))


async def _stored_leaf(session: Session, table: TableName, made: _MadeLeaf) -> AddedManifest:
    await upload_all(session, table, [(made.encoded.location, made.encoded.body)])
    return made.manifest


def _clustered_columns(files: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    return clustered(leaf_columns(files, definition, spec_id), definition, spec_id)


def _by_spec(files: Sequence[DataFile]) -> list[tuple[int, list[DataFile]]]:
    found: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        found[file.partition_spec_id].append(file)
    return sorted(found.items())


def _listed(files: Sequence[DataFile], definition: TableDefinition, spec_id: int) -> pa.Table | list[ContentEntry]:
    """The entries of files of one spec, clustered by their bounds. They are columns if all statistics are valid.
    Otherwise they are built one by one, so that the error names the file.
    """
    from rootline.tree.proof.leaf_proof import statistics_fault

    columns = columns_of(files, definition)
    if columns is not None:
        leaf = leaf_columns(columns, definition, spec_id)
        statistics = leaf.column(CONTENT_STATS).chunk(0) if CONTENT_STATS in leaf.column_names else None
        spec_ids = definition.spec_by_id(spec_id).expr_ids
        if statistics_fault(statistics, leaf.column("record_count").chunk(0), definition, spec_ids) is None:
            return clustered(leaf, definition, spec_id)
    codec = EntryCodec.of_definition(definition)
    entries = [entry_of(file, definition, codec) for file in files]
    return cluster(entries, definition, spec_id) if sort_ids(definition, spec_id) else entries


def entry_of(file: DataFile, definition: TableDefinition, codec: EntryCodec) -> ContentEntry:
    """The entry of a file. Raises `Invalid`: `statistics-missing`, `statistics-invalid`, `spec-unknown`."""
    return ContentEntry(
        content_type=ContentType.DATA,
        location=file.location,
        file_format=file.file_format,
        version_info=VersionInfo(Status.ADDED),
        partition_spec_id=file.partition_spec_id,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        key_metadata=file.key_metadata,
        split_offsets=file.split_offsets,
        content_stats=statistics_of(file, definition, codec),
    )


def _one_by_one(files: pa.Table, definition: TableDefinition) -> list[DataFile]:
    """Descriptions of a few files that are given as columns."""
    if not len(files):
        return []
    codec = EntryCodec.of_definition(definition).statistics
    columns = leaf_columns(files, definition, definition.default_spec_id)
    encoded = encode_columns(columns, leaf_uuid=uuid.UUID(int=0), content=LeafContent.DATA)
    return [
        DataFile(
            location=entry.location,
            file_format=entry.file_format,
            partition_spec_id=entry.partition_spec_id,
            record_count=entry.record_count,
            file_size_in_bytes=entry.file_size_in_bytes or 0,
            content_stats=codec.encode(entry.content_stats),
            stats_schema=codec.fingerprint,
            sort_order_id=entry.sort_order_id,
            split_offsets=entry.split_offsets,
            key_metadata=entry.key_metadata,
        )
        for entry in decode_leaf(encoded.body, location=encoded.location).entries()
    ]


def _size_of(file: DataFile) -> int:
    statistics = len(file.content_stats or b"") + _STATISTIC_BYTES * len(file.statistics)
    return _FILE_BYTES + len(file.location) + statistics


def _fresh_uuids(session: Session) -> Iterator[uuid.UUID]:
    """Yield new ids, each used only once."""
    while True:
        yield uuid.UUID(hex=session.environment.fresh_id())


async def write_and_store(
    session: Session, table: TableName, definition: TableDefinition, data: pa.Table | GivenRows, target_bytes: int
) -> list[DataFile]:
    """Write data files of `data` and store them."""

    def write(ids: Iterator[uuid.UUID]) -> list[WrittenFile]:
        rows = data if isinstance(data, pa.Table) else data.for_schema(definition.schema)
        return write_files(rows, definition, ids, target_file_size_bytes=target_bytes)

    return await store_written(session, table, write)


async def write_and_store_kept(
    session: Session, table: TableName, definition: TableDefinition, rows: pa.Table, target_bytes: int
) -> list[DataFile]:
    """Write and store data files of rows that the table already has, with their lineage.

    A table that has a user column with a name of the lineage cannot store it, so the rows get a new lineage.
    """
    if LINEAGE[0] not in rows.column_names or not may_state_lineage(definition):
        return await write_and_store(session, table, definition, rows, target_bytes)
    return await store_written(
        session,
        table,
        lambda ids: write_rewritten_files(rows, definition, ids, target_file_size_bytes=target_bytes),
    )


async def store_written(
    session: Session, table: TableName, write: Callable[[Iterator[uuid.UUID]], list[WrittenFile]]
) -> list[DataFile]:
    """Run `write` in a thread with fresh ids for file names, and store the files that it returns."""
    written = await asyncio.to_thread(write, _fresh_uuids(session))
    await upload_all(session, table, ((file.data_file.location, file.body) for file in written))
    return [file.data_file for file in written]


async def commit_intent(session: Session, stamp: WriterStamp, intent: Intent, *, timeout_s: float) -> Commit:
    """Publish `intent` and wait for its verdict.

    Raises:
        Invalid: it was rejected.
        OutcomeUnknown: `verdict-timeout`.
    """
    return commit_of(await verdict_on(session, stamp, intent, timeout_s=timeout_s))


async def verdict_on(
    session: Session, stamp: WriterStamp, intent: Intent, *, timeout_s: float, content: str = ""
) -> Verdict:
    """Publish `intent` and return its verdict, which may be a rejection.

    `content`: text by which the ledger recognizes another intent under the same writer and sequence.

    Raises:
        Unavailable: nothing was appended to the log.
        OutcomeUnknown: `verdict-timeout`, also if the log stopped responding after the intent was appended.
    """
    stamped = stamp.stamp(intent)
    began_s = session.environment.monotonic_s()
    position = await publish_intent(session, stamped, content)
    published_s = session.environment.monotonic_s() - began_s
    wait_s = max(timeout_s - published_s, min(timeout_s, LEAST_WAIT_S))  # the log may have been slow to open
    try:
        return await await_verdict(session, stamped, position, timeout_s=wait_s, published_s=published_s)
    except Unavailable as error:
        raise OutcomeUnknown(
            "verdict-timeout",
            f"{intent.table}: intent {intent.intent_id} is on the log, and its verdict cannot be read: {error.message}",
        ) from error


async def append_files(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    definition: TableDefinition,
    files: FileList,
    *,
    timeout_s: float,
    summary: Mapping[str, str] | None = None,
) -> Commit:
    """Commit files that are already in the store. Many files are written into leaves first."""
    new = await for_intent(session, table, definition, files)
    intent = Intent(
        intent_id=session.environment.fresh_id(),
        table=table,
        table_uuid=definition.table_uuid,
        kind=IntentKind.APPEND,
        schema_id=definition.current_schema_id,
        add_data_files=new.files,
        add_manifests=new.leaves,
        summary=dict(summary or {}),
    )
    verdict = await verdict_on(session, stamp, intent, timeout_s=timeout_s, content=stamp.content)
    return await appended(session, stamp, intent, verdict, _rows_of(files))


async def appended(session: Session, stamp: WriterStamp, intent: Intent, verdict: Verdict, rows: int) -> Commit:
    """The result of an append of `rows` rows. Raises `Invalid`: it was rejected.

    If another intent with the writer and the number of `stamp` was committed before, it is the version of that intent,
    or the newest one if the table no longer records that.
    """
    is_duplicate = stamp.is_supplied and verdict.kind is VerdictKind.DUPLICATE
    if is_duplicate and not await _is_of_own_copy(session, intent, verdict):
        if verdict.version is None:
            return await nothing_appended(session, TableName(verdict.table))
        return replace(commit_of(verdict), added_rows=0, deleted_rows=0, is_new=False)
    return replace(commit_of(verdict), added_rows=rows, deleted_rows=0)


async def _is_of_own_copy(session: Session, intent: Intent, verdict: Verdict) -> bool:
    """Whether the log has the intent twice, because it was sent a second time, and the first copy was committed."""
    if verdict.version is None:
        return False
    try:
        root = await read_root(session.store, TableName(verdict.table), Version(verdict.version))
    except Corrupt:  # it has expired, so it is older than this intent
        return False
    own = {file.location for file in intent.add_data_files} | {leaf.location for leaf in intent.add_manifests}
    return any(row.entry.location in own for row in root.rows)


def _rows_of(files: FileList) -> int:
    if isinstance(files, pa.Table):
        return int(pc.sum(files.column("record_count")).as_py() or 0)
    return sum(file.record_count for file in files)


async def nothing_appended(session: Session, table: TableName) -> Commit:
    """The result of an append or a change without rows: the newest version, with `is_new=False`."""
    header = (await read_head(session.store, table)).header
    snapshot = header.snapshot
    return Commit(header.version, snapshot.snapshot_id, snapshot.sequence_number, 0, 0, is_new=False)
