"""One Spark 4.1 with Iceberg's runtime for the whole session, in an environment and a process of its own.

Owns: the process, its log, its end; asking it. Does not own: the software (`iceberg_software`), what runs in there
(`inside_spark`).
Invariants: it is stopped by its process id, whatever the tests did, and ends with them also when these are killed;
every question has a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.engines.iceberg_software import IcebergSoftware, iceberg_software
from tests.services.process_bond import ProcessBond
from tests.services.slow_step import say_progress

DEADLINE_S = 300.0
_ARCHIVING_S = 300.0
_SCRIPT = Path(__file__).with_name("inside_spark.py")


class SparkRefused(RuntimeError):
    """Spark could not do it. `condition` is Spark's name for the error, or a Java class."""

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"{condition}: {message}")
        self.condition = condition


class IcebergSpark:
    """A running Spark. Catalogs that tests register must have names of their own."""

    def __init__(self, software: IcebergSoftware, folder: Path, *, recording: bool = False) -> None:
        self._folder = folder
        self._log = folder / "spark.log"
        self._answers = 0
        sharing = (
            f"-XX:ArchiveClassesAtExit={software.archive}" if recording else f"-XX:SharedArchiveFile={software.archive}"
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [software.python, "-I", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))},
                start_new_session=True,
            )
        self._bond = ProcessBond(self._process.pid)
        self._ask(
            {
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.driver.extraClassPath": str(software.jar),
                "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {sharing} -Xlog:disable",
                # a handful of rows: compiling a plan takes longer than running it as it is
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                # Iceberg 1.12 keeps an equality delete's values in the type they were read in first: after a read of
                # today's `id long`, one of yesterday's `id int` finds none of them, and deleted rows are back
                "spark.sql.iceberg.executor-cache.enabled": "false",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            }
        )

    def hadoop_catalog(self, name: str, folder: Path) -> None:
        """Tables in a folder, without a server."""
        self._do("catalog", name=name, options={"type": "hadoop", "warehouse": f"file://{folder}"})

    def rest_catalog(self, name: str, address: str, **options: str) -> None:
        """Tables that a server knows."""
        self._do("catalog", name=name, options={"type": "rest", "uri": address, **options})

    def run(self, *statements: str) -> None:
        """Run statements whose rows are not needed."""
        self._do("sql", statements=statements, into=None)

    def run_at_once(self, statements: Sequence[str]) -> None:
        """Run statements at the same time, each in a thread of its own."""
        self._do("at_once", statements=statements)

    def program(self, text: str) -> None:
        """Run a program in Python that has the session as `spark`, and the names of the programs before it."""
        self._do("program", text=text)

    def stream(self, source: Path, schema: str, table: str, checkpoint: Path) -> None:
        """Append the JSON files in `source` that the checkpoint does not know yet, one file in each epoch, and end."""
        self._do("stream", source=str(source), schema=schema, table=table, checkpoint=str(checkpoint))

    def rows(self, statement: str) -> pa.Table:
        """The rows of a query."""
        self._answers += 1
        into = self._folder / f"{self._answers}.arrow"
        self._do("sql", statements=[statement], into=str(into))
        with pa.memory_map(str(into)) as found:
            return pa.ipc.open_file(found).read_all()

    def changes(self, table: str) -> dict[int, dict[str, list[str]]]:
        """Snapshot id → the data files that Java finds as added, removed, and with new deletes."""
        self._answers += 1
        into = self._folder / f"{self._answers}.json"
        self._do("changes", table=table, into=str(into))
        return {int(snapshot_id): found for snapshot_id, found in json.loads(into.read_text()).items()}

    def equality_delete(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        partition: Sequence[object] | None = None,
    ) -> None:
        """Commit an equality delete; without a partition under the table's unpartitioned spec."""
        self._do("equality_delete", table=table, columns=columns, rows=rows, partition=partition)

    def stop(self, *, deadline_s: float = 30.0) -> None:
        """Ask it to end, then make it, and what it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        self._process.stdout.close()
        self._bond.release()

    def _do(self, do: str, **words: object) -> None:
        answer = self._ask({"do": do, **words})
        if answer:
            raise SparkRefused(answer["condition"], answer["message"])

    def _ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> bytes:
        """The next line that it writes."""
        assert self._process.stdout is not None
        found, deadline = b"", time.monotonic() + DEADLINE_S
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            if not part:
                why = "ended" if ready else f"did not answer within {DEADLINE_S:.0f} s"
                raise RuntimeError(f"Spark {why}: {self._log.read_text(errors='replace')[-2000:]}")
            found += part
        return found


@contextlib.contextmanager
def running_iceberg_spark(folder: Path) -> Iterator[IcebergSpark]:
    """A Spark that keeps its files in `folder`, until the block ends."""
    software = iceberg_software()
    if not software.archive.exists():
        say_progress("starting Spark 4.1 a first time, so that later starts take half as long (a minute or two) …")
        _rehearse(software, folder / "first")
    with started_iceberg_spark(software, folder) as spark:
        yield spark


@contextlib.contextmanager
def started_iceberg_spark(software: IcebergSoftware, folder: Path) -> Iterator[IcebergSpark]:
    """As `running_iceberg_spark`, with this software. Without its archive the start takes longer."""
    spark = IcebergSpark(software, folder)
    try:
        yield spark
    finally:
        spark.stop()


def _rehearse(software: IcebergSoftware, folder: Path) -> None:
    """Have Java load what the tests will ask for, and write its archive of classes when it ends."""
    folder.mkdir()
    unfinished = software.archive.with_suffix(f".{os.getpid()}")  # another session may be at it as well
    spark = IcebergSpark(replace(software, archive=unfinished), folder, recording=True)
    try:
        spark.hadoop_catalog("rehearsal", folder)
        spark.run(
            "create table rehearsal.n.t (id int, carrier string) using iceberg partitioned by (carrier) "
            "tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')",
            "insert into rehearsal.n.t values (1, 'UA'), (2, 'AA'), (3, 'AA')",
            "delete from rehearsal.n.t where id = 2",
            "alter table rehearsal.n.t set tblproperties ('format-version' = '3')",
            "delete from rehearsal.n.t where id = 3",
        )
        spark.equality_delete("rehearsal.n.t", ["id"], [[1]], ["UA"])
        assert spark.rows("select * from rehearsal.n.t order by id").num_rows == 0
        assert spark.rows("select * from rehearsal.n.t.files").num_rows > 0
    finally:
        spark.stop(deadline_s=_ARCHIVING_S)
    unfinished.rename(software.archive)
