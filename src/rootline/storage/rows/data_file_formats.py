"""The bytes of a file of rows, opened by its format, and as many rows as its entry says.

Owns: Parquet, and refusing what cannot be read for certain. Does not own: what the columns mean
(`row_projection`), ORC (`orc_file`) and Avro (`avro_file`), fetching.
Invariants: the entry's `file_format` decides, never the suffix; an encrypted file is refused by name; rows come in the
file's order, and all of them or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import NestedField

from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.storage.rows.arrow_types import rows_without_columns
from rootline.storage.rows.avro_file import AvroRows
from rootline.storage.rows.orc_file import OrcRows

BATCH_ROWS: Final = 65_536
_ENCRYPTED_MAGIC: Final = b"PARE"


class OpenFile(Protocol):
    """A file of rows. `row_count` is what the file says of itself."""

    @property
    def row_count(self) -> int:
        """How many rows the file says it has."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Its columns; those that carry field ids have them in their metadata."""
        ...

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns named so, at the top level, of all rows in order. Raises `Corrupt` (`data-file-corrupt`)."""
        ...


def refuse_unreadable(entry: ContentEntry) -> None:
    """Raises `Invalid` (`file-unreadable`) for files that are not read, by their entry alone."""
    if entry.key_metadata is not None:
        raise Invalid("file-unreadable", f"{entry.location}: encrypted files are not read (it has key metadata)")
    if entry.file_format not in _READERS:
        raise Invalid("file-unreadable", f"{entry.location}: files of format {entry.file_format} hold no rows")


def open_data_file(body: bytes | pa.Buffer, entry: ContentEntry) -> OpenFile:
    """The file of `entry`, whose bytes are `body`.

    Raises:
        Corrupt: `data-file-corrupt`, it says another number of rows than its entry.
        Invalid: `file-unreadable`.

    """
    refuse_unreadable(entry)
    file = _READERS[entry.file_format](body, entry.location)
    if file.row_count != entry.record_count:
        reason = f"holds {file.row_count} rows, its entry says {entry.record_count}"
        raise Corrupt("data-file-corrupt", f"{entry.location}: {reason}")
    return file


def all_rows(
    file: OpenFile, entry: ContentEntry, fields: Iterable[NestedField], place_of: Callable[[NestedField], int | None]
) -> Iterator[pa.RecordBatch]:
    """The columns for `fields`, as far as `place_of` finds them in the file, of all its rows in order.

    Raises:
        Corrupt: `data-file-corrupt`, also when the file's parts hold another number of rows than it says.

    """
    names = [file.schema.field(at).name for field in fields if (at := place_of(field)) is not None]
    # without columns only defaults and nulls are asked for: the number of rows is all that the file decides
    batches = file.batches(list(dict.fromkeys(names))) if names else _empty_batches(file.row_count)
    read = 0
    for batch in batches:
        read += batch.num_rows
        yield batch
    if read != entry.record_count:
        reason = f"{read} rows can be read, its entry says {entry.record_count}"
        raise Corrupt("data-file-corrupt", f"{entry.location}: {reason}")


def open_parquet(body: bytes | pa.Buffer, name: str) -> pq.ParquetFile:
    """The Parquet file in `body`. Raises `Invalid` (`file-unreadable`) when it is none, or is encrypted."""
    if bytes(memoryview(body)[-4:]) == _ENCRYPTED_MAGIC:
        raise Invalid("file-unreadable", f"{name}: encrypted files are not read")
    try:
        return pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise Invalid("file-unreadable", f"{name}: is not a Parquet file: {error}") from error


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """Rows of a Parquet file."""

    file: pq.ParquetFile
    name: str

    @property
    def row_count(self) -> int:
        """As the footer says."""
        count: int = self.file.metadata.num_rows
        return count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their field ids."""
        return self.file.schema_arrow

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """As `OpenFile.batches`."""
        try:
            yield from self.file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error}") from error


_READERS: Final[dict[FileFormat, Callable[[bytes | pa.Buffer, str], OpenFile]]] = {
    FileFormat.PARQUET: lambda body, name: ParquetRows(open_parquet(body, name), name),
    FileFormat.ORC: OrcRows.of,
    FileFormat.AVRO: AvroRows.of,
}


def _empty_batches(row_count: int) -> Iterator[pa.RecordBatch]:
    left = row_count
    while left > 0:
        size = min(left, BATCH_ROWS)
        yield rows_without_columns(size)
        left -= size
