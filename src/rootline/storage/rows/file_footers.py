"""The check of a new data file against its writer's statement: the file exists, has the stated length, and its footer
states the same number of rows.

Owns: the reads of one file, the comparison, and the same for the files of a leaf. Does not own: the callers
(`rootline.tree.rules.file_rules`, `coordinator.runtime`), whole files (`rootline.storage.check`).
Invariants: most files need one request. For each table, the ends of at most 32 files and one long footer are in memory.
Any content of a file is at most a fault of that file, but an unreachable store raises. For ORC, Avro and encrypted
files, only the length is compared.

Source: decision 0010.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rootline.library_log import library_logger
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent_rules import is_valid
from rootline.storage.stored_objects import gather_bounded, parts_of, stored_key
from rootline.tree.proof.file_proof import StatedFile

FOOTER_BYTES_MAX: Final = 16 * 1024 * 1024
FILES_AT_ONCE: Final = 32
_FIRST_BYTES: Final = 64 * 1024
"""The first read from the file's end, which contains the footer of most files."""
_END_BYTES: Final = 8
_MAGIC: Final = b"PAR1"
_PORTION: Final = 1_024
_COLUMNS: Final = ["location", "file_format", "record_count", "file_size_in_bytes", "key_metadata"]


class FooterReader:
    """A reader of one table's data files. The memory of all concurrent checks together is bounded."""

    def __init__(self, store: ObjectStore, table: TableName) -> None:
        self._parts, self._table = parts_of(store), table
        self._slots = asyncio.Semaphore(FILES_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    async def fault_of(self, file: StatedFile) -> Invalid | None:
        """The fault of a file, or `None` if it matches its statement.

        Raises:
            Unavailable: the store does not respond.
        """
        found: Invalid | None = None
        async with self._slots:
            for _ in range(2):  # a truncated response looks like a damaged file
                try:
                    await self._check(file)
                except Invalid as error:
                    found = error
                    continue
                return None
        return found

    async def fault_in(self, leaf: Leaf, prefixes: Sequence[str] = ()) -> Invalid | None:
        """The first fault among the files that `leaf` lists, or `None`. Raises the errors of `fault_of`.

        Absolute locations are read below `prefixes` only.
        """
        for portion in _portions(leaf, prefixes):
            for fault in await gather_bounded(portion, self.fault_of, FILES_AT_ONCE):
                if fault is not None:
                    return Invalid(fault.code, f"leaf {leaf.location!r}: {fault.message}")
        return None

    async def _check(self, file: StatedFile) -> None:
        """Raise `Invalid` for the first fault of the file."""
        key, size = stored_key(self._table, file.location), file.size_in_bytes
        start = max(0, size - _FIRST_BYTES)
        end = await self._parts.part_of(key, start, size - start + 1)  # one byte more than expected
        if end is None:
            raise Invalid(
                "data-file-missing", f"{file.location!r} is not in the store: store it, then publish the intent"
            )
        if len(end) != size - start:
            length = await self._parts.length_of(key)
            raise Invalid(
                "data-file-misstated", f"{file.location!r}: file_size_in_bytes is {size}, but {length} bytes are stored"
            )
        if file.file_format is not FileFormat.PARQUET or file.is_encrypted:
            return
        wanted = _footer_bytes(file, end)
        if wanted <= len(end):
            rows = _rows(file, end[-wanted:])
        else:
            async with self._large:
                footer = await self._parts.part_of(key, size - wanted, wanted)
                rows = await asyncio.to_thread(_rows, file, footer or b"")
        if rows != file.record_count:
            raise Invalid(
                "data-file-misstated",
                f"{file.location!r}: record_count is {file.record_count}, but its footer counts {rows} rows",
            )


def rows_in_footer(end: bytes) -> int:
    """The number of rows in a Parquet footer. `end`: the file's last bytes, including the whole footer.

    Raises:
        ValueError: it is not a footer, or contradicts itself.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + end))
        rows: int = metadata.num_rows
        in_groups = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise ValueError(f"the footer cannot be read: {error!s:.200}") from error
    if rows != in_groups:
        raise ValueError(f"the footer counts {rows} rows, its row groups {in_groups}")
    return rows


def _footer_bytes(file: StatedFile, end: bytes) -> int:
    """The length of the footer, including its length field and the magic number. Raises `Invalid`."""
    size = file.size_in_bytes
    if size < _END_BYTES + len(_MAGIC) or end[-4:] != _MAGIC:
        raise _unreadable(file, "it does not end as a Parquet file does")
    wanted = int.from_bytes(end[-8:-4], "little") + _END_BYTES
    if wanted > min(size - len(_MAGIC), FOOTER_BYTES_MAX):
        raise _unreadable(file, f"its length field states {wanted - _END_BYTES} bytes, which is too long")
    return wanted


def _rows(file: StatedFile, footer: bytes) -> int:
    """The number of rows in the footer. Raises `Invalid` for any error of the decoder, because a writer chose these
    bytes.
    """
    try:
        return rows_in_footer(footer)
    except ValueError as error:
        raise _unreadable(file, str(error)) from error
    except Exception as error:
        library_logger().exception("footer unreadable", action="reject", location=file.location)
        raise _unreadable(file, f"the footer cannot be read ({type(error).__name__})") from error


def _unreadable(file: StatedFile, why: str) -> Invalid:
    return Invalid("file-unreadable", f"{file.location!r}: {why}")


def _portions(leaf: Leaf, prefixes: Sequence[str]) -> Iterator[list[StatedFile]]:
    for batch in leaf.columns(_COLUMNS).to_batches(max_chunksize=_PORTION):
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield [
            StatedFile(location, FileFormat(kind), count, size or 0, key_metadata is not None)
            for location, kind, count, size, key_metadata in rows
            if is_valid(location, prefixes)  # other locations are refused under every definition
        ]
