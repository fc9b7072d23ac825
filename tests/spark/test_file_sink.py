"""How a task gathers rows for its files."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rootline.client.data_file_writer import checked_rows
from rootline.client.lake import Lake
from rootline.spark.file_sink import key_rows, pieces_of, write_task
from rootline.spark.options import parse_options

ROWS = 1_000
TARGET = 50_000


def batches(count: int) -> list[pa.RecordBatch]:
    """Batches of 8 kB."""
    return [pa.record_batch([pa.array([7] * ROWS)], ["value"]) for _ in range(count)]


def test_batches_are_gathered_into_pieces_so_that_few_pieces_are_split_by_partition() -> None:
    assert [len(piece) for piece in pieces_of(batches(30), TARGET)] == [7, 7, 7, 7, 2]
    sliced = [[batch.num_rows for batch in piece] for piece in pieces_of(batches(2), 3_000)]
    assert sliced == [[375], [375], [250, 375], [375], [250]], "a wide batch is several pieces"


def test_rows_that_are_in_files_are_not_in_memory_while_the_next_ones_are_collected(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.flights", pa.schema([("value", pa.int64())]))
    options = parse_options({"path": "demo.flights", "warehouse": str(folder), "targetFileSizeBytes": f"{TARGET}"}, {})
    given: list[weakref.ref[pa.RecordBatch]] = []
    kept: list[int] = []

    def arriving() -> Iterator[pa.RecordBatch]:
        for _ in range(30):
            yield pa.record_batch([pa.array(range(ROWS))], ["value"])
            kept.append(sum(batch() is not None for batch in given))

    def rows_of(piece: Sequence[pa.RecordBatch], definition: Any) -> pa.Table:
        given.extend(map(weakref.ref, piece))
        return checked_rows(piece, definition)

    written = write_task(arriving(), table.definition(), options, rows_of)
    assert len(given) == 30
    assert sum(file.record_count for file in written.files) == 30 * ROWS
    assert max(kept) <= 1, "the one that was read last"


def test_the_keys_of_an_upsert_are_kept_without_the_other_columns(lake: Lake) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import BinaryType, LongType, NestedField

    id_, body = NestedField(1, "id", LongType(), required=True), NestedField(2, "body", BinaryType())
    table = lake.create_table("demo.keys", Schema(id_, body, identifier_field_ids=[1]))
    sink = pa.BufferOutputStream()
    wide = pa.record_batch({"id": pa.array(range(ROWS)), "body": pa.array([b"x" * 1_000] * ROWS)})
    with pa.ipc.new_stream(sink, wide.schema) as writer:
        writer.write_batch(wide)
    sent = sink.getvalue()
    with pa.ipc.open_stream(sent) as reader:  # its columns share one buffer, as in batches from Spark
        [batch] = list(reader)
    keys = key_rows([batch], table.definition())
    assert keys.column("id").to_pylist() == list(range(ROWS))
    start, end = sent.address, sent.address + sent.size
    assert not any(
        start <= buffer.address < end for chunk in keys.column("id").chunks for buffer in chunk.buffers() if buffer
    )
