"""A table, as a program sees it.

Owns: the public methods of a table that read and change what is in it. Does not own: those that look back in time
(`table_history`), how each is carried out (its neighbours in this folder).
Invariants: holds no connection, only names one, so it may be pickled, shared between threads, and kept as long as its
lake is open; every change waits for its verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES
from rootline.client.producer import DEFAULT_TIMEOUT_S
from rootline.client.session import Commit, OpenLake, Operation, Session, T
from rootline.client.table_history import TableHistory
from rootline.client.time_travel import Moment, PointInTime, read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedManifest, Isolation
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

    from rootline.catalog.exporter import ExportedTable
    from rootline.client.alter_table import TableChange
    from rootline.client.new_files import FileList
    from rootline.client.scan import Scan
    from rootline.client.version_history import TreeView

_STALE_CODES: Final = frozenset(
    ("table-uuid-mismatch", "table-dropped", "table-uuid-missing", "table-replaced", "schema-unknown", "spec-unknown")
)
"""Rejections after which a table's definition is read again before the next change."""


class TableHandle(TableHistory):
    """A table: made by `lake.table` and `lake.create_table`.

    May be shared between threads and pickled. Changes wait for their verdict; every method that takes `timeout_s`
    waits for it so many seconds at the most. Beside the errors that each names, methods raise `Unavailable` (store or
    log cannot be reached) and `Corrupt` (an object is missing, or not what was written).
    """

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Add rows: write Parquet files, store them, publish one intent, wait for its verdict.

        Args:
            data: a data frame of pandas or Polars, whatever exports Arrow, a list of dicts, a dict of columns.
                Columns are found by name; values of another type are cast where none of them changes.
            merge_schema: add columns that the table lacks, at every depth, and widen types (int to long, float to
                double, decimals), in the same commit; for Python's own numbers only if a value needs it.
            timeout_s: how many seconds to wait for the verdict.
            target_file_size_bytes: about how large a data file gets.
            summary: text to text, kept in the snapshot.

        Returns:
            The commit that added the rows, and how many; of no rows the newest version, and nothing is published.

        Raises:
            Invalid: `rows-invalid`, `definition-invalid` of a new column, or the intent was rejected.
            OutcomeUnknown: `verdict-timeout`; the rows may still be committed. Appending the same data again may
                double them: where that matters, publish with a `producer` and keep its receipt.

        """
        from rootline.client.data_file_writer import check_names
        from rootline.client.given_rows import GivenRows
        from rootline.client.merged_rows import append_merged, is_lacking
        from rootline.client.new_files import append_files, nothing_appended, write_and_store

        merges = checks.truth(merge_schema, "merge_schema")
        wait_s, target_bytes, kept = checks.write_options(timeout_s, target_file_size_bytes, summary)
        given = GivenRows.of(data)

        async def operation(session: Session) -> Commit:
            definition = await self._definition(session)
            if not given.num_rows:  # and then the types of its columns say nothing
                if not merges:
                    check_names(given.names, definition)
                return await nothing_appended(session, self.name)
            if merges and await asyncio.to_thread(is_lacking, given, definition):
                self._known = None
                return await append_merged(
                    session, self._lake.stamp, self.name, given, target_bytes, timeout_s=wait_s, summary=kept
                )
            try:
                files = await write_and_store(session, self.name, definition, given, target_bytes)
            except Invalid:
                self._known = None  # perhaps its columns came after it was read
                definition = await self._definition(session)
                files = await write_and_store(session, self.name, definition, given, target_bytes)
            return await append_files(
                session, self._lake.stamp, self.name, definition, files, timeout_s=wait_s, summary=kept
            )

        return self._changing(operation)

    def alter(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> TableChange:
        """Change the definition: `with table.alter() as change: change.add_column("gate", "string")`.

        Columns, partition fields, the sort order and properties can change.

        All that the block names is committed together when it ends, and planned again when another change came first.
        Its end raises `Invalid`: `evolution-illegal`, `definition-invalid`.
        """
        from rootline.client.alter_table import TableChange, commit_change

        wait_s = checks.seconds(timeout_s)

        def publish(change: TableChange) -> Commit | None:
            self._known = None
            return self._changing(lambda session: commit_change(session, self._lake.stamp, change, timeout_s=wait_s))

        return TableChange(self.name, publish)

    def add_files(
        self,
        files: FileList,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Add Parquet files that are in the table's folder already.

        Many files (1,000, or what table property `rootline.append.leaf-files` says) go into leaf manifests, which are
        written first; the intent names those.

        Args:
            files: a sequence of `rootline.DataFile` (`DataFile.from_parquet` describes one); for tens of thousands,
                an Arrow table with `location`, `record_count`, `file_size_in_bytes`, and `content_stats` with a struct
                `_<id>` for each column.
            timeout_s: how many seconds to wait for the verdict.
            summary: text to text, kept in the snapshot.

        Returns:
            The commit that added the files, and their rows; of no files the newest version, and nothing is published.

        Raises:
            Invalid: the intent was rejected: `file-already-live`, `location-invalid`, `statistics-missing`, …
            OutcomeUnknown: `verdict-timeout`; adding the same files again is safe: they are committed once.

        """
        from rootline.client.new_files import append_files, nothing_appended

        wait_s, _, kept = checks.write_options(timeout_s, DEFAULT_TARGET_BYTES, summary)
        given = checks.data_files(files)

        async def operation(session: Session) -> Commit:
            if not len(given):
                return await nothing_appended(session, self.name)
            definition = await self._definition(session)
            return await append_files(
                session, self._lake.stamp, self.name, definition, given, timeout_s=wait_s, summary=kept
            )

        return self._changing(operation)

    def write_leaves(self, files: FileList, *, spec_id: int | None = None) -> tuple[AddedManifest, ...]:
        """Write leaf manifests of data files, for the `add_manifests` of an intent that a `producer` publishes.

        Args:
            files: as in `add_files`.
            spec_id: the partition spec of files given as an Arrow table; without it, the table's default spec.

        Returns:
            The leaves, which are in the store then; use them in one intent only.

        Raises:
            Invalid: `rows-invalid`, `statistics-invalid`, `statistics-missing`.
            Unavailable: `store-unavailable`.

        """
        from rootline.client.new_files import write_leaves

        given, spec = checks.data_files(files), checks.whole_or_none(spec_id, "spec_id", least=0)

        async def operation(session: Session) -> tuple[AddedManifest, ...]:
            return await write_leaves(session, self.name, await self._definition(session), given, spec)

        return self._changing(operation)

    def overwrite(
        self,
        data: Any,
        *,
        where: str | None = None,
        merge_schema: bool = False,
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit | None:
        """Replace the rows that match `where` by `data`, in one commit. Without `where`, replace all rows.

        Files that match in part are rewritten without the rows that match. When another change was committed first,
        this one is planned again from the new version, up to eight times.

        Args:
            data: the new rows, as in `append`. May be empty.
            where: a filter, such as `carrier = 'UA'`, of columns that the table has.
            merge_schema: as in `append`.
            isolation: `serializable`: rows added after the plan that may match are a conflict. `snapshot`: they stay,
                which gets through under a steady stream of appends.
            timeout_s: how many seconds planning and waiting may take.
            target_file_size_bytes: about how large a data file gets.
            summary: text to text, kept in the snapshot.

        Returns:
            The commit, with the numbers of rows added and deleted. `None` when `data` is empty and no file has a row
            that matches. Empty `data` deletes: a commit without rows added.

        Raises:
            Invalid: `filter-invalid`, `rows-invalid`, or a rejection such as `isolation-conflict` that planning again
                did not mend.
            OutcomeUnknown: `verdict-timeout`.

        """
        from rootline.client.given_rows import GivenRows
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_changes import overwrite_rows

        options = ChangeOptions.of(isolation, timeout_s, target_file_size_bytes, summary)
        rows, by, merges = GivenRows.of(data), checks.filter_text(where), checks.truth(merge_schema, "merge_schema")
        return self._changing(
            lambda session: overwrite_rows(session, self._lake.stamp, self.name, rows, by, options, merge_schema=merges)
        )

    def delete_where(
        self,
        where: str,
        *,
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        summary: Mapping[str, str] | None = None,
    ) -> Commit | None:
        """Delete the rows that match `where`, in one commit. No data file is rewritten: vectors mark the rows.

        Arguments are as in `overwrite`.

        Returns:
            The commit, with the number of rows; `None` when no row matches: nothing is published then, and there is no
            new version.

        Raises:
            Invalid: `filter-invalid`, or a rejection such as `isolation-conflict` that planning again did not mend.
            OutcomeUnknown: `verdict-timeout`; deleting again is safe.

        """
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_changes import delete_rows

        options = ChangeOptions.of(isolation, timeout_s, DEFAULT_TARGET_BYTES, summary)
        deleted = checks.deleting_filter(where)
        return self._changing(lambda session: delete_rows(session, self._lake.stamp, self.name, deleted, options))

    def rewrite(
        self,
        *,
        where: str | None = None,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        summary: Mapping[str, str] | None = None,
    ) -> tuple[Commit, ...]:
        """Write the files that may match `where` again: small ones together, without the rows that are deleted.

        No row changes, and no `_row_id`; no change feed shows it. Each group of files is one commit. Deletes that are
        committed meanwhile are not undone: they reach the new files, or the group is rejected and not tried again.

        Args:
            where: a filter; without it, all files.
            target_file_size_bytes: about how large a data file gets.
            timeout_s: how many seconds to wait for the verdict on each group.
            summary: text to text, kept in the snapshots.

        Returns:
            The commits; none when no file is worth it.

        Raises:
            Invalid: `filter-invalid`, or a rejection, such as `stale-source`: what came before it is committed.
            OutcomeUnknown: `verdict-timeout`, of one group.

        """
        from rootline.client.row_changes import RewriteOptions, rewrite_files

        options = RewriteOptions(*checks.write_options(timeout_s, target_file_size_bytes, summary))
        chosen = checks.filter_text(where)
        return self._changing(lambda session: rewrite_files(session, self._lake.stamp, self.name, chosen, options))

    def scan(
        self,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Moment | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> Scan:
        """Rows of the table; nothing is read before `.to_arrow()`, `.to_pandas()`, `.count()` or the like.

        Polars, DuckDB, pyarrow and others also take the scan itself, as a stream (`__arrow_c_stream__`).

        Args:
            where: a filter, such as `dep_delay > 60 and carrier = 'UA'`, or pyiceberg's; without it, every row.
            columns: names, in the wanted order; also `_file`, `_pos` and the other metadata columns; without it, all
                columns of the table.
            limit: at most so many rows, whichever come first; files are read until there are enough.
            version: as of this version.
            timestamp: as of this moment: datetime or ISO 8601 text with its offset, or milliseconds since the epoch.
            snapshot_id: as of this snapshot.
            tag: as of the version that has this tag.

        At most one of the last four; without them, the newest version. They are looked up when rows are asked for.

        Raises:
            Invalid: `setting-invalid`, several of the last four.

        """
        from rootline.client.scan import Scan

        return Scan(
            self._lake.holder,
            self.name,
            checks.scan_filter(where),
            None if columns is None else checks.texts(columns, "columns"),
            PointInTime(version, snapshot_id, timestamp, tag),
            checks.whole_or_none(limit, "limit", least=0),
        )

    def schema(self) -> pa.Schema:
        """The Arrow schema of the newest version's rows, as `scan().schema()`. `definition().schema` is Iceberg's."""
        return self.scan().schema()

    def definition(self) -> TableDefinition:
        """The newest version's definition: schemas, expressions, partition specs, properties. It is read again."""

        async def operation(session: Session) -> TableDefinition:
            self._known = None
            return await self._definition(session)

        return self._lake.holder.run(operation)

    def tree(self, *, version: int | None = None) -> TreeView:
        """The metadata tree of a version (the newest without one), to be shown as text, as SVG, or by a notebook.

        Raises:
            Invalid: `version-unknown`.

        """
        from rootline.client.version_history import read_tree

        return self._lake.holder.run(lambda session: read_tree(session.store, self.name, PointInTime(version=version)))

    def export(self, format_version: int | str | None = None, version: int | None = None) -> ExportedTable:
        """Write Iceberg metadata of a version, for other engines; what was written before is only looked up.

        Args:
            format_version: 2 or 3; without it, what the table's property `rootline.export.format` says, else 3.
            version: of the table; without it, the newest.

        Returns:
            Where the metadata.json is, its bytes, and the requests that it took.

        Raises:
            Invalid: `version-unknown`, `export-unsupported`, `setting-invalid`.

        """
        from rootline.client.iceberg_tables import export_table

        exported = checks.whole_or_none(version, "version")
        return self._lake.holder.run(lambda session: export_table(session, self.name, format_version, exported))

    def __repr__(self) -> str:
        return f"<TableHandle {self.name} of {self._lake!r}>"

    def __getstate__(self) -> tuple[OpenLake, TableName]:
        return self._lake, self.name

    def __setstate__(self, state: tuple[OpenLake, TableName]) -> None:
        self._lake, self.name, self._known = *state, None

    def _changing(self, operation: Operation[T]) -> T:
        try:
            return self._lake.holder.run(operation)
        except Invalid as error:
            if error.code in _STALE_CODES:
                self._known = None  # the table was changed or made again meanwhile; the next call reads its definition
            raise

    async def _definition(self, session: Session) -> TableDefinition:
        """Read once: a definition is immutable, and a change of it is a rejection that makes this forget it."""
        from rootline.storage.metadata.root_reader import read_definition

        if self._known is None:
            head = await read_head(session.store, self.name)
            self._known = await read_definition(session.store, head.header)
        return self._known
