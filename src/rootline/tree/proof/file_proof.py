"""The check of a file that a writer states: its row count and statistics, and whether its footer is compared.

Owns: the limits of the row counts that files and intents state, with their table properties and messages. The property
`rootline.verify.files`. The rules for the statistics of one file, and their conversion to those of an entry.
Does not own: the same rules over a leaf's columns (`leaf_proof`, checked against these by
`tests/tree/proof/test_leaf_proof.py`), the consistency of one column's statistics (`statistics_violations`), encodings
(`statistics_codec`, `single_values`), reading footers (`rootline.storage.rows.file_footers`).
Invariants:
* A refused count is impossible for a Parquet, ORC or Avro file in practice. Exhausting the row ids of a table takes
  some ninety million intents with false counts, because row ids are assigned by these counts and never reused.
* Statistics that pass can be read back with the table's types. Encoded statistics stay encoded, and are not decoded if
  their bytes prove them valid (`statistics_proof`).

Theory. The length of a file bounds its rows only loosely. A Parquet column with a single value is a run of a few bytes
for each page of up to 2^31 rows, and an ORC or Avro file with a single value compresses well. For 33 million equal rows
pyarrow writes 460 rows per byte in Parquet and 2,800 in ORC, so a limit of 2^20 is far from both. Stated lengths may be
false too, so a file and an intent have absolute limits, which table properties can raise.

`rootline.verify.files` is `none` or `footer`. `none` accepts the lengths and row counts that an intent states, within
the limits. `footer` compares them with the stored files: the length of each file, and the row count in the footer of
each Parquet file.

Source: format page, "Absent and null" and "Partition values are statistics", docs/decisions/0010.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.bytes.single_values import from_generic
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    VersionInfo,
    statistics_violations,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, DataFile
from rootline.schemas.table_definition import TableDefinition, TrackedField
from rootline.schemas.table_properties import property_fault

FILE_PROPERTY: Final = "rootline.rows.file-max"
INTENT_PROPERTY: Final = "rootline.rows.intent-max"
FILE_ROWS_MAX: Final = 10_000_000_000
INTENT_ROWS_MAX: Final = 100_000_000_000
ROWS_PER_BYTE_MAX: Final = 2**20
_CODE: Final = "row-count-implausible"


class RowLimits(NamedTuple):
    """The greatest number of rows in one data file, and in all data files that one intent adds."""

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


VERIFY_PROPERTY: Final = "rootline.verify.files"
FOOTER: Final = "footer"


class StatedFile(NamedTuple):
    """A data file as stated by an intent or a leaf. Only the length of an encrypted file can be verified."""

    location: str
    file_format: FileFormat
    record_count: int
    size_in_bytes: int
    is_encrypted: bool


def verifies_files(definition: TableDefinition) -> bool:
    """Whether the table verifies new data files before it accepts them."""
    return definition.properties.get(VERIFY_PROPERTY) == FOOTER


MORE_VALUES: Final = "more values than the file has rows"
NO_PARTITION_VALUE: Final = "no partition value: give its lower_bound (both bounds null for null)"
UNEQUAL_BOUNDS: Final = "a partition value's bounds must be equal, or the upper one null"


def statistics_of(data_file: DataFile, definition: TableDefinition, codec: EntryCodec) -> ContentStats:
    """Check the statistics of a file to add, and return them for its entry.

    Raises:
        Invalid: `spec-unknown`, `statistics-missing`, `statistics-invalid`.

    """
    encoded, known = data_file.content_stats, codec.statistics
    if encoded is not None and data_file.stats_schema == known.fingerprint:
        spec_ids = definition.spec_by_id(data_file.partition_spec_id).expr_ids
        if known.proof.proves(encoded, data_file.record_count, spec_ids):
            return LazyStats(known, encoded, data_file.location)
    return examined_statistics(data_file, definition, codec)


def examined_statistics(data_file: DataFile, definition: TableDefinition, codec: EntryCodec) -> ContentStats:
    """Check the statistics like `statistics_of`, but value by value, so that an error names the fault."""
    location = data_file.location
    spec_ids = definition.spec_by_id(data_file.partition_spec_id).expr_ids
    encoded = data_file.content_stats
    decoded: ContentStats
    if encoded is not None:
        of_writer = _codec_of_writer(data_file, definition, codec)
        decoded, end = _decoded(encoded, of_writer, location)
        if end != len(encoded):
            raise Invalid("statistics-invalid", f"{location!r}: {len(encoded) - end} bytes follow content_stats")
        stored: ContentStats = LazyStats(of_writer, encoded, location)
    else:
        decoded = stored = from_generic(data_file.statistics, definition.tracked_by_id) if data_file.statistics else {}
    for tracked_id, item in decoded.items():
        _check_one(item, tracked_id, data_file.record_count, location)
    for expr_id in spec_ids:
        _check_partition_value(decoded.get(expr_id), expr_id, location)
    return stored


def partition_statistics(stats: ContentStats, spec_ids: tuple[int, ...]) -> ContentStats:
    """Only the partition values of a file's statistics, for the entry of its deletion vector."""
    values = {expr_id: stats.get(expr_id) for expr_id in spec_ids}
    return {
        expr_id: FieldStatistics(lower_bound=item.lower_bound, upper_bound=item.upper_bound)
        for expr_id, item in values.items()
        if item is not None
    }


def vector_entry(
    definition: TableDefinition, vector: AddedVector, data: ContentEntry, numbers: VersionInfo
) -> ContentEntry:
    """The content entry of a deletion vector that an intent adds. `data`: the entry of its data file."""
    spec_ids = definition.spec_by_id(data.partition_spec_id).expr_ids
    return ContentEntry(
        content_type=ContentType.POSITION_DELETE,
        location=vector.location,
        file_format=FileFormat.PUFFIN,
        version_info=numbers,
        partition_spec_id=data.partition_spec_id,
        record_count=vector.cardinality,
        file_size_in_bytes=vector.file_size_in_bytes,
        deletion_vector=DeletionVector(vector.offset, vector.size_in_bytes),
        referenced_file=data.location,
        content_stats=partition_statistics(data.content_stats, spec_ids) if spec_ids else {},
    )


def _codec_of_writer(data_file: DataFile, definition: TableDefinition, codec: EntryCodec) -> StatisticsCodec:
    """The codec of a file's statistics. A writer that does not know the newest definition may use an earlier one."""
    if data_file.stats_schema == codec.statistics.fingerprint:
        return codec.statistics
    for tracked in reversed(definition.past_tracked_fields):
        earlier = _statistics_codec(tracked, codec.nan_bounds)
        if data_file.stats_schema == earlier.fingerprint:
            return earlier
    raise Invalid(
        "statistics-invalid",
        f"{data_file.location!r}: content_stats are encoded with schema {(data_file.stats_schema or b'').hex()}, "
        f"the table's is {codec.statistics.fingerprint.hex()}: load the table again and encode "
        "with its schema, or send `statistics` (generic) in place of content_stats",
    )


@lru_cache(maxsize=64)
def _statistics_codec(tracked: tuple[TrackedField, ...], nan_bounds: frozenset[int]) -> StatisticsCodec:
    return StatisticsCodec(tracked, nan_bounds=nan_bounds)


def _decoded(encoded: bytes, codec: StatisticsCodec, location: str) -> tuple[ContentStats, int]:
    try:
        return codec.decode(encoded)
    except Invalid as error:
        raise Invalid(error.code, f"{location!r}: content_stats: {error.message}") from error


def _check_one(item: FieldStatistics, tracked_id: int, record_count: int, location: str) -> None:
    if item.value_count is not None and item.value_count > record_count:
        raise Invalid(
            "statistics-invalid",
            f"{location!r}: id {tracked_id}: {MORE_VALUES}: value_count {item.value_count}, {record_count} rows",
        )
    for sentence in statistics_violations(item):
        raise Invalid("statistics-invalid", f"{location!r}: id {tracked_id}: {sentence}")


def _check_partition_value(item: FieldStatistics | None, expr_id: int, location: str) -> None:
    if item is None or (item.lower_bound is None and item.upper_bound is not None):
        raise Invalid("statistics-missing", f"{location!r}: id {expr_id}: {NO_PARTITION_VALUE}")
    lower, upper = item.lower_bound, item.upper_bound
    both_nan = lower != lower and upper != upper  # NaN of any type
    if upper is not None and lower != upper and not both_nan:
        raise Invalid("statistics-invalid", f"{location!r}: id {expr_id}: {UNEQUAL_BOUNDS}")
