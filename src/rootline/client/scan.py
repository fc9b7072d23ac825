"""A described scan, and its results: Arrow, pandas, Polars, batches, counts.

Owns: the public methods that return rows in these forms. Does not own: planning (`planned_files`), reading
(`scan_executor`).
Invariants: each call makes its own plan, so a scan of the head reads the head of that moment. One call reads one
version. pandas and Polars are imported only if their form is requested, modules that decode rows only for rows.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression

from rootline.client.checks import ForeignNames
from rootline.client.planned_files import FilePlan, PlannedFiles, plan_files
from rootline.client.session import Session, SessionHolder
from rootline.client.time_travel import PointInTime, read_root_at
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition

if TYPE_CHECKING:
    import pandas
    import polars

    from rootline.storage.rows.data_file_reader import RowsWanted


def _installed(library: str) -> ModuleType:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Invalid(
            "setting-invalid",
            f"to_{library} needs {library}, which is not installed: {install_command(library)}",
        ) from error


@dataclass(frozen=True, slots=True)
class Scan(ForeignNames):
    """Rows to read, described by `TableHandle.scan`.

    Each method makes its own plan. Unless the scan has a fixed version, it reads the newest version at that moment.

    Raises, from each method:
        Invalid: `filter-invalid`, `column-unknown`, `version-unknown`, `tag-unknown`, `table-unknown`,
            `file-unreadable`.
        Corrupt: an object is missing or damaged.
        Unavailable: `store-unavailable`.
    """

    _holder: SessionHolder
    table: TableName
    where: str | BooleanExpression | None
    columns: tuple[str, ...] | None
    point: PointInTime
    limit: int | None = None

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in memory."""
        return self._holder.run(self._rows)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas data frame. Integers become floats if some of them are null.

        Raises, besides the errors of every method:
            Invalid: `setting-invalid`, pandas is not installed. No rows were read.
        """

        async def operation(session: Session) -> pandas.DataFrame:
            await asyncio.to_thread(_installed, "pandas")
            rows = await self._rows(session)
            return await asyncio.to_thread(rows.to_pandas)

        return self._holder.run(operation)

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars data frame. Raises `setting-invalid` if Polars is not installed."""

        async def operation(session: Session) -> polars.DataFrame:
            library = await asyncio.to_thread(_installed, "polars")
            return await asyncio.to_thread(library.DataFrame, await self._rows(session))

        return self._holder.run(operation)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches of at most 65,536. Only a few files are in memory at a time."""
        return (batch for portion in self._holder.iterate(self._portions) for batch in portion)

    def plan(self) -> PlannedFiles:
        """The files that the scan would read, and the number of requests for planning.

        Each file has the deletes that apply to it, and the part of the filter to test its rows against (`None`: all of
        its rows match).
        """

        async def operation(session: Session) -> PlannedFiles:
            return PlannedFiles.of(await plan_files(session, self.table, self.where, self.point))

        return self._holder.run(operation)

    def count(self) -> int:
        """The number of rows. A file is not read if its statistics show that all of its rows match, or none."""

        async def operation(session: Session) -> int:
            from rootline.storage.rows.scan_executor import count_rows

            plan, wanted = await self._planned(session)
            return await count_rows(session.store, self.table, plan.scan, wanted, limit=self.limit)

        return self._holder.run(operation)

    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows, in the order of the requested columns. No data file is read."""

        async def operation(session: Session) -> pa.Schema:
            from rootline.storage.rows.data_file_reader import output_schema

            root = await read_root_at(session.store, self.table, self.point)
            return output_schema(self._wanted(await read_definition(session.store, root.header)))

        return self._holder.run(operation)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as a stream of Arrow batches for Polars, DuckDB, pyarrow and other libraries.

        Each stream makes its own plan. An error during reading is raised by the reading library, as its own type of
        error.
        """
        from rootline.storage.rows.data_file_reader import output_schema

        plan, wanted = self._holder.run(self._planned)
        portions = self._holder.iterate(lambda session: self._portions_of(session, plan, wanted))
        batches = (batch for portion in portions for batch in portion)
        return pa.RecordBatchReader.from_batches(output_schema(wanted), batches).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        parts = [f"Scan of {self.table}", str(self.point)]
        parts += [] if self.where is None else [f"where {str(self.where)!r:.200}"]
        parts += [] if self.columns is None else [f"columns {', '.join(self.columns)}"]
        parts += [] if self.limit is None else [f"at most {self.limit} rows"]
        return f"<{'; '.join(parts)}>"

    async def _rows(self, session: Session) -> pa.Table:
        from rootline.storage.rows.scan_executor import scan_table

        plan, wanted = await self._planned(session)
        return await scan_table(session.store, self.table, plan.scan.tasks(), wanted, limit=self.limit)

    async def _portions(self, session: Session) -> AsyncIterator[list[pa.RecordBatch]]:
        plan, wanted = await self._planned(session)
        async for portion in self._portions_of(session, plan, wanted):
            yield portion

    def _portions_of(self, session: Session, plan: FilePlan, wanted: RowsWanted) -> AsyncIterator[list[pa.RecordBatch]]:
        from rootline.storage.rows.scan_executor import scan_portions

        return scan_portions(session.store, self.table, plan.scan.tasks(), wanted, limit=self.limit)

    async def _planned(self, session: Session) -> tuple[FilePlan, RowsWanted]:
        plan = await plan_files(session, self.table, self.where, self.point)
        return plan, self._wanted(plan.definition)

    def _wanted(self, definition: TableDefinition) -> RowsWanted:
        from rootline.storage.rows.data_file_reader import RowsWanted

        return RowsWanted.of(definition, self.columns)
