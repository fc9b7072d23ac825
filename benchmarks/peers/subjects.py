"""Who is measured, with which settings, and how its driver is started.

Owns: the list of subjects, their settings and the words for them. Does not own: the drivers, the scenarios.
Invariants: a peer's `best` settings are those that its documentation advises for the load, `default` those that it has
when nothing is set; a subject that cannot be had has a reason, which the page prints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal

from benchmarks.peers.iceberg_java import java_command
from benchmarks.peers.protocol import Place
from benchmarks.peers.rest_catalogs import ServedCatalog, reference_catalog, rootline_catalog
from benchmarks.peers.software import peers_python

Settings = Literal["best", "default"]
FLOOR: Final = "bare PUT"
ROOTLINE: Final = "Rootline"


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A peer with one choice of settings; `words` describes them, `options` are the driver's."""

    peer: str
    settings: Settings
    words: str
    command: Callable[[], Sequence[str]]
    options: dict[str, str] = field(default_factory=dict)
    processes_max: int = 1_000
    only_retries: bool = False
    """Whether these settings differ from the best ones in the number of retries only."""
    reads_files: bool = False
    """Whether a commit reads its files, which then must exist."""
    plans: str = ""
    """The reason why a plan cannot be measured through the public API; empty if it can."""
    selects: str = ""
    """The same of a plan with a filter."""
    appends: str = ""
    """The reason why rows cannot be appended; empty if they can."""
    statistics: str = "20 columns"
    catalog: str = ""
    """`postgres`: the frame starts a PostgreSQL and adds its address to the options."""
    serves: Callable[[Place], AbstractContextManager[ServedCatalog]] | None = None
    """Its REST catalog, for Iceberg's own clients."""

    @property
    def key(self) -> str:
        return self.peer if self.settings == "best" else f"{self.peer}, defaults"


def _ours(module: str) -> Callable[[], Sequence[str]]:
    return lambda: (sys.executable, "-m", f"benchmarks.peers.{module}")


def _theirs(module: str) -> Callable[[], Sequence[str]]:
    return lambda: (peers_python(), "-m", f"benchmarks.peers.{module}")


S3FS: Final = {"io": "pyiceberg.io.fsspec.FsspecFileIO"}
_NO_ROWS: Final = "Iceberg Java writes rows through an engine, such as Spark"
_NO_FILTER: Final = "`ducklake_list_files` takes no filter"

NOT_TRIED: Final = {
    "Lance": "its commits carry no statistics of columns, so they are not the same work",
    "DuckLake, Quack": "there is no driver yet for a catalog that DuckDB serves to many processes",
}
"""Peers that no scenario measures, with the reason."""

SUBJECTS: Final[tuple[Subject, ...]] = (
    Subject(
        FLOOR,
        "best",
        "a conditional PUT of 100 KiB for each file, by Rootline's own client library, on one connection",
        _ours("bare_put_peer"),
        plans="it stores no table",
        statistics="none",
    ),
    Subject(
        ROOTLINE,
        "best",
        "`rootline coordinator` as a process of its own, log in SQLite, `connect(…, coordinator='elsewhere')`. In a "
        "folder `connect`, and the first process hosts the coordinator and the worker. Behind its REST catalog, "
        "`rootline.export.snapshots` is 20",
        _ours("rootline_peer"),
        {"coordinator": "process", "snapshots": "20"},
        serves=rootline_catalog,
    ),
    Subject(
        ROOTLINE,
        "default",
        "`connect`: the first process that opens the lake hosts the coordinator and the worker",
        _ours("rootline_peer"),
        appends="in a folder its best settings are its defaults",
        serves=rootline_catalog,
    ),
    Subject(
        "PyIceberg",
        "best",
        "catalog in SQLite, `commit.retry.num-retries` 100, manifests merged, old metadata files deleted, objects by "
        "s3fs, because uploads by pyarrow 26 fail on this store",
        _theirs("pyiceberg_peer"),
        {"retries": "100", "upkeep": "yes", **S3FS},
    ),
    Subject("PyIceberg", "default", "catalog in SQLite, objects by s3fs", _theirs("pyiceberg_peer"), S3FS),
    Subject(
        "delta-rs",
        "best",
        "the table is opened for each commit, a checkpoint every 10 commits, 100 retries",
        _theirs("delta_peer"),
        {"handle": "opened", "checkpoint": "10", "retries": "100", "upkeep": "yes"},
    ),
    Subject(
        "delta-rs",
        "default",
        "the table is opened for each commit, as `write_deltalake` does with a path, a checkpoint every 100 commits",
        _theirs("delta_peer"),
        {"handle": "opened"},
    ),
    Subject(
        "DuckLake, DuckDB",
        "best",
        "catalog in a DuckDB file, which one process may have open",
        _theirs("ducklake_peer"),
        {"catalog": "duckdb"},
        processes_max=1,
        reads_files=True,
        selects=_NO_FILTER,
    ),
    Subject(
        "DuckLake, SQLite",
        "best",
        "catalog in SQLite with a write-ahead log and a busy timeout of 10 s, `ducklake_max_retry_count` 100",
        _theirs("ducklake_peer"),
        {
            "catalog": "sqlite",
            "retries": "100",
            "attach": ", META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 10000",
        },
        reads_files=True,
        selects=_NO_FILTER,
    ),
    Subject(
        "DuckLake, PostgreSQL",
        "best",
        "catalog in PostgreSQL, `ducklake_max_retry_count` 100",
        _theirs("ducklake_peer"),
        {"retries": "100"},
        reads_files=True,
        selects=_NO_FILTER,
        catalog="postgres",
    ),
    Subject(
        "DuckLake, PostgreSQL",
        "default",
        "catalog in PostgreSQL",
        _theirs("ducklake_peer"),
        only_retries=True,
        reads_files=True,
        selects=_NO_FILTER,
        catalog="postgres",
    ),
    Subject(
        "Iceberg Java, JDBC",
        "best",
        "JDBC catalog in PostgreSQL, `commit.retry.num-retries` 100, old metadata files deleted",
        java_command,
        {"catalog": "jdbc", "retries": "100"},
        catalog="postgres",
        appends=_NO_ROWS,
    ),
    Subject(
        "Iceberg Java, JDBC",
        "default",
        "JDBC catalog in PostgreSQL",
        java_command,
        {"catalog": "jdbc"},
        catalog="postgres",
        appends=_NO_ROWS,
    ),
    Subject(
        "Iceberg Java, REST",
        "best",
        "Iceberg's reference REST server 1.11.0 with a JDBC catalog in PostgreSQL, because its default, SQLite in "
        "memory, fails with many clients, `commit.retry.num-retries` 100, old metadata files deleted",
        java_command,
        {"catalog": "rest", "retries": "100"},
        catalog="postgres",
        appends=_NO_ROWS,
        serves=reference_catalog,
    ),
)


def chosen(names: Iterable[str]) -> list[Subject]:
    """The subjects whose peer's name begins with one of the names, in upper or lower case; all without names."""
    wanted = [name.lower() for name in names]
    found = [one for one in SUBJECTS if not wanted or any(one.key.lower().startswith(name) for name in wanted)]
    if not found:
        raise ValueError(f"no peer is named {', '.join(wanted)}: known are {', '.join(peers())}")
    return found


def peers() -> list[str]:
    """The names of all peers."""
    return list(dict.fromkeys(one.peer for one in SUBJECTS))
