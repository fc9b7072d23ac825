"""`python -m benchmarks.spark_page [--part PART …]`: Spark's ratios in a folder and in a bucket, and their page.

The results are in `benchmarks/results/spark.json`, the page in `docs/spark-benchmarks.md`. The JSON is written after
each part, and a run of some parts keeps the others.

Owns: which benchmarks of Spark make the page, and its words. Does not own: the measurements.
Invariants: each part has a process of its own, because the jars of a Spark session are those of its JVM; every figure
on the page is in the JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Result, Spread
from benchmarks.report import HOUSE, commit_of_the_code, earlier_results, markdown_table, picture
from tests.engines.iceberg_software import ICEBERG, SPARK

RESULTS: Final = HOUSE / "benchmarks/results/spark.json"
PAGE: Final = HOUSE / "docs/spark-benchmarks.md"
PICTURE: Final = HOUSE / "docs/pictures/spark-benchmarks.svg"


@dataclass(frozen=True, slots=True)
class Part:
    """A chapter of the page: a benchmark with the settings that it is run with."""

    name: str
    heading: str
    words: str
    benchmark: str
    environment: Mapping[str, str] = field(default_factory=dict)


_BUCKET: Final = (
    "The table and Spark's Parquet are in one bucket of a local S3 server, which Spark reads and writes through S3A. "
    "Spark's own writes have Hadoop's default committer, which copies each file when it renames it."
)
PARTS: Final = (
    Part("reads", "Reads in a folder", "Queries over the same Parquet files.", "spark-read"),
    Part(
        "writes",
        "Appends in a folder",
        "One append of all rows. Spark's Parquet writes the same rows with as many partitions, or as sorted.",
        "spark-write",
    ),
    Part("bucket", "In a bucket", _BUCKET, "spark-bucket", {"ROOTLINE_BENCH_S3_MS": "0"}),
    Part(
        "far-bucket",
        "In a bucket, 20 ms away",
        f"{_BUCKET} A proxy delays each answer of the server by 20 ms.",
        "spark-bucket",
        {"ROOTLINE_BENCH_S3_MS": "20"},
    ),
    Part("triggers", "Triggers of a stream", "A stream from Parquet files, one file a trigger.", "spark-trigger"),
    Part(
        "iceberg",
        "Beside Iceberg's runtime",
        f"Spark {SPARK} with Iceberg {ICEBERG}, in a folder. Iceberg's runtime reads its own table, and ours through "
        "our REST catalog.",
        "spark-iceberg",
        {"ROOTLINE_BENCH_ICEBERG_PARTS": "reads,appends,triggers"},
    ),
)


def main() -> int:
    """Measure what is asked for; exit code 0, whatever the figures are."""
    parser = argparse.ArgumentParser(
        prog="make bench-spark ARGS=…", description=(__doc__ or "").partition("\n\nOwns")[0]
    )
    parser.add_argument("--part", choices=[part.name for part in PARTS], action="append", help="only this (repeatable)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of a table (10,000,000)")
    parser.add_argument("--samples", type=int, default=5, help="samples of each side, in turn (5)")
    options = parser.parse_args()
    words = " ".join(sys.argv[1:])
    command = f"make bench-spark ARGS='{words}'" if words else "make bench-spark"
    body = earlier_results(RESULTS, "parts", {"parts": {}})
    for part in PARTS:
        if options.part and part.name not in options.part:
            continue
        began = time.perf_counter()
        print(f"{part.name} …", flush=True)
        body["parts"][part.name] = {
            "command": command,
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit_of_the_code(),
            "spark": SPARK if part.name == "iceberg" else version("pyspark"),
            "rows": options.rows,
            "results": _measured(part, options.rows, options.samples),
        }
        print(f"{part.name}: {time.perf_counter() - began:.0f} s", flush=True)
        RESULTS.write_text(json.dumps(body, indent=1) + "\n")
        PAGE.write_text(page_of(body))
        PICTURE.write_text(picture_of(body))
    return 0


def _measured(part: Part, rows: int, samples: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as folder:
        place = Path(folder) / "results.json"
        command = [sys.executable, "-m", "benchmarks", "--only", part.benchmark, "--json", str(place)]
        given = {"ROOTLINE_BENCH_SPARK_ROWS": str(rows), "ROOTLINE_BENCH_SPARK_SAMPLES": str(samples)}
        subprocess.run(command, check=True, cwd=HOUSE, env={**os.environ, **given, **part.environment})
        return list(json.loads(place.read_text())["results"])


def page_of(body: Mapping[str, Any]) -> str:
    """The page of a run."""
    machine = body["machine"]
    chapters = [_chapter(part, body["parts"][part.name]) for part in PARTS if part.name in body["parts"]]
    return "\n".join(
        (
            "# Spark's figures",
            "",
            "Reads and writes of a table through Spark, beside Spark's own Parquet source and sink. A ratio below 1 "
            "means that Rootline takes less time. Times are in seconds. With few samples, the p99 is the longest.",
            "",
            "`make bench-spark` measures everything and writes `benchmarks/results/spark.json` and this page. The "
            f"machine has {machine['cores']} cores and {machine['memory_gb']} GB, with Python {machine['python']}. "
            "Spark has two cores. Both sides take turns in one session. Compare figures within a line only: another "
            "machine has other times.",
            "",
            "[Spark](spark.md) says when to use which of these functions.",
            "",
            "![Each ratio that has a goal](pictures/spark-benchmarks.svg)",
            "",
            *chapters,
        )
    )


def picture_of(body: Mapping[str, Any]) -> str:
    """Bars of all ratios that have a goal."""
    found = (_read(one) for part in PARTS if part.name in body["parts"] for one in body["parts"][part.name]["results"])
    return picture([one for one in found if one.target.strip("–")])


def _chapter(part: Part, found: Mapping[str, Any]) -> str:
    results = [_read(one) for one in found["results"]]
    loads, rows = [one.load for one in results], f", {found['rows']:,} rows"
    taken = (
        f"{part.words} Measured by `{found['command']}` on {found['taken'][:10]} at commit {found['commit']}, with "
        f"Spark {found['spark']}{rows}. The load average was {min(loads):.1f} to {max(loads):.1f}, the measured "
        "processes included.\n"
    )
    headings = ("", "beside", "ratio", "goal", "p50", "p99", "its p50", "its p99", "samples", "ratio of the fastest")
    lines = []
    for one in results:
        what = one.what.replace(rows, "").removesuffix(", in a bucket")
        shown = (f"{one.ratio:.2f}", one.target.strip("–"), *_times(one.subject), *_times(one.yardstick))
        lines.append((what, one.yardstick_name, *shown, f"{one.subject.samples}" if one.subject else "", _fastest(one)))
    return f"## {part.heading}\n\n{taken}\n{markdown_table(headings, lines, 2)}"


def _read(found: Mapping[str, Any]) -> Result:
    spreads = {side: Spread(**found[side]) if found[side] else None for side in ("subject", "yardstick")}
    return Result(**{**found, **spreads})


def _times(spread: Spread | None) -> tuple[str, str]:
    return ("–", "–") if spread is None else (f"{spread.median:.2f}", f"{spread.p99:.2f}")


def _fastest(one: Result) -> str:
    return f"{one.subject.minimum / one.yardstick.minimum:.2f}" if one.subject and one.yardstick else "–"


if __name__ == "__main__":
    sys.exit(main())
