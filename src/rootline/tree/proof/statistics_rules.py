"""Rules for the statistics that a writer sends: partition values are present, and the numbers are consistent.

Owns: the rules for one file, and the conversion of received statistics to those of an entry.
Does not own: encodings (`statistics_codec`, `single_values`), the consistency of one column's statistics
(`statistics_violations`), the vectorised rules (`leaf_statistics_rules`, checked against these by
`tests/tree/proof/test_leaf_proof.py`), pruning (`prune`).
Invariants: Statistics that pass can be read back with the table's types. Encoded statistics stay encoded, and are not
decoded if their bytes prove them valid (`statistics_proof`).

Source: format page, "Absent and null" and "Partition values are statistics".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.bytes.single_values import from_generic
from rootline.schemas.content_entry import ContentStats, FieldStatistics, statistics_violations
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition, TrackedField

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
