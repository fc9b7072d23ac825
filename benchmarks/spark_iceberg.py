"""Goals 13 and 14 beside Iceberg's own runtime: reads, writes, triggers and many writers in one Spark 4.1.

Owns: the lake with its coordinator and its REST catalog, and the process that Spark runs in. Does not own: what is
measured there (`iceberg_runtime`), the software (`tests.engines.iceberg_software`).
Invariants: coordinator and catalog are in this process, Spark in the other; that one ends with this one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import rootline
from benchmarks.iceberg_runtime.places import Places
from benchmarks.measure import Result, Spread
from benchmarks.spark_read import make_table
from tests.catalog.served_catalog import served
from tests.engines.iceberg_software import iceberg_software
from tests.services.process_bond import bound

ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_ROWS", "4000000"))
_LONGEST_S: Final = 4 * 3600.0
_STOP_S: Final = 30.0


def measure() -> list[Result]:
    """Everything, in one session."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name, ExitStack() as around:
        places = Places(Path(name).resolve())
        lake = around.enter_context(rootline.connect(str(places.lake)))
        make_table(lake, ROWS)
        address = around.enter_context(served(places.lake))
        return _measured(places, address)


def _measured(places: Places, address: str) -> list[Result]:
    software = iceberg_software()
    (packages,) = software.python.parents[1].glob("lib/python3*/site-packages")
    path = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    log, answer = places.root / "spark.log", places.root / "answer.json"
    command = [sys.executable, "-m", "benchmarks.iceberg_runtime", places.root, software.jar, address, ROWS, answer]
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stderr=output,
            env={**kept, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,
        )
    with bound(process.pid):
        try:
            code = process.wait(timeout=_LONGEST_S)
        finally:
            _end(process)
    if code != 0:
        raise RuntimeError(f"Spark's process ended with {code}: {log.read_text(errors='replace')[-6000:]}")
    return [_result(found) for found in json.loads(answer.read_text())]


def _end(process: subprocess.Popen[bytes]) -> None:
    """The JVM is in its group, too."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=_STOP_S)


def _result(found: dict[str, object]) -> Result:
    spreads = {side: Spread(**found[side]) if found[side] else None for side in ("subject", "yardstick")}  # type: ignore[arg-type]
    return Result(**{**found, **spreads})  # type: ignore[arg-type]
