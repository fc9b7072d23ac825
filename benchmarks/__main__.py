"""`python -m benchmarks [--only GOAL …]`: measure, print a table, write `benchmarks/results/`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from benchmarks import (
    backlog_memory,
    export_cost,
    idle_tables,
    in_process_load,
    intent_cpu,
    kafka_load,
    leaf_commit,
    many_files,
    next_root,
    one_row_appends,
    scan_speed,
    scattered_vectors,
    self_flush,
    simulation,
    spark_bucket,
    spark_compaction,
    spark_first_task,
    spark_iceberg,
    spark_read,
    spark_trigger,
    spark_write,
    takeover,
    task_memory,
    thousand_tables,
    two_processes,
    verified_files,
)
from benchmarks.commit_latency import on_local_files, on_s3
from benchmarks.far_services import ADDED_MS, far_store
from benchmarks.measure import Result
from benchmarks.report import print_table, write_json, write_results
from tests.services.s3_service import running_s3


def _local() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        return asyncio.run(on_local_files(Path(folder)))


def _s3() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as folder, running_s3(Path(folder)) as service:
        return asyncio.run(on_s3(service, "S3", "1"))


def _slow_s3() -> list[Result]:
    with far_store() as far:
        results = asyncio.run(on_s3(far, f"S3 +{ADDED_MS} ms", "1", samples=40))
    commit = results[0]
    if commit.subject is not None:
        trips = commit.subject.median * 1000 / ADDED_MS
        results.append(
            Result(
                "1",
                f"round trips of {ADDED_MS} ms in a commit",
                None,
                None,
                "one round trip",
                trips,
                "< 2",
                commit.load,
            )
        )
    return results


MEASUREMENTS: dict[str, Callable[[], list[Result]]] = {
    "next-root": next_root.measure,
    "intent-cpu": intent_cpu.measure,
    "leaf-commit": leaf_commit.measure,
    "local": _local,
    "s3": _s3,
    "slow-s3": _slow_s3,
    "two-processes": two_processes.measure,
    "verified-files": verified_files.measure,
    "load": in_process_load.measure,
    "kafka-load": kafka_load.measure,
    "backlog": backlog_memory.measure,
    "takeover": takeover.measure,
    "idle-tables": idle_tables.measure,
    "thousand-tables": thousand_tables.measure,
    "self-flush": self_flush.measure,
    "many-files": many_files.measure,
    "export": export_cost.measure,
    "one-row-appends": one_row_appends.measure,
    "scan": scan_speed.measure,
    "vectors": scattered_vectors.measure,
    "spark-read": spark_read.measure,
    "spark-bucket": spark_bucket.measure,
    "spark-compaction": spark_compaction.measure,
    "spark-first-task": spark_first_task.measure,
    "spark-write": spark_write.measure,
    "spark-trigger": spark_trigger.measure,
    "spark-iceberg": spark_iceberg.measure,
    "task-memory": task_memory.measure,
    "simulation": simulation.measure,
}


def main() -> int:
    """Measure what is asked for; exit code 0, whatever came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(MEASUREMENTS), action="append", help="measure only this (repeatable)")
    parser.add_argument("--json", type=Path, help="write the results there, and nothing into benchmarks/results")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    results: list[Result] = []
    for name, measure in MEASUREMENTS.items():
        if options.only and name not in options.only:
            continue
        began = time.perf_counter()
        print(f"measuring {name} …", flush=True)
        results.extend(measure())
        print(f"  {time.perf_counter() - began:.1f} s", flush=True)
    print_table(results)
    if options.json:
        write_json(results, options.json, "python -m benchmarks " + " ".join(sys.argv[1:]))
    else:
        write_results(results, Path("benchmarks/results"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
