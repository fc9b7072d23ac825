"""Where drivers and executors die: a whole process group is killed when a commit of Spark is at a phase.

Or an executor alone is killed, and the driver has its task done again.

Owns: the phases, and dying in them, on both ways to write: our data source and Spark's own writer. Does not own:
starting a driver again (`mortal_driver`), what it does (`job`).
Invariants: the phase is in a file, which is taken away before the kill, so that a driver dies of it once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rootline.spark import batch_commit, parquet_append, row_change_job
from rootline.spark.data_source import RootlineDataSource
from rootline.spark.source_writers import Messages, StreamWriter

GROUP_VARIABLE = "ROOTLINE_TORTURE_GROUP"
PHASE_VARIABLE = "ROOTLINE_TORTURE_PHASE"


class Phase(StrEnum):
    """Where a driver dies. `ZOMBIE`: before its commit, and the worker goes on with that all the same.

    `BEFORE_UPLOADS`: Spark's own writer is done, and its uploads are not completed. `EXECUTOR`: the driver lives on; an
    executor dies when files of its task are stored, and no one was told of them.
    """

    BEFORE_FILES = "before-files"
    BEFORE_UPLOADS = "before-uploads"
    BEFORE_PUBLISH = "before-publish"
    ZOMBIE = "zombie"
    BEFORE_VERDICT = "before-verdict"
    AFTER_VERDICT = "after-verdict"
    EXECUTOR = "executor"


def die_at(phase: Phase) -> None:
    """Kill the driver if that is where it is to die; this worker too, unless it goes on."""
    if not is_next(phase):
        return
    Path(os.environ[PHASE_VARIABLE]).unlink()
    os.killpg(int(os.environ[GROUP_VARIABLE]), signal.SIGKILL)
    if phase is not Phase.ZOMBIE:
        os._exit(9)


def lose_executor(within_s: float = 0.0) -> None:
    """Kill the executor that this worker works for, if that is to die: now, or while its task goes on."""
    if not is_next(Phase.EXECUTOR):
        return
    with contextlib.suppress(FileNotFoundError):  # another task was first
        Path(os.environ[PHASE_VARIABLE]).unlink()
    parent = Path(f"/proc/{os.getppid()}/stat").read_text()  # of Spark's Python daemon, whose parent it is
    kill = partial(os.kill, int(parent.rpartition(")")[2].split()[1]), signal.SIGKILL)
    if within_s:
        threading.Timer(random.uniform(0.0, within_s), kill).start()
        return
    kill()
    os._exit(9)


def losing_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task; its executor dies when they are written, uploaded or committed."""
    yield from batches
    lose_executor(within_s=0.5)


def is_next(phase: Phase) -> bool:
    """Whether that is where the driver is to die."""
    with contextlib.suppress(FileNotFoundError):
        return Path(os.environ[PHASE_VARIABLE]).read_text() == phase
    return False


def mortal(decide: Callable[..., Any]) -> Callable[..., Any]:
    """`decided` of a batch that may not come to its end."""

    def decided(lake: Any, intent: Any, batch: Any, *rest: Any) -> Any:
        die_at(Phase.BEFORE_PUBLISH)
        die_at(Phase.ZOMBIE)
        if is_next(Phase.BEFORE_VERDICT):
            with lake.producer(batch.writer_id) as producer:
                producer.publish(intent, writer_sequence=batch.sequence, content="")
            die_at(Phase.BEFORE_VERDICT)
        verdict = decide(lake, intent, batch, *rest)
        die_at(Phase.AFTER_VERDICT)
        return verdict

    return decided


def make_mortal() -> None:
    """From now on this driver dies also in its own commits: those of Spark's own writer, and changes of rows."""
    describe = parquet_append.written_files

    def written_files(*given: Any, **named: Any) -> Any:
        die_at(Phase.BEFORE_UPLOADS)
        return describe(*given, **named)

    parquet_append.written_files = written_files
    batch_commit.decided = mortal(batch_commit.decided)
    row_change_job.decided = mortal(row_change_job.decided)


class KillingWriter(StreamWriter):
    """A writer that may not come to its end."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        die_at(Phase.BEFORE_FILES)
        written = super().write(iterator)
        lose_executor()
        return written

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 -- the name is Spark's
        decide = batch_commit.decided
        batch_commit.decided = mortal(decide)
        try:
            super().commit(messages, batchId)
        finally:
            batch_commit.decided = decide


class KillingSource(RootlineDataSource):
    """`format("rootline")` of such a driver."""

    def streamWriter(  # noqa: N802 -- the name is Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return KillingWriter(self._options, self._table.definition)
