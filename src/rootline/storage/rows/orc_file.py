"""Rows of an ORC file.

Owns: reading stripes, and refusing columns that cannot be read for certain. Does not own: what the columns mean
(`row_projection`), which files are ORC (`data_file_formats`).
Invariants: columns are known by `iceberg.id`; timestamps are refused: ORC shifts those without a zone by the writer's
time zone, and both kinds are read as nanoseconds, which years beyond 1677..2262 do not fit.

Source: the Iceberg specification, Appendix A (ORC).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import orc

from rootline.schemas.errors import Corrupt, Invalid

_SLICE_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class OrcRows:
    """An open ORC file; `name` is what errors call it."""

    file: orc.ORCFile
    name: str

    @staticmethod
    def of(body: bytes | pa.Buffer, name: str) -> OrcRows:
        """The file in `body`. Raises `Invalid` (`file-unreadable`) when it is no ORC file."""
        try:
            return OrcRows(orc.ORCFile(pa.BufferReader(body)), name)
        except (pa.ArrowException, OSError) as error:
            raise Invalid("file-unreadable", f"{name}: is not an ORC file: {error}") from error

    @property
    def row_count(self) -> int:
        """As the footer says."""
        count: int = self.file.nrows
        return count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their `iceberg.id`."""
        return self.file.schema

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """As `OpenFile.batches`; raises `Invalid` (`file-unreadable`) for timestamps."""
        schema = self.schema
        for column in columns:
            if _holds_timestamp(schema.field(column).type):
                raise Invalid("file-unreadable", f"{self.name}: column {column}: timestamps in ORC are not read")
        for stripe in range(self.file.nstripes):
            try:
                rows = self.file.read_stripe(stripe, columns=columns)
                rows.validate(full=True)
            except (pa.ArrowException, OSError) as error:
                raise Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error}") from error
            for start in range(0, rows.num_rows, _SLICE_ROWS):
                yield rows.slice(start, _SLICE_ROWS)


def _holds_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_holds_timestamp(kind.field(at).type) for at in range(kind.num_fields))
