"""Adding rows or files to a table.

Owns: the order of an append: write, store, publish, wait. Does not own: Parquet (`data_file_writer`), the store's
answers (`upload`).
Invariants: every file is in the store before the intent that names it is on the log; the intent carries a writer, so
that resending it commits it once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rootline.client.read.time_travel import read_head
from rootline.client.session.commit import Commit, commit_of
from rootline.client.session.session import Session
from rootline.client.session.upload import upload_all
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.data_file_writer import WrittenFile, write_files, write_rewritten_files
from rootline.client.write.given_rows import GivenRows
from rootline.client.write.intent_publisher import await_verdict, publish_intent
from rootline.client.write.new_files import FileList, for_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict
from rootline.storage.rows.metadata_columns import LINEAGE, may_state_lineage


def _fresh_uuids(session: Session) -> Iterator[uuid.UUID]:
    """Ids that no one else ever gets, one after the other."""
    while True:
        yield uuid.UUID(hex=session.environment.fresh_id())


async def write_and_store(
    session: Session, table: TableName, definition: TableDefinition, data: pa.Table | GivenRows, target_bytes: int
) -> list[DataFile]:
    """Data files of `data`, in the store."""

    def write(ids: Iterator[uuid.UUID]) -> list[WrittenFile]:
        rows = data if isinstance(data, pa.Table) else data.for_schema(definition.schema)
        return write_files(rows, definition, ids, target_file_size_bytes=target_bytes)

    return await store_written(session, table, write)


async def write_and_store_kept(
    session: Session, table: TableName, definition: TableDefinition, rows: pa.Table, target_bytes: int
) -> list[DataFile]:
    """Write and store data files of `rows` that the table has already. Lineage among their columns is kept.

    A table whose own columns have these names cannot state the lineage of its rows, so they get a new one.
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
    """The files that `write` makes, given fresh ids for their names, in the store; `write` runs in a thread."""
    written = await asyncio.to_thread(write, _fresh_uuids(session))
    await upload_all(session, table, ((file.data_file.location, file.body) for file in written))
    return [file.data_file for file in written]


async def commit_intent(session: Session, stamp: WriterStamp, intent: Intent, *, timeout_s: float) -> Commit:
    """Publish `intent`, wait for its verdict.

    Raises:
        Invalid: it was rejected.
        OutcomeUnknown: `verdict-timeout`.

    """
    return commit_of(await verdict_on(session, stamp, intent, timeout_s=timeout_s))


async def verdict_on(session: Session, stamp: WriterStamp, intent: Intent, *, timeout_s: float) -> Verdict:
    """Publish `intent`, and return its verdict, a rejection too. Raises `OutcomeUnknown` (`verdict-timeout`)."""
    stamped = stamp.stamp(intent)
    deadline_s = session.environment.monotonic_s() + timeout_s
    position = await publish_intent(session, stamped)
    rest_s = deadline_s - session.environment.monotonic_s()
    return await await_verdict(session, stamped, position, timeout_s=rest_s)


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
    """Commit files that the store holds already; many go into leaves of their own first."""
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
    commit = await commit_intent(session, stamp, intent, timeout_s=timeout_s)
    return replace(commit, added_rows=_rows_of(files), deleted_rows=0)


def _rows_of(files: FileList) -> int:
    if isinstance(files, pa.Table):
        return int(pc.sum(files.column("record_count")).as_py() or 0)
    return sum(file.record_count for file in files)


async def nothing_appended(session: Session, table: TableName) -> Commit:
    """The result of an append of no rows: the newest version, which it did not make."""
    header = (await read_head(session.store, table)).header
    snapshot = header.snapshot
    return Commit(header.version, snapshot.snapshot_id, snapshot.sequence_number, 0, 0, is_new=False)
