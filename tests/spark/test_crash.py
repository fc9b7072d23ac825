"""`rootline up` is killed in the middle of a stream, again and again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_demo.service import running_service
from rootline.adapters.open import LAKE_FOLDER
from rootline.connect import connect
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import PATIENCE_S, Stream, ids
from tests.spark.test_stream import stream as stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 10
ROWS = 20
KILL_AFTER = (3, 6)


def await_batches(query: StreamingQuery, wanted: int) -> None:
    """Wait until so many batches are done."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(query.recentProgress) < wanted:
        query.awaitTermination(1)
        assert time.monotonic() < deadline_s, f"{len(query.recentProgress)} of {wanted} batches were done in time"


@pytest.mark.parametrize("sink", ["waits for the service", "helps itself"])
def test_a_service_that_is_killed_in_the_middle_of_a_stream_loses_nothing_and_doubles_nothing(
    folder: Path, stream: Stream, tmp_path: Path, sink: str
) -> None:
    options = {"log": f"sqlite://{folder / LAKE_FOLDER}"} if sink == "waits for the service" else {}
    options["verdictTimeoutMs"] = str(1_000 * PATIENCE_S)  # a busy machine starts the next service late
    for at in range(FILES):
        stream.drop(*range(ROWS * at, ROWS * (at + 1)))
    with ExitStack() as around:
        service = around.enter_context(running_service(folder, tmp_path / "up.log"))
        lake = around.enter_context(connect(folder, coordinator="elsewhere"))
        properties = {"rootline.flush.data-files": "4"}
        table = lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"], properties=properties)
        query = stream.start(**options)
        around.callback(query.stop)
        for batches in KILL_AFTER:
            await_batches(query, batches)
            service.process.kill()
            service.process.wait()
            service = around.enter_context(running_service(folder, tmp_path / "up.log"))
        assert query.awaitTermination(PATIENCE_S)
        assert ids(table) == list(range(FILES * ROWS))
        assert table.head().totals.data_files == FILES
        assert list(table.check()) == []
