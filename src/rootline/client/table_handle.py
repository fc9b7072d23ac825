"""A table, for a client program.

Owns: the public methods that add rows, read them, and change the definition. Does not own: methods that change rows
(`table_rows`), methods for versions (`table_history`), the execution of each method (the other modules).
Invariants: a handle has no connection, only a reference to its lake, so it may be pickled, shared between threads, and
kept as long as the lake is open. Every change waits for its verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES, DEFAULT_TIMEOUT_S
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.table_rows import TableRows
from rootline.client.time_travel import Moment, PointInTime
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

    from rootline.catalog.exporter import ExportedTable
    from rootline.client.alter_table import TableChange
    from rootline.client.new_files import FileList
    from rootline.client.scan import Scan
    from rootline.client.version_history import TreeView
    from rootline.schemas.intent import AddedManifest


_OF_COLUMNS: Final = ("rows-invalid", "definition-invalid", "definition-changed")
"""Refusals of rows after which they are rewritten under the newest definition: a column may be new, or its name may
belong to another one now."""


class TableHandle(TableRows):
    """A table, made by `lake.table` and `lake.create_table`.

    It may be shared between threads and pickled. Every change waits for its verdict, for at most `timeout_s` seconds.
    Besides the errors that each method lists, methods raise `Unavailable` (store or log cannot be reached) and
    `Corrupt` (an object is missing or damaged).
    """

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
        writer_id: str | None = None,
        writer_sequence: int | None = None,
    ) -> Commit:
        """Add rows: write Parquet files, store them, publish one intent, wait for its verdict.

        Args:
            data: a data frame of pandas or Polars, any object that exports Arrow, a list of dicts, a dict of columns.
                Columns are found by name. Values of another type are cast if no value changes.
            merge_schema: add columns that the table lacks, at every depth, and widen types (int to long, float to
                double, decimals), in the same commit. For Python's own numbers, types are widened only if a value needs
                it.
            timeout_s: the waiting time for the verdict, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.
            writer_id: the permanent name of the program that writes, with `writer_sequence`. Of all appends with the
                same pair, the table takes one, so that a program that restarts can repeat its last append.
            writer_sequence: the number of this append, which its writer counts from 0 on, such as a batch number or
                an offset. Never use it for other rows.

        Returns:
            The commit that added the rows, with their number. Without rows, nothing is published, and it is the newest
            version. If an earlier append with the same pair added the rows, it is that one's version (or the newest, if
            that is no longer recorded), with `is_new=False`.

        Raises:
            Invalid: `rows-invalid`, `definition-invalid` of a new column, or the intent was rejected.
                `sequence-reused`: the pair was committed with another number of rows.
            OutcomeUnknown: `verdict-timeout`. The rows may still be committed. Appending them again is safe with the
                same `writer_id` and `writer_sequence`. Without these, it may duplicate the rows.
        """
        from rootline.client.data_file_writer import check_names
        from rootline.client.given_rows import GivenRows
        from rootline.client.new_files import append_files, nothing_appended, write_and_store

        merges = checks.truth(merge_schema, "merge_schema")
        wait_s, target_bytes, kept = checks.write_options(timeout_s, target_file_size_bytes, summary)
        numbered, given = checks.numbered_writer(writer_id, writer_sequence), GivenRows.of(data)
        # the files of a repeated append have new names, so its rows identify it
        stamp = self._lake.stamp if numbered is None else WriterStamp(*numbered, content=f"{given.num_rows} rows")

        async def operation(session: Session) -> Commit:
            definition = await self._definition(session)
            if not given.num_rows:  # without rows, the types of its columns mean nothing
                if not merges:
                    check_names(given.names, definition)
                return await nothing_appended(session, self.name)
            if merges:
                from rootline.client.merged_rows import append_merged, is_lacking

                if await asyncio.to_thread(is_lacking, given, definition):
                    self._known = None
                    return await append_merged(
                        session, stamp, self.name, given, target_bytes, timeout_s=wait_s, summary=kept
                    )

            async def written(under: TableDefinition) -> Commit:
                files = await write_and_store(session, self.name, under, given, target_bytes)
                return await append_files(session, stamp, self.name, under, files, timeout_s=wait_s, summary=kept)

            try:
                return await written(definition)
            except Invalid as error:
                if error.code not in _OF_COLUMNS:
                    raise
                self._known = None
                return await written(await self._definition(session))

        return self._changing(operation)

    def alter(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> TableChange:
        """Change the definition: `with table.alter() as change: change.add_column("gate", "string")`.

        Columns, partition fields, the sort order and properties can change. All changes of the block are committed
        together at its end, and planned again if another change wins. The end of the block raises `Invalid`:
        `evolution-illegal`, `definition-invalid`.
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
        """Add Parquet files that are already in the table's folder.

        Many files (1,000, or table property `rootline.append.leaf-files`) are listed in leaf manifests, which are
        written first. The intent then names only the leaf manifests.

        Args:
            files: a sequence of `rootline.DataFile` (`DataFile.from_parquet` describes one), or, for tens of thousands,
                an Arrow table with `location`, `record_count`, `file_size_in_bytes`, and `content_stats` with a struct
                `_<id>` for each column.
            timeout_s: the waiting time for the verdict, in seconds.
            summary: text to text, stored in the snapshot.

        Returns:
            The commit that added the files, with their number of rows. Without files, nothing is published, and it is
            the newest version.

        Raises:
            Invalid: the intent was rejected: `file-already-live`, `location-invalid`, `statistics-missing`, …
            OutcomeUnknown: `verdict-timeout`. Adding the same files again is safe: they are committed once.
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
            spec_id: the partition spec of files given as an Arrow table, by default the table's.

        Returns:
            The leaves, which are in the store. Use them in one intent only.

        Raises:
            Invalid: `rows-invalid`, `statistics-invalid`, `statistics-missing`.
            Unavailable: `store-unavailable`.
        """
        from rootline.client.new_files import write_leaves

        given, spec = checks.data_files(files), checks.whole_or_none(spec_id, "spec_id", least=0)

        async def operation(session: Session) -> tuple[AddedManifest, ...]:
            return await write_leaves(session, self.name, await self._definition(session), given, spec)

        return self._changing(operation)

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
        """Describe rows of the table. Nothing is read before `.to_arrow()`, `.to_pandas()`, `.count()` or a similar
        call.

        Polars, DuckDB, pyarrow and others also accept the scan itself, as a stream (`__arrow_c_stream__`).

        Args:
            where: a filter, such as `dep_delay > 60 and carrier = 'UA'`, or a PyIceberg expression. Without it, every
                row.
            columns: names in the wanted order, including `_file`, `_pos` and the other metadata columns. By default all
                columns of the table.
            limit: the maximum number of rows, in no particular order. Files are read until there are enough rows.
            version: as of this version.
            timestamp: as of this moment: datetime or ISO 8601 text with its offset, or milliseconds since the epoch.
            snapshot_id: as of this snapshot.
            tag: as of the version that has this tag.

        At most one of the last four may be given. Without them, the newest version is read. They are resolved when rows
        are requested.

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
        """The Arrow schema of the newest version's rows, equal to `scan().schema()`. `definition().schema` is the
        Iceberg schema.
        """
        return self.scan().schema()

    def definition(self) -> TableDefinition:
        """Read the newest version's definition: schemas, expressions, partition specs, properties."""

        async def operation(session: Session) -> TableDefinition:
            self._known = None
            return await self._definition(session)

        return self._lake.holder.run(operation)

    def tree(self, *, version: int | None = None) -> TreeView:
        """The metadata tree of a version (by default the newest), for display as text, as SVG, or by a notebook.

        Raises:
            Invalid: `version-unknown`.
        """
        from rootline.client.version_history import read_tree

        return self._lake.holder.run(lambda session: read_tree(session.store, self.name, PointInTime(version=version)))

    def export(self, format_version: int | str | None = None, version: int | None = None) -> ExportedTable:
        """Write Iceberg metadata of a version, for other engines. An existing export is reused.

        Args:
            format_version: 2 or 3. By default, the table's property `rootline.export.format`, else 3.
            version: the table's version, by default the newest.

        Returns:
            The location and bytes of the metadata.json, and the number of requests.

        Raises:
            Invalid: `version-unknown`, `export-unsupported`, `setting-invalid`.
        """
        from rootline.client.iceberg_tables import export_table

        exported = checks.whole_or_none(version, "version")
        return self._lake.holder.run(lambda session: export_table(session, self.name, format_version, exported))

    def __repr__(self) -> str:
        return f"<TableHandle {self.name} of {self._lake!r}>"
