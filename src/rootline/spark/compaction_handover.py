"""Hands a table to Spark for compaction, from a worker: one process for each compaction.

Owns: starting the process, its deadline, the interpretation of its exit. Does not own: the choice of tables
(`rootline.workers.jobs.data_jobs`), the compaction itself (`compaction_process`).
Invariants: no Spark code runs in the worker's process, and no Spark process outlives the worker. Killing the process
does no harm, because each group of files is a separate commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Corrupt, Invalid, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.spark.options import LOG_VARIABLE, WAREHOUSE_VARIABLE
from rootline.workers.jobs.job import HandedOver, HandOver
from rootline.workers.settings import WorkerSettings

_MODULE: Final = "rootline.spark.compaction_process"
_END_S: Final = 10.0
_TOLD_CHARS: Final = 1_500
_KINDS: Final[dict[str, type[RootlineError]]] = {
    kind.__name__: kind for kind in (Corrupt, Invalid, OutcomeUnknown, Unavailable)
}


@dataclass(frozen=True, slots=True)
class CompactionOnSpark(HandOver):
    """A `HandOver` to the cluster of `master`."""

    master: str
    warehouse: str
    log: str | None
    timeout_s: float

    @staticmethod
    def of_settings(settings: WorkerSettings, warehouse: str, log: str | None) -> CompactionOnSpark | None:
        """The hand-over to the master in the settings, or `None` if there is none.

        Raises:
            Invalid: `setting-invalid`, PySpark is not installed.
        """
        if not settings.spark_master:
            return None
        if importlib.util.find_spec("pyspark") is None:
            raise Invalid(
                "setting-invalid",
                f"ROOTLINE_WORKER__SPARK_MASTER is {settings.spark_master!r:.200}, and PySpark is not installed here: "
                f"{install_command('spark')}, or unset it",
            )
        return CompactionOnSpark(settings.spark_master, warehouse, log, settings.spark_timeout_s)

    @override
    async def __call__(self, table: TableName) -> HandedOver:
        environment = {**os.environ, WAREHOUSE_VARIABLE: self.warehouse, LOG_VARIABLE: self.log or ""}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, self.master, table),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.timeout_s):
                said, complained = await process.communicate()
        except TimeoutError:
            raise self._failed(table, f"it did not end within {self.timeout_s:g} s") from None
        finally:
            await _ended(process)
        return self.outcome(table, process.returncode, said, complained)

    def outcome(self, table: TableName, exit_code: int | None, said: bytes, complained: bytes) -> HandedOver:
        """The result of the compaction, parsed from the output of its ended process.

        Raises the same errors as `HandOver`.
        """
        lines = said.decode(errors="replace").strip().splitlines()
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            result = json.loads(lines[-1])
            if exit_code == 0:
                return HandedOver(result["version"], result["files"], result["refused"])
            raise _KINDS[result["kind"]](result["code"], result["message"])
        told = complained.decode(errors="replace").strip()[-_TOLD_CHARS:]
        raise self._failed(table, f"it ended with exit code {exit_code}: {told}")

    def _failed(self, table: TableName, why: str) -> Unavailable:
        return Unavailable("spark-unavailable", f"{table}: the compaction on Spark ({self.master}) failed: {why}")


async def _ended(process: Process) -> None:
    """Stop the process and all processes that it started."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
                return
