"""A batch under a pair that is committed already: a replay of the same rows, or other rows that must not be dropped."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from rootline.connect import connect
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.verdict import VerdictKind
from rootline.spark.batch_commit import WrittenBatch, commit_append
from rootline.spark.options import SourceOptions

TABLE = TableName("demo.t")


class Sink:
    """Batches of some writer on a table of its own."""

    def __init__(self, folder: Path) -> None:
        self._options = SourceOptions(str(folder), None, TABLE)
        with connect(folder) as lake:
            lake.create_table(TABLE, pa.schema([("id", pa.int64())]))
            self._definition = lake.table(TABLE).definition()
        self._folder = folder

    def send(self, writer: str, sequence: int, *rows: int) -> VerdictKind | None:
        """Commit files of so many rows each, under fresh names."""
        files = tuple(
            DataFile(location=f"data/{uuid.uuid4()}.parquet", record_count=count, file_size_in_bytes=100)
            for count in rows
        )
        batch = WrittenBatch(files, self._definition.table_uuid, 0, writer, sequence)
        verdict = commit_append(batch, self._definition, self._options)
        return None if verdict is None else verdict.kind

    def rows(self) -> int:
        """How many rows the table has."""
        with connect(self._folder) as lake:
            return lake.table(TABLE).head().totals.rows


def test_a_writer_of_ones_own_that_counts_from_0_again_is_told_that_its_rows_are_not_in_the_table(
    tmp_path: Path,
) -> None:
    sink = Sink(tmp_path)
    for batch in range(3):
        assert sink.send("mine", batch, 10, 5) is VerdictKind.COMMITTED
    assert sink.send("mine", 0, 15) is VerdictKind.DUPLICATE, "a replay: the same rows in files of other names"
    for rows in (40, 14):
        with pytest.raises(Invalid, match=f"committed in version 1 with 15 rows. Now it has {rows} rows") as refusal:
            sink.send("mine", 0, rows)
        assert refusal.value.code == "sequence-reused"
    assert sink.rows() == 45


def test_a_query_that_is_named_by_its_checkpoint_may_replay_other_rows_and_a_line_warns(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    with capture_logs() as logs:
        assert sink.send("spark/query", 0, 10) is VerdictKind.COMMITTED
        assert sink.send("spark/query", 0, 10) is VerdictKind.DUPLICATE
    assert [line for line in logs if line.get("action") == "batch-replayed"] == []
    with capture_logs() as logs:
        assert sink.send("spark/query", 0, 11) is VerdictKind.DUPLICATE
    [line] = [line for line in logs if line.get("action") == "batch-replayed"]
    assert (line["batch"], line["version"], line["rows"], line["rows_committed"]) == (0, 1, 11, 10)
    assert sink.rows() == 10
