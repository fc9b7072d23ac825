"""Where everything of the comparison with Iceberg's runtime is, for both of its processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import spark_read

FLIGHTS: Final = spark_read.TABLE


@dataclass(frozen=True, slots=True)
class Places:
    """Folders below `root`, which is absolute."""

    root: Path

    @property
    def lake(self) -> Path:
        """Rootline's warehouse."""
        return self.root / "lake"

    @property
    def iceberg(self) -> Path:
        """The warehouse of Iceberg's Hadoop catalog."""
        return self.root / "iceberg"

    @property
    def iceberg_in_memory(self) -> Path:
        """The warehouse of Iceberg's catalog in memory: its data and metadata files."""
        return self.root / "iceberg-in-memory"

    def data_of(self, table: str) -> list[str]:
        """The Parquet files of one of Rootline's tables."""
        return [str(path) for path in sorted(data_folder(self.lake, table).rglob("*.parquet"))]


def data_folder(warehouse: Path, table: str) -> Path:
    """Where either format keeps a table's data files."""
    return warehouse / table.replace(".", "/") / "data"
