"""One-row appends by other table formats, each with the upkeep that it has itself.

Owns: how each is asked to append, and to give up what is old. Does not own: whose turn it is, what is told
(`one_row_beside`).
Invariants: each is used as its own manual says, on a local folder, its catalog in it; all expire every
`UPKEEP_EVERY` appends and keep the newest `keep` snapshots, as Rootline does by itself; none compacts data.

They are not among this repository's extras: `pip install 'pyiceberg[sql-sqlite]' deltalake duckdb==1.5.5
duckdb-extension-ducklake==1.5.5`. An extension of DuckDB is for one version of it, and must have its number.
"""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

UPKEEP_EVERY: Final = 500
SCHEMA: Final = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


class Subject(Protocol):
    """One table of one format."""

    metadata: tuple[str, ...]
    """Files and folders, relative to its folder, that are neither data nor a log of what is to be done."""

    def append(self, number: int) -> None:
        """One row, committed."""
        ...

    def upkeep(self) -> None:
        """What is due after `UPKEEP_EVERY` appends."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


def row(number: int) -> pa.Table:
    """The row."""
    return pa.table({"id": [number], "name": [f"row {number}"]}, schema=SCHEMA)


class Rootline:
    """Through `rootline.connect`; its host expires, flushes and compacts by itself."""

    metadata: tuple[str, ...] = ("demo/rows/metadata",)

    def __init__(self, folder: Path, keep: int) -> None:
        from rootline import connect

        del keep  # its defaults say: the newest thousand, at most of ten minutes, and fewer of what is older
        self._lake = connect(str(folder))
        self._table = self._lake.create_table("demo.rows", schema=SCHEMA)

    def append(self, number: int) -> None:
        """As `Subject.append`."""
        self._table.append(row(number))

    def upkeep(self) -> None:
        """It has done so."""

    def close(self) -> None:
        """As `Subject.close`."""
        self._lake.close()


class PyIceberg:
    """A catalog on SQLite; old metadata files are deleted after each commit, manifests are merged."""

    metadata: tuple[str, ...] = ("catalog.db", "demo/rows/metadata")

    def __init__(self, folder: Path, keep: int) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        catalog.create_namespace("demo")
        properties = {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "10",
            "commit.manifest-merge.enabled": "true",
        }
        self._keep = keep
        self._table: Any = catalog.create_table("demo.rows", schema=SCHEMA, properties=properties)

    def append(self, number: int) -> None:
        """As `Subject.append`."""
        self._table.append(row(number))

    def upkeep(self) -> None:
        """Snapshots go; the files that only they name stay, for PyIceberg deletes none."""
        snapshots = self._table.metadata.snapshots
        if len(snapshots) > self._keep:
            oldest = sorted(one.timestamp_ms for one in snapshots)[-self._keep]
            self._table.maintenance.expire_snapshots().older_than(datetime.fromtimestamp(oldest / 1000, UTC)).commit()

    def close(self) -> None:
        """Nothing is open."""


class DuckLake:
    """A catalog in a DuckDB file. `inlines`: small inserts stay in the catalog, as is its default."""

    metadata: tuple[str, ...] = ("catalog.ducklake", "catalog.ducklake.wal")

    def __init__(self, folder: Path, keep: int, *, inlines: bool = True) -> None:
        import duckdb

        package = importlib.resources.files("duckdb_extension_ducklake")
        [extension] = Path(str(package)).rglob("ducklake.duckdb_extension")
        self._keep = keep
        self._lake = duckdb.connect()
        self._lake.execute(f"LOAD '{extension}'")
        limit = "" if inlines else ", DATA_INLINING_ROW_LIMIT 0"
        self._lake.execute(f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS lake (DATA_PATH '{folder}/data'{limit})")
        self._lake.execute("CREATE TABLE lake.rows (id BIGINT, name VARCHAR)")

    def append(self, number: int) -> None:
        """As `Subject.append`."""
        self._lake.execute("INSERT INTO lake.rows VALUES (?, ?)", [number, f"row {number}"])

    def upkeep(self) -> None:
        """Snapshots go, and the files of those that went."""
        found = self._lake.execute("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1 DESC").fetchall()
        old = [number for (number,) in found[self._keep :]]
        if old:
            self._lake.execute(f"CALL ducklake_expire_snapshots('lake', versions => {old})")
            self._lake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def close(self) -> None:
        """As `Subject.close`."""
        self._lake.close()


class Delta:
    """delta-rs with a checkpoint every hundred commits; logs go when they are a minute old, the least it takes."""

    metadata: tuple[str, ...] = ("_delta_log",)

    def __init__(self, folder: Path, keep: int) -> None:
        del keep
        self._library: Any = importlib.import_module("deltalake")
        configuration = {
            "delta.logRetentionDuration": "interval 60 seconds",
            "delta.checkpointInterval": "100",
            "delta.enableExpiredLogCleanup": "true",
        }
        self._table: Any = self._library.DeltaTable.create(str(folder), SCHEMA, configuration=configuration)

    def append(self, number: int) -> None:
        """As `Subject.append`."""
        self._library.write_deltalake(self._table, row(number), mode="append")

    def upkeep(self) -> None:
        """A checkpoint, and what it makes superfluous."""
        self._table.create_checkpoint()
        self._table.cleanup_metadata()
        self._table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def close(self) -> None:
        """Nothing is open."""


def _without_inlining(folder: Path, keep: int) -> DuckLake:
    return DuckLake(folder, keep, inlines=False)


SUBJECTS: Final[dict[str, Callable[[Path, int], Subject]]] = {
    "rootline": Rootline,
    "pyiceberg": PyIceberg,
    "ducklake": DuckLake,
    "ducklake-files": _without_inlining,
    "delta": Delta,
}


_NEEDS: Final = {
    "pyiceberg": ("sqlalchemy", "'pyiceberg[sql-sqlite]'"),
    "ducklake": ("duckdb_extension_ducklake", "duckdb==1.5.5 duckdb-extension-ducklake==1.5.5"),
    "ducklake-files": ("duckdb_extension_ducklake", "duckdb==1.5.5 duckdb-extension-ducklake==1.5.5"),
    "delta": ("deltalake", "deltalake"),
}


def missing_for(name: str) -> str | None:
    """What to install for a format first, as arguments of `pip install`; `None`: nothing."""
    module, packages = _NEEDS.get(name, ("pyarrow", ""))
    return packages if importlib.util.find_spec(module) is None else None


def timed(subject: Subject, numbers: range) -> list[float]:
    """Seconds of each append; upkeep counts for the append after which it comes."""
    found = []
    for number in numbers:
        began = time.perf_counter()
        subject.append(number)
        if (number + 1) % UPKEEP_EVERY == 0:
            subject.upkeep()
        found.append(time.perf_counter() - began)
    return found
