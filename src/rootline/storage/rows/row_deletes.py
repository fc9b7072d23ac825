"""What deletes rows of the files of one scan, read once however many files it is for.

Owns: fetching vectors and delete files, sharing them between data files, joining them for one. Does not own: which
apply to a file (`rootline.tree.scan.delete_index`), reading their rows (`delete_file_reader`, `vector_reader`).
Invariants: each delete file is fetched and decoded once a scan; what is kept grows with the deleted rows, never with
the data; a file is never read without all that deletes rows of it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.stored_file import read_file
from rootline.storage.metadata.vector_reader import vector_in
from rootline.storage.rows.data_file_formats import refuse_unreadable
from rootline.storage.rows.delete_file_reader import read_equality_columns, read_positions
from rootline.storage.rows.equality_keys import EqualityKeys
from rootline.tree.scan.file_task import FileTask

T = TypeVar("T")
_PUFFIN_FILES_KEPT: Final = 8
_JOINED_SETS_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """The deleted rows of one data file: by number, and by the values of columns."""

    positions: BitMap64 | None = None
    keys: tuple[EqualityKeys, ...] = ()


@dataclass
class _Shared:
    """Readings in progress or done, by name; the oldest go first when more than `kept_max` are held."""

    kept_max: int | None
    _found: OrderedDict[Any, asyncio.Task[Any]] = field(default_factory=OrderedDict)

    async def get(self, name: Any, read: Callable[[], Awaitable[T]]) -> T:
        reading = self._found.get(name)
        if reading is None:
            reading = self._found[name] = asyncio.ensure_future(read())
            while self.kept_max is not None and len(self._found) > self.kept_max:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(name)
        found: T = await asyncio.shield(reading)
        return found

    async def close(self) -> None:
        running = list(self._found.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class DeletesOfScan:
    """All that deletes rows of one scan's files. Close it when the scan ends."""

    def __init__(self, store: ObjectStore, table: TableName, definition: TableDefinition) -> None:
        self._store = store
        self._table = table
        self._definition = definition
        self._puffins = _Shared(_PUFFIN_FILES_KEPT)
        self._equality = _Shared(None)
        self._positions = _Shared(None)
        self._joined = _Shared(_JOINED_SETS_KEPT)

    async def of_task(self, task: FileTask) -> RowDeletes:
        """What deletes rows of the task's file.

        Raises:
            Corrupt: an object is missing, or not what was written.
            Invalid: `file-unreadable`, `equality-delete-unread`.

        """
        positions: BitMap64 | None = None
        for vector in task.vectors:
            found = vector_in(await self._puffin(vector), vector)
            positions = found if positions is None else positions | found
        deletes = task.deletes
        for entry in deletes.positions:
            by_path = await self._positions.get(entry.location, partial(self._read_positions, entry))
            for path, found in by_path.items():
                if self._names(path, task.location):
                    positions = found if positions is None else positions | found
        groups: dict[tuple[int, ...], list[ContentEntry]] = {}
        for entry in deletes.equality:
            groups.setdefault(tuple(sorted(entry.equality_ids or ())), []).append(entry)
        keys = [await self._keys(ids, entries) for ids, entries in groups.items()]
        return RowDeletes(positions, tuple(keys))

    async def close(self) -> None:
        """Stop what is being read."""
        for shared in (self._joined, self._equality, self._positions, self._puffins):
            await shared.close()

    def _names(self, path: str, location: str) -> bool:
        """Whether `path`, a full URI as position deletes have it, is the data file `location` of this table."""
        return path == location or (not is_absolute(location) and path.endswith("/" + key_of(self._table, location)))

    async def _puffin(self, vector: ContentEntry) -> bytes:
        async def read() -> bytes:
            return await read_file(self._store, self._table, vector, code="vector-corrupt")

        return await self._puffins.get(vector.location, read)

    async def _body(self, entry: ContentEntry) -> bytes:
        refuse_unreadable(entry)
        return await read_file(self._store, self._table, entry, code="data-file-corrupt")

    async def _read_positions(self, entry: ContentEntry) -> dict[str, BitMap64]:
        return await asyncio.to_thread(read_positions, await self._body(entry), entry)

    async def _read_equality(self, entry: ContentEntry, ids: tuple[int, ...]) -> list[pa.Array]:
        return await asyncio.to_thread(read_equality_columns, await self._body(entry), entry, self._definition, ids)

    async def _keys(self, ids: tuple[int, ...], entries: list[ContentEntry]) -> EqualityKeys:
        """The set of all of them, made once for data files to which the same ones apply."""

        async def join() -> EqualityKeys:
            columns = [
                await self._equality.get(entry.location, partial(self._read_equality, entry, ids)) for entry in entries
            ]
            joined = [pa.concat_arrays(list(pieces)) for pieces in zip(*columns, strict=True)]
            return await asyncio.to_thread(EqualityKeys.of, ids, joined)

        return await self._joined.get((ids, tuple(entry.location for entry in entries)), join)
