"""PySpark's jars in a place that stays, and an archive of the classes in them, which halves every start of Spark.

Owns: the copy, the archive, the variables that let any Spark use them. Does not own: the cache (`cached_software`),
what is run once for the archive (`rehearsal`).
Invariants: the archive is made by one session at a time, from the jars and the Java that it is used with; Java holds it
only for jars of the same path and date, so they are not those of an environment that may be made again; without an
archive everything runs, and takes longer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

from tests.services.cached_software import cached
from tests.services.java_runtime import java_runtime
from tests.services.slow_step import say_progress

_NEEDED: Final = ("bin", "jars", "python", "sbin")
_REHEARSAL_S: Final = 600


def spark_variables() -> dict[str, str]:
    """The environment of a program that starts Spark quickly; empty if the user named a Spark."""
    if "SPARK_HOME" in os.environ:
        return {}
    java = java_runtime("Spark")
    with cached("spark", pyspark.__version__, _copy) as home:
        archive = home / f"classes-{java.version}.jsa"
        if not archive.exists():
            say_progress("starting Spark a first time, so that later starts take half as long …")
            _rehearse(home, archive)
    return {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={archive} -Xlog:disable"}


def _copy(folder: Path) -> Path:
    for name in _NEEDED:
        shutil.copytree(Path(pyspark.__file__).parent / name, folder / "home" / name)
    return folder / "home"


def _rehearse(home: Path, archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.machine.rehearsal"],
        cwd=Path(__file__).parents[3],
        env=os.environ
        | {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"},
        capture_output=True,
        text=True,
        timeout=_REHEARSAL_S,
        check=False,
    )
    if done.returncode == 0 and unfinished.exists():
        unfinished.rename(archive)
    else:
        say_progress(f"no archive of Spark's classes: {done.stderr[-300:]}")
