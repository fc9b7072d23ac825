"""Limits for the row counts that files and intents state. Row ids are assigned by these counts and never reused.

Owns: the limits, their table properties, and the message of a refusal.
Does not own: the checks that use them (`file_rules`, `fast_append`, `leaf_proof`, `writer_leaves`), the verification of
a count within the limits.
Invariants: A refused count is impossible for a Parquet, ORC or Avro file in practice. Exhausting the row ids of a table
takes some ninety million intents with false counts.

Theory. The length of a file bounds its rows only loosely. A Parquet column with a single value is a run of a few bytes
for each page of up to 2^31 rows, and an ORC or Avro file with a single value compresses well. For 33 million equal rows
pyarrow writes 460 rows per byte in Parquet and 2,800 in ORC, so a limit of 2^20 is far from both. Stated lengths may be
false too, so a file and an intent have absolute limits, which table properties can raise.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import property_fault

FILE_PROPERTY: Final = "rootline.rows.file-max"
INTENT_PROPERTY: Final = "rootline.rows.intent-max"
FILE_ROWS_MAX: Final = 10_000_000_000
INTENT_ROWS_MAX: Final = 100_000_000_000
ROWS_PER_BYTE_MAX: Final = 2**20
_CODE: Final = "row-count-implausible"


class RowLimits(NamedTuple):
    """The most rows of one data file, and of all data files that one intent adds."""

    file: int = FILE_ROWS_MAX
    intent: int = INTENT_ROWS_MAX


def limits_of(definition: TableDefinition) -> RowLimits:
    """The limits by the properties of a table."""
    return _chosen(definition.properties.get(FILE_PROPERTY), definition.properties.get(INTENT_PROPERTY))


def is_plausible(rows: int, size_in_bytes: int, limits: RowLimits) -> bool:
    """Whether a file of this length may have this many rows."""
    return rows <= limits.file and rows <= size_in_bytes * ROWS_PER_BYTE_MAX


def why_implausible(rows: int, size_in_bytes: int, limits: RowLimits) -> str:
    """The message for a file whose row count is not plausible."""
    if rows > limits.file:
        return f"{rows} rows are more than table property {FILE_PROPERTY} allows, which is {limits.file}"
    return f"{rows} rows do not fit {size_in_bytes} bytes: correct record_count or file_size_in_bytes"


def check_file_rows(location: str, rows: int, size_in_bytes: int, limits: RowLimits) -> None:
    """Raise `Invalid` (`row-count-implausible`) if the row count of a file exceeds the limits."""
    if not is_plausible(rows, size_in_bytes, limits):
        raise Invalid(_CODE, f"{location!r}: {why_implausible(rows, size_in_bytes, limits)}")


def check_intent_rows(rows: int, limits: RowLimits) -> None:
    """Raise `Invalid` (`row-count-implausible`) if an intent adds too many rows."""
    if rows > limits.intent:
        raise Invalid(
            _CODE,
            f"the intent adds {rows} rows, more than table property {INTENT_PROPERTY} allows, which is "
            f"{limits.intent}: split the intent, or create the table with a larger limit",
        )


@lru_cache(maxsize=256)
def _chosen(file: str | None, intent: str | None) -> RowLimits:
    return RowLimits(_number(FILE_PROPERTY, file, FILE_ROWS_MAX), _number(INTENT_PROPERTY, intent, INTENT_ROWS_MAX))


def _number(name: str, text: str | None, default: int) -> int:
    return default if text is None or property_fault(name, text) is not None else int(text)
