"""The bytes of a file of rows, opened by its format, and as many rows as its entry says.

Owns: the choice of the format, and refusing what cannot be read for certain. Does not own: the formats (`parquet_file`,
`orc_file`, `avro_file`), what the columns mean (`row_projection`), fetching (`stored_rows`).
Invariants: the entry's `file_format` decides, never the suffix; an encrypted file is refused by name; rows come in the
file's order, and all of them or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyiceberg.types import NestedField

from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.storage.rows.arrow_types import rows_without_columns
from rootline.storage.rows.avro_file import AvroRows
from rootline.storage.rows.orc_file import OrcRows
from rootline.storage.rows.parquet_file import BATCH_ROWS, STREAMED, ParquetRows, Portion, Source, open_parquet
from rootline.storage.rows.row_groups import Run


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


def open_data_file(source: Source, entry: ContentEntry) -> OpenFile:
    """The file of `entry`, whose bytes are in `source`: all of them in memory, unless it is Parquet.

    Raises:
        Corrupt: `data-file-corrupt`, it says another number of rows than its entry.
        Invalid: `file-unreadable`.

    """
    refuse_unreadable(entry)
    file = _READERS[entry.file_format](source, entry.location)
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
    names = stored_names(file, fields, place_of)
    # without columns only defaults and nulls are asked for: the number of rows is all that the file decides
    batches = file.batches(names) if names else _empty_batches(file.row_count)
    yield from _counted(batches, entry.record_count, entry, "its entry says")


def stored_names(
    file: OpenFile, fields: Iterable[NestedField], place_of: Callable[[NestedField], int | None]
) -> list[str]:
    """The file's own names of the columns for `fields`, as far as `place_of` finds them."""
    names = [file.schema.field(at).name for field in fields if (at := place_of(field)) is not None]
    return list(dict.fromkeys(names))


def rows_of_run(
    file: OpenFile, entry: ContentEntry, run: Run, names: Sequence[str], at_once: Portion = STREAMED
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of the rows of `run` in order; of other formats than Parquet a run is the whole file.

    Raises as `all_rows`.
    """
    if not names:
        batches = _empty_batches(run.rows)
    elif isinstance(file, ParquetRows):
        batches = file.batches_of(run.groups, names, at_once)
    else:
        batches = file.batches(list(names))
    yield from _counted(batches, run.rows, entry, "its footer says")


def _counted(batches: Iterable[pa.RecordBatch], rows: int, entry: ContentEntry, who: str) -> Iterator[pa.RecordBatch]:
    read = 0
    for batch in batches:
        read += batch.num_rows
        yield batch
    if read != rows:
        raise Corrupt("data-file-corrupt", f"{entry.location}: {read} rows can be read, {who} {rows}")


_READERS: Final[dict[FileFormat, Callable[[Source, str], OpenFile]]] = {
    FileFormat.PARQUET: lambda source, name: ParquetRows(open_parquet(source, name), name, source),
    FileFormat.ORC: lambda source, name: OrcRows.of(_whole(source), name),
    FileFormat.AVRO: lambda source, name: AvroRows.of(_whole(source), name),
}


def _whole(source: Source) -> bytes | pa.Buffer:
    assert isinstance(source, bytes | pa.Buffer), "only Parquet is read in parts"
    return source


def _empty_batches(row_count: int) -> Iterator[pa.RecordBatch]:
    left = row_count
    while left > 0:
        size = min(left, BATCH_ROWS)
        yield rows_without_columns(size)
        left -= size
