"""A worker gives large data compactions to Spark, where one is named, and does the others itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.data_file_writer import write_rewritten_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.spark.compaction_handover import CompactionOnSpark
from rootline.workers.jobs.data_jobs import DataCompactionJob
from rootline.workers.jobs.job import HandedOver, JobContext, JobOutcome, JobReport
from rootline.workers.settings import WorkerSettings

SCHEMA = pa.schema([("id", pa.int64())])
TABLE = TableName("demo.t")
Looks = Callable[..., list[JobReport]]


class Cluster:
    """Says what it was given, and what it did."""

    def __init__(self, *answers: HandedOver | Unavailable) -> None:
        self.given: list[TableName] = []
        self._answers = list(answers)

    async def __call__(self, table: TableName) -> HandedOver:
        self.given.append(table)
        answer = self._answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    """Four small files of a table that asks to be compacted."""
    properties = {"rootline.compact.data": "true", "rootline.compact.data-files": "3"}
    made = lake.create_table(TABLE, SCHEMA, properties=properties)
    for at in range(4):
        made.append({"id": list(range(10 * at, 10 * at + 10))})
    return made


@pytest.fixture
def looks(lake: Lake) -> Looks:
    """So many looks of one worker at the table."""

    def looked(cluster: Cluster | None, times: int, **settings: float) -> list[JobReport]:
        async def operation(session: Session) -> list[JobReport]:
            context = JobContext.of(
                session.store,
                session.log,
                session.environment,
                WorkerSettings.model_validate(settings),
                write_rows=write_rewritten_files,
                hand_over=cluster,
            )
            job = DataCompactionJob(context)
            return [await job.run(TABLE) for _ in range(times)]

        return lake.holder.run(operation)

    return looked


def files_of(table: TableHandle) -> int:
    return len(table.scan().plan())


def test_what_is_large_is_given_to_the_cluster_and_for_a_while_afterwards_the_worker_does_what_it_can(
    table: TableHandle, looks: Looks
) -> None:
    cluster = Cluster(HandedOver(version=9, files=4, refused=1))
    first, second = looks(cluster, 2, spark_bytes_min=1_000)
    assert cluster.given == [TABLE]
    assert (first.outcome, first.version, first.entries) == (JobOutcome.COMMITTED, 9, 4)
    assert (second.outcome, files_of(table)) == (JobOutcome.COMMITTED, 1), "by the worker itself"


def test_what_is_small_or_where_there_is_no_cluster_is_done_by_the_worker(table: TableHandle, looks: Looks) -> None:
    cluster = Cluster()
    [report] = looks(cluster, 1)
    assert (cluster.given, report.outcome, files_of(table)) == ([], JobOutcome.COMMITTED, 1)
    [report] = looks(cluster, 1, spark_bytes_min=0)
    assert (cluster.given, report.outcome) == ([], JobOutcome.NOTHING_DUE), "nothing is due"
    table.append({"id": [100]})
    table.append({"id": [101]})
    [report] = looks(None, 1, spark_bytes_min=0)
    assert (report.outcome, files_of(table)) == (JobOutcome.COMMITTED, 1)


def test_a_worn_file_that_is_too_large_for_the_worker_is_given_to_the_cluster_whatever_its_size(
    lake: Lake, looks: Looks
) -> None:
    properties = {"rootline.compact.data": "true", "rootline.compact.data-bytes": "100"}
    table = lake.create_table(TABLE, SCHEMA, properties=properties)
    table.append({"id": list(range(100))})
    table.delete_where("id < 50")
    cluster = Cluster(HandedOver(None, 0, refused=2), HandedOver(None, 0, refused=0))
    reports = looks(cluster, 2, spark_interval_s=0)
    assert cluster.given == [TABLE, TABLE]
    assert [report.outcome for report in reports] == [JobOutcome.STALE, JobOutcome.NOTHING_DUE]


def test_a_cluster_that_fails_is_not_asked_again_at_once(table: TableHandle, looks: Looks) -> None:
    cluster = Cluster(Unavailable("spark-unavailable", "demo.t: no master"))
    with pytest.raises(Unavailable):
        looks(cluster, 1, spark_bytes_min=1_000)
    assert files_of(table) == 4


def test_a_worker_without_pyspark_does_not_start_with_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = WorkerSettings(spark_master="spark://one:7077")
    assert CompactionOnSpark.of_settings(WorkerSettings(), "/data", None) is None
    assert CompactionOnSpark.of_settings(settings, "/data", None) is not None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(Invalid, match=r"pip install 'rootline-lake\[spark\]'") as error:
        CompactionOnSpark.of_settings(settings, "/data", None)
    assert error.value.code == "setting-invalid"


def test_a_process_that_fails_or_takes_too_long_is_an_error_that_says_so(
    table: TableHandle, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files_of(table) == 4
    with pytest.raises(Unavailable, match=r"it did not end within 0\.01 s") as late:
        asyncio.run(CompactionOnSpark("local[1]", str(folder), None, 0.01)(TABLE))
    assert late.value.code == "spark-unavailable"
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(Unavailable, match="exit code 1") as failed:
        asyncio.run(CompactionOnSpark("local[1]", str(folder), None, 600.0)(TABLE))
    assert failed.value.code == "spark-unavailable"


def test_what_a_process_says_last_is_its_result_or_the_error_of_the_compaction() -> None:
    on_spark = CompactionOnSpark("local[1]", "/data", None, 1.0)
    done = on_spark.outcome(TABLE, 0, b'other words\n{"version": null, "files": 0, "refused": 2}\n', b"")
    assert done == HandedOver(None, 0, 2)
    told = b'{"kind": "Invalid", "code": "table-unknown", "message": "demo.t: there is no such table"}'
    with pytest.raises(Invalid) as refused:
        on_spark.outcome(TABLE, 1, told, b"")
    assert refused.value.code == "table-unknown"
    for exit_code, said in ((1, b'{"kind": "KeyError"}'), (0, b""), (-9, b"[]"), (0, b'{"version": 1}')):
        with pytest.raises(Unavailable, match="the last words") as failed:
            on_spark.outcome(TABLE, exit_code, said, b"the last words")
        assert failed.value.code == "spark-unavailable"


@pytest.mark.spark
def test_spark_in_a_process_of_its_own_compacts_a_table_of_this_lake(
    table: TableHandle, folder: Path, warm_workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", warm_workers)
    rows = table.scan().to_arrow().sort_by("id")
    done = asyncio.run(CompactionOnSpark("local[1]", str(folder), None, 600.0)(TABLE))
    assert (done.files, done.refused, done.version) == (4, 0, table.head().version)
    assert (files_of(table), table.scan().to_arrow().sort_by("id")) == (1, rows)
