"""Each micro-batch is one intent and one commit, however often Spark sends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rootline.adapters.open import LAKE_FOLDER
from rootline.adapters.posix_files import LakeLock
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.spark.data_source import RootlineDataSource, register
from rootline.spark.file_sink import FilesWritten
from rootline.spark.source_writers import StreamWriter
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import COLUMNS, PATIENCE_S, Stream, ids

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark: SparkSession, folder: Path, tmp_path: Path) -> Stream:
    """A stream with nothing in its source yet."""
    return Stream(spark, str(folder), tmp_path / "stream")


def writers(table: TableHandle) -> list[str]:
    return [str(writer) for writer in table.head().ledger.writers if not writer.startswith("process/")]


def test_each_micro_batch_is_one_commit_under_the_querys_id_and_the_batchs(
    flights: TableHandle, stream: Stream
) -> None:
    for at in range(3):
        stream.drop(2 * at, 2 * at + 1)
    stream.run()
    assert (flights.head().version, ids(flights)) == (3, [0, 1, 2, 3, 4, 5])
    (writer,) = writers(flights)
    assert writer == f"spark/{json.loads((stream.checkpoint / 'metadata').read_text())['id']}"
    stream.drop(6)
    stream.run(queryName="nightly")  # as DataStreamWriter.queryName, which Spark hands to the sink
    assert (flights.head().version, ids(flights)) == (4, [0, 1, 2, 3, 4, 5, 6])
    assert writers(flights) == [writer]
    assert list(flights.check()) == []


def test_a_replayed_batch_lands_once(flights: TableHandle, stream: Stream) -> None:
    stream.drop(1)
    stream.drop(2)
    stream.run()
    before = flights.head()
    stream.forget_last_commit()
    stream.drop(3)
    stream.run()
    assert ids(flights) == [1, 2, 3]
    assert flights.head().totals.data_files == before.totals.data_files + 1


def test_a_given_writer_id_names_the_batches(flights: TableHandle, stream: Stream) -> None:
    stream.drop(1)
    stream.run(writerId="ingest-7")
    assert writers(flights) == ["ingest-7"]
    stream.forget_last_commit()
    stream.run(writerId="ingest-7")
    assert ids(flights) == [1]


def test_a_deleted_checkpoint_is_a_new_query_that_sends_everything_again(flights: TableHandle, stream: Stream) -> None:
    stream.drop(1)
    stream.run()
    stream.checkpoint.rename(stream.place / "old")
    stream.run()
    assert ids(flights) == [1, 1]
    assert len(writers(flights)) == 2


def test_a_batch_without_a_verdict_fails_the_query_and_lands_once_when_it_is_replayed(
    spark: SparkSession, folder: Path, stream: Stream
) -> None:
    with connect(folder) as lake:
        lake.create_table("demo.flights", FLIGHTS)
    stream.drop(1, 2)
    lock = LakeLock(folder / LAKE_FOLDER)
    assert lock.try_acquire()  # somebody hosts the coordinator, and does nothing
    try:
        with pytest.raises(StreamingQueryException, match="verdict-timeout"):
            stream.run(verdictTimeoutMs=300)
    finally:
        lock.release()
    stream.run()
    with connect(folder) as lake:
        table = lake.table("demo.flights")
        # One root or two: the replay may join its first sending's batch, or be answered as a duplicate in the next.
        assert (ids(table), table.head().totals.data_files) == ([1, 2], 1)


def test_a_batch_with_rows_that_do_not_fit_fails_the_query_and_is_not_checkpointed(
    flights: TableHandle, stream: Stream, spark: SparkSession
) -> None:
    stream.drop(1)
    frame = spark.readStream.schema("id string, carrier string").json(str(stream.source))
    writer = frame.writeStream.format("rootline").option("warehouse", stream.warehouse)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start("demo.flights")
    with pytest.raises(StreamingQueryException, match="column id is a long, not string"):
        query.awaitTermination(PATIENCE_S)
    assert flights.head().version == 0
    assert [path for path in (stream.checkpoint / "commits").iterdir() if path.name.isdigit()] == []


@pytest.fixture
def misplacing_executors(spark: SparkSession) -> Any:
    """Executors of this test say that their files are outside the table: a coordinator must reject that."""

    class MisplacingWriter(StreamWriter):
        def write(self, iterator: Any) -> WriterCommitMessage:
            message = super().write(iterator)
            assert isinstance(message, FilesWritten)
            elsewhere = [file.model_copy(update={"location": f"../{file.location}"}) for file in message.files]
            return FilesWritten(tuple(elsewhere), message.table_uuid, message.schema_id, message.query_id)

    class MisplacingSource(RootlineDataSource):
        def streamWriter(  # noqa: N802 -- the name is Spark's
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamArrowWriter:
            return MisplacingWriter(self._options, self._table.definition)

    spark.dataSource.register(MisplacingSource)
    yield
    register(spark)


@pytest.mark.usefixtures("misplacing_executors")
def test_a_rejected_batch_fails_the_query_and_a_mended_one_takes_its_place(
    flights: TableHandle, stream: Stream, spark: SparkSession
) -> None:
    stream.drop(1)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="location-invalid"):
            stream.run()
    assert flights.scan().count() == 0
    register(spark)
    stream.run()
    assert ids(flights) == [1]


@pytest.mark.usefixtures("misplacing_executors")
def test_a_rejected_batch_goes_to_the_dead_letters_when_that_is_asked_for(
    flights: TableHandle, stream: Stream, spark: SparkSession
) -> None:
    stream.drop(1)
    stream.run(onRejected="deadLetter")
    assert flights.scan().count() == 0
    register(spark)
    stream.drop(2)
    stream.run(onRejected="deadLetter")
    assert ids(flights) == [2]


def test_an_abort_after_the_commit_takes_nothing_back(flights: TableHandle, folder: Path) -> None:
    source = RootlineDataSource({"path": "demo.flights", "warehouse": str(folder), "writerId": "w"})
    writer = source.streamWriter(StructType(), False)
    rows = pa.RecordBatch.from_pylist([{"id": 1, "carrier": "UA", "delay": None}], schema=FLIGHTS)
    messages: Sequence[WriterCommitMessage | None] = [writer.write(iter([rows])), None]
    writer.commit(messages, 0)  # type: ignore[arg-type]
    writer.abort(messages, 0)  # type: ignore[arg-type]
    assert ids(flights) == [1]


def test_other_output_modes_and_batch_options_are_refused(
    flights: TableHandle, stream: Stream, spark: SparkSession
) -> None:
    stream.drop(1)
    with pytest.raises(Exception, match="a stream, which counts by its batch id"):
        stream.run(writerId="w", writerSequence=3)
    counted = spark.readStream.schema(COLUMNS).json(str(stream.source)).groupBy("carrier").count()
    writer = counted.writeStream.format("rootline").option("warehouse", stream.warehouse).outputMode("complete")
    with pytest.raises(Exception, match="'complete' is not supported"):
        writer.option("checkpointLocation", str(stream.checkpoint)).start("demo.flights").awaitTermination(PATIENCE_S)


def test_for_each_batch_writes_each_batch_once(
    flights: TableHandle, stream: Stream, spark: SparkSession, save: Callable[..., None]
) -> None:
    def each(frame: DataFrame, batch_id: int) -> None:
        save(frame, writerId="foreach", writerSequence=batch_id)

    stream.drop(1)
    stream.drop(2)
    for _ in range(2):
        frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(stream.source))
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)
        stream.forget_last_commit()
    assert (ids(flights), flights.head().totals.data_files) == ([1, 2], 2)
