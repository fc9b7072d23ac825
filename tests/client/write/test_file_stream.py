"""Files of rows that arrive in pieces: what is in them, and how much of them is in memory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.create_drop import build_definition
from rootline.client.data_file import DataFile
from rootline.client.data_file_writer import FileStream, WrittenFile, changed_rows, checked_rows
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.metadata_columns import ROW_ID
from tests.storage.stored_tables import uuids

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("value", pa.binary()), ("delay", pa.float64())])
ROWS = 500
TARGET = 200_000
PIECE = 40_000


def definition_of(*partition_by: str, sort_by: tuple[str, ...] = ()) -> TableDefinition:
    return build_definition(SCHEMA, partition_by=partition_by, sort_by=sort_by, table_uuid=uuid.UUID(int=3))


def pieces(count: int, keys: int = 1, width: int = 60) -> Iterator[pa.Table]:
    """Pieces of rows that hardly compress, of about 40 kB by default, with the keys in turn."""
    for number in range(count):
        ids = range(number * ROWS, (number + 1) * ROWS)
        values = [os.urandom(width) for _ in ids]
        floats = [None if id_ % 7 == 0 else float("nan") if id_ % 5 == 0 else -id_ / 3 for id_ in ids]
        yield pa.table([pa.array(ids), [f"k{id_ % keys:04}" for id_ in ids], values, floats], schema=SCHEMA)


class Written:
    """The files of some pieces, and the most bytes that were in memory between two pieces."""

    def __init__(self, given: Iterator[pa.Table], definition: TableDefinition, target: int = TARGET) -> None:
        stream, self.files, self.bytes_max = FileStream(definition, uuids(), target), [], 0
        for piece in given:
            self.files += stream.add(checked_rows(piece, definition))
            self.bytes_max = max(self.bytes_max, stream.buffered_bytes)
        self.files += stream.finish()
        assert stream.buffered_bytes == 0


def read(file: WrittenFile) -> pa.Table:
    return pq.read_table(pa.BufferReader(file.body))


def ids(files: list[WrittenFile]) -> list[int]:
    return sorted(id_ for file in files for id_ in read(file).column("id").to_pylist())


def resident_mb() -> float:
    """The resident set of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def groups(file: WrittenFile) -> int:
    return int(pq.read_metadata(pa.BufferReader(file.body)).num_row_groups)


def test_a_file_is_closed_at_the_target_size_and_has_row_groups_of_many_pieces() -> None:
    written = Written(pieces(40), definition_of())
    assert ids(written.files) == list(range(40 * ROWS))
    assert all(TARGET <= file.data_file.file_size_in_bytes < 2 * TARGET for file in written.files[:-1])
    assert {groups(file) for file in written.files[:-1]} <= {1, 2}, "of five pieces each"
    assert written.bytes_max < 2 * TARGET


def test_rows_that_compress_well_fill_a_file_without_waiting_in_memory() -> None:
    alike = (piece.set_column(2, "value", pa.array([b"x" * 60] * ROWS)) for piece in pieces(80))
    written = Written((piece.set_column(0, "id", pa.array([1] * ROWS)) for piece in alike), definition_of())
    assert len(written.files) < 5
    assert sum(file.data_file.record_count for file in written.files) == 80 * ROWS
    assert written.bytes_max < 2 * TARGET, "3 MB of rows"


@pytest.mark.parametrize("keys", [3, 40, 500])
def test_many_partitions_and_their_open_files_share_one_limit(keys: int) -> None:
    written = Written(pieces(60, keys), definition_of("key"))
    assert ids(written.files) == list(range(60 * ROWS))
    assert written.bytes_max <= 3 * TARGET, "two for rows, one for open files"
    for file in written.files:
        assert len(set(read(file).column("key").to_pylist())) == 1
    if keys == 3:
        assert len(written.files) < 30, "180 if each piece had its own"


def test_waiting_rows_of_many_partitions_take_hardly_more_memory_than_their_bytes() -> None:
    """Each in its own Arrow table, 8 MB of rows took half a gigabyte."""
    rows, columns = 5_000, 200
    schema = pa.schema([(f"n{at}", pa.int64()) for at in range(columns)])
    definition = build_definition(schema, partition_by=["n0"], table_uuid=uuid.UUID(int=3))
    piece = checked_rows(pa.table([pa.array(range(rows), pa.int64())] * columns, schema=schema), definition)
    stream, before_mb = FileStream(definition, uuids(), 128 * 1024 * 1024), resident_mb()
    assert stream.add(piece) == []
    assert resident_mb() - before_mb < 100


def test_wide_rows_are_not_collected_beyond_the_limit() -> None:
    written = Written(pieces(3, width=2_000), definition_of())
    assert ids(written.files) == list(range(3 * ROWS))
    assert written.bytes_max < 2 * TARGET, "a piece is a megabyte"


def test_files_of_a_sorted_table_are_sorted_as_a_whole_and_take_all_rows_that_fit() -> None:
    definition = definition_of("key", sort_by=("-id",))
    written = Written(pieces(30, keys=2), definition)
    assert ids(written.files) == list(range(30 * ROWS))
    for file in written.files:
        found = read(file).column("id").to_pylist()
        assert found == sorted(found, reverse=True)
        assert file.data_file.sort_order_id == definition.default_sort_order_id
    assert len(written.files) <= 12
    assert written.bytes_max <= 2 * TARGET


def test_statistics_are_those_of_all_row_groups() -> None:
    definition = definition_of("key")
    written = Written(pieces(120, keys=2, width=0), definition)
    assert max(map(groups, written.files)) > 1
    for file in written.files:
        described = DataFile.from_parquet(file.data_file.location, definition, source=file.body)
        assert described.model_dump() == file.data_file.model_dump()


def test_the_two_zeros_of_a_partition_column_are_two_partitions() -> None:
    definition = build_definition(pa.schema([("x", pa.float64())]), partition_by=["x"], table_uuid=uuid.UUID(int=3))
    stream = FileStream(definition, uuids(), TARGET)
    for _ in range(2):
        for value in (0.0, -0.0, float("nan")):
            assert stream.add(checked_rows(pa.table({"x": [value]}), definition)) == []
    assert sorted(str(read(file).column("x").to_pylist()) for file in stream.finish()) == [
        "[-0.0, -0.0]",
        "[0.0, 0.0]",
        "[nan, nan]",
    ]


def test_moved_rows_and_new_rows_of_one_partition_are_in_files_of_their_own() -> None:
    definition = definition_of()
    stream = FileStream(definition, uuids(), TARGET)
    (new, moved) = pieces(2)
    stream.add(changed_rows(new, definition))
    stream.add(changed_rows(moved.append_column(ROW_ID, pa.array(range(ROWS))), definition))
    assert sorted(len(read(file).column_names) for file in stream.finish()) == [4, 6]


def test_a_text_that_is_not_utf8_is_named_by_its_column() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    definition = build_definition(pa.schema([("key", pa.string())]), table_uuid=uuid.UUID(int=3))
    rows = pa.table({"key": broken})
    with pytest.raises(Invalid, match="column key: row 0"):
        checked_rows(rows, definition)
    moved = rows.append_column(ROW_ID, pa.array([7], pa.int64()))  # rows that the table has already
    stream = FileStream(definition, uuids(), TARGET)
    stream.add(changed_rows(moved, definition))
    with pytest.raises(Invalid, match="column key: row 0"):
        stream.finish()
