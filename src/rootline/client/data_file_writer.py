"""signatures"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file to add, and its bytes: put `body` at the table's key of `data_file.location`, then publish."""

    data_file: DataFile
    body: bytes


def write_files(
    table: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    definition: TableDefinition,
    fresh_ids: Iterable[uuid.UUID],
    *,
    target_file_size_bytes: int = 256 * 1024 * 1024,
) -> list[WrittenFile]:
    """Raises Invalid (`rows-invalid`) naming the column."""
    raise NotImplementedError
