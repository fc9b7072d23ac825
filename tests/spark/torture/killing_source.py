"""The data source of a driver that dies: its whole process group is killed when Spark's commit protocol is at a phase.

Or an executor alone is killed, and the driver has its task done again.

Owns: the phases, and dying in them. Does not own: starting a driver again (`mortal_driver`), what it does (`job`).
Invariants: the phase is in a file, which is taken away before the kill, so that a driver dies of it once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rootline.spark import batch_commit
from rootline.spark.data_source import RootlineDataSource
from rootline.spark.source_writers import Messages, StreamWriter

GROUP_VARIABLE = "ROOTLINE_TORTURE_GROUP"
PHASE_VARIABLE = "ROOTLINE_TORTURE_PHASE"


class Phase(StrEnum):
    """Where a driver dies. `ZOMBIE`: before its commit, and the worker goes on with that all the same.

    `EXECUTOR`: the driver lives on; an executor dies when files of its task are stored, and no one was told of them.
    """

    BEFORE_FILES = "before-files"
    BEFORE_PUBLISH = "before-publish"
    ZOMBIE = "zombie"
    BEFORE_VERDICT = "before-verdict"
    AFTER_VERDICT = "after-verdict"
    EXECUTOR = "executor"


def die_at(phase: Phase) -> None:
    """Kill the driver if that is where it is to die; this worker too, unless it goes on."""
    if not _is_next(phase):
        return
    Path(os.environ[PHASE_VARIABLE]).unlink()
    os.killpg(int(os.environ[GROUP_VARIABLE]), signal.SIGKILL)
    if phase is not Phase.ZOMBIE:
        os._exit(9)


def lose_executor() -> None:
    """Kill the executor that this worker works for, if that is to die."""
    if _is_next(Phase.EXECUTOR):
        Path(os.environ[PHASE_VARIABLE]).unlink()
        parent = Path(f"/proc/{os.getppid()}/stat").read_text()  # of Spark's Python daemon, whose parent it is
        os.kill(int(parent.rpartition(")")[2].split()[1]), signal.SIGKILL)
        os._exit(9)


def _is_next(phase: Phase) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(os.environ[PHASE_VARIABLE]).read_text() == phase
    return False


class KillingWriter(StreamWriter):
    """A writer that may not come to its end."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        die_at(Phase.BEFORE_FILES)
        written = super().write(iterator)
        lose_executor()
        return written

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 -- the name is Spark's
        die_at(Phase.BEFORE_PUBLISH)
        die_at(Phase.ZOMBIE)
        decide = batch_commit.decided

        def decided(lake: Any, intent: Any, batch: Any, timeout_s: float) -> Any:
            if _is_next(Phase.BEFORE_VERDICT):
                with lake.producer(batch.writer_id) as producer:
                    producer.publish(intent, writer_sequence=batch.sequence, content="")
                die_at(Phase.BEFORE_VERDICT)
            return decide(lake, intent, batch, timeout_s)

        batch_commit.decided = decided
        try:
            super().commit(messages, batchId)
        finally:
            batch_commit.decided = decide
        die_at(Phase.AFTER_VERDICT)


class KillingSource(RootlineDataSource):
    """`format("rootline")` of such a driver."""

    def streamWriter(  # noqa: N802 -- the name is Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return KillingWriter(self._options, self._table.definition)
