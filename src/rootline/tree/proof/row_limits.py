"""How many rows a file and an intent may say they have: row ids are handed out by these counts and never come back.

Owns: the limits, their table properties, and the reason of a refusal. Does not own: who asks (`file_rules`,
`fast_append`, `leaf_proof`, `writer_leaves`), whether a count within them is true.
Invariants: what is refused cannot be a file as our formats are written; no table is used up by fewer than some ninety
million intents that lie.

Theory. A file's length bounds its rows only loosely: a Parquet column of one value is a run of a few bytes for each
page of up to 2^31 rows, and an ORC or Avro file of one value shrinks when it is compressed. Of 33 million equal rows
pyarrow makes 460 a byte in Parquet, and 2,800 a byte in ORC; 2^20 is far from both. Lengths may be lies too, so a file
and an intent have limits of their own, and a table that needs larger ones says so.
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
    """Of the data files that intents add."""

    file: int = FILE_ROWS_MAX
    intent: int = INTENT_ROWS_MAX


def limits_of(definition: TableDefinition) -> RowLimits:
    """The limits that a table's properties choose."""
    return _chosen(definition.properties.get(FILE_PROPERTY), definition.properties.get(INTENT_PROPERTY))


def is_plausible(rows: int, size_in_bytes: int, limits: RowLimits) -> bool:
    """Whether a file of that length may have so many rows."""
    return rows <= limits.file and rows <= size_in_bytes * ROWS_PER_BYTE_MAX


def why_implausible(rows: int, size_in_bytes: int, limits: RowLimits) -> str:
    """What to say of a file that is not plausible."""
    if rows > limits.file:
        return f"{rows} rows are more than table property {FILE_PROPERTY} allows, which is {limits.file}"
    return f"{rows} rows do not fit {size_in_bytes} bytes: correct record_count or file_size_in_bytes"


def check_file_rows(location: str, rows: int, size_in_bytes: int, limits: RowLimits) -> None:
    """Raises `Invalid` (`row-count-implausible`)."""
    if not is_plausible(rows, size_in_bytes, limits):
        raise Invalid(_CODE, f"{location!r}: {why_implausible(rows, size_in_bytes, limits)}")


def check_intent_rows(rows: int, limits: RowLimits) -> None:
    """Raises `Invalid` (`row-count-implausible`)."""
    if rows > limits.intent:
        raise Invalid(
            _CODE,
            f"the intent adds {rows} rows, more than table property {INTENT_PROPERTY} allows, which is "
            f"{limits.intent}: split it, or let the table be made with a larger limit",
        )


@lru_cache(maxsize=256)
def _chosen(file: str | None, intent: str | None) -> RowLimits:
    return RowLimits(_number(FILE_PROPERTY, file, FILE_ROWS_MAX), _number(INTENT_PROPERTY, intent, INTENT_ROWS_MAX))


def _number(name: str, text: str | None, default: int) -> int:
    return default if text is None or property_fault(name, text) is not None else int(text)
