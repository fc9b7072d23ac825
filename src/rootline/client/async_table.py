"""A table and its scans, for coroutines.

Owns: the asyncio twins of a handle's methods. Does not own: any operation (`table_handle`, `table_rows`, `scan`).
Invariants: an operation runs on the lake's own loop, so it blocks no other loop and no thread. A cancelled call is
cancelled there, too. A change that was published before may still be committed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from rootline.client.checks import ForeignNames
from rootline.client.scan import Scan
from rootline.client.session import OpenLake, Operation
from rootline.client.table_handle import TableHandle
from rootline.schemas.identifiers import TableName

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")


class _Deferring:
    """A lake that returns operations instead of running them."""

    def __init__(self, lake: OpenLake) -> None:
        self.holder: Any = self
        self.stamp = lake.stamp

    @staticmethod
    def run(operation: Operation[T]) -> Operation[T]:
        """Return the operation."""
        return operation


def _awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The asyncio twin of a method that runs one operation, and returns its result."""

    async def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        operation: Any = method(self._of, *args, **options)
        found: T = await self._lake.holder.run_async(operation)
        return found

    functools.update_wrapper(twin, method)
    return twin


def _described(method: Callable[Concatenate[Any, P], Scan]) -> Callable[Concatenate[Any, P], AsyncScan]:
    """The twin of a method that describes a scan."""

    def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> AsyncScan:
        return AsyncScan(self._lake, method(self._of, *args, **options))

    functools.update_wrapper(twin, method)
    return twin


class AsyncTableHandle(ForeignNames):
    """The same as `TableHandle`, for coroutines on any event loop: the methods that read and change rows.

    `lake.async_table(name)` makes it. Arguments, results and errors are as in `TableHandle`.
    """

    def __init__(self, lake: OpenLake, name: TableName) -> None:
        self._lake = lake
        self._of = TableHandle(_Deferring(lake), name)
        self.name = name

    scan = _described(TableHandle.scan)
    append = _awaited(TableHandle.append)
    add_files = _awaited(TableHandle.add_files)
    overwrite = _awaited(TableHandle.overwrite)
    delete_where = _awaited(TableHandle.delete_where)
    update_where = _awaited(TableHandle.update_where)
    upsert = _awaited(TableHandle.upsert)
    merge = _awaited(TableHandle.merge)
    schema = _awaited(TableHandle.schema)
    definition = _awaited(TableHandle.definition)

    def __repr__(self) -> str:
        return f"<AsyncTableHandle {self.name} of {self._lake!r}>"


class AsyncScan(ForeignNames):
    """The same as `Scan`, for coroutines: rows, data frames, batches, a count."""

    def __init__(self, lake: OpenLake, scan: Scan) -> None:
        self._lake = lake
        self._of = scan

    to_arrow = _awaited(Scan.to_arrow)
    to_pandas = _awaited(Scan.to_pandas)
    to_polars = _awaited(Scan.to_polars)
    count = _awaited(Scan.count)
    schema = _awaited(Scan.schema)

    async def to_batches(self) -> AsyncGenerator[pa.RecordBatch]:
        """The rows in batches, as `Scan.to_batches`. Close it (`aclose`) if you stop before its end."""
        async with contextlib.aclosing(self._lake.holder.iterate_async(self._of._portions)) as portions:
            async for portion in portions:
                for batch in portion:
                    yield batch

    def __repr__(self) -> str:
        return f"<Async{repr(self._of).removeprefix('<')}"
