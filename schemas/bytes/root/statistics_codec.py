"""`content_stats` as bytes: a record with one optional struct for each tracked column or expression.

Owns: encoding and decoding the record, skipping it, and the mapping that is decoded lazily. Does not own: bounds of
each type (`bound_codec`), the schema (`entry_schema`), the meaning of statistics.
Invariants: The bytes equal those of any Avro library with `content_stats_schema` (a property test proves it). Counts
are never negative. Hostile bytes raise `Invalid` and use no more memory than their length.

The codec is written by hand, because statistics are most of the work of decoding an intent: fastavro takes 100-600
microseconds for 20 columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from rootline.schemas.bytes.avro_encoding import (
    INT_MAX,
    LONG_MAX,
    NULL,
    PRESENT,
    Unreadable,
    encode_long,
    long_of_varint,
    read_long,
    read_present,
)
from rootline.schemas.bytes.bound_codec import Decode, Encode, bound_codec
from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, kind_of, layout_of_kind, stats_fingerprint
from rootline.schemas.bytes.root.statistics_proof import StatisticsProof
from rootline.schemas.content_entry import ContentStats, FieldStatistics, quick
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TrackedField

_CODE: Final = "statistics-invalid"
_quick_field: Final = quick(FieldStatistics)
_TIGHT: Final = {None: NULL, False: b"\x02\x00", True: b"\x02\x01"}
_COUNTS: Final[dict[int | None, bytes]] = {None: NULL, **{count: PRESENT + encode_long(count) for count in range(4096)}}
_NULLABLE_COUNT: Final = rb"(?:\x00|\x02([\x80-\xff]{0,9}+[\x00-\x7f]))"


class _Column(NamedTuple):
    tracked_id: int
    encode: Encode | None
    decode: Decode | None
    of_raw: Callable[[bytes], Any] | None
    match: Callable[[bytes, int], re.Match[bytes] | None]


class StatisticsCodec:
    """The codec of one table's statistics, compiled once from its tracked fields.

    Args:
        tracked: columns and expressions, in the order of the record's fields.
        nan_bounds: ids whose bounds may be NaN (identity partition columns of a floating type).
    """

    def __init__(self, tracked: Sequence[TrackedField], *, nan_bounds: Collection[int] = ()) -> None:
        self.tracked = tuple(tracked)
        self._known = frozenset(field.tracked_id for field in self.tracked)
        if len(self._known) != len(self.tracked):
            raise ValueError("two tracked fields share an id")
        kinds = [(field.tracked_id, kind_of(field.type)) for field in self.tracked]
        self.layout = ",".join(f"{tracked_id}:{layout_of_kind(kind)}" for tracked_id, kind in kinds)
        self._columns = [_column(field, field.tracked_id in nan_bounds) for field in self.tracked]
        self._skips = [column.match for column in self._columns]
        self.proof = StatisticsProof(self.tracked)

    @cached_property
    def fingerprint(self) -> bytes:
        """The fingerprint of the statistics' schema, as intents and headers state it."""
        return stats_fingerprint(self.tracked)

    def encode(self, statistics: ContentStats) -> bytes:
        """The bytes of `statistics`. A `LazyStats` of the same layout is not encoded again.

        Raises:
            Invalid: `statistics-invalid`, an id is not tracked, or a value does not fit its type.
        """
        if isinstance(statistics, LazyStats) and statistics.codec.layout == self.layout:
            return statistics.encoded
        parts: list[bytes] = []
        append = parts.append
        get = statistics.get
        known_count = _COUNTS.get
        found = 0
        for tracked_id, encode_bound, *_ in self._columns:
            field = get(tracked_id)
            if field is None:
                append(NULL)
                continue
            found += 1
            append(PRESENT)
            try:
                if encode_bound is not None:
                    append(encode_bound(field.lower_bound))
                    append(encode_bound(field.upper_bound))
                    append(_TIGHT[field.tight_bounds])
                elif not field.lower_bound is field.upper_bound is field.tight_bounds is None:
                    raise ValueError("its type has no bounds")
                append(known_count(field.value_count) or _count(field.value_count))
                append(known_count(field.null_value_count) or _count(field.null_value_count))
                append(known_count(field.nan_value_count) or _count(field.nan_value_count))
                append(known_count(field.avg_value_size_in_bytes) or _size(field.avg_value_size_in_bytes))
                append(known_count(field.max_value_size_in_bytes) or _size(field.max_value_size_in_bytes))
            except (ValueError, KeyError, TypeError) as error:
                raise Invalid(_CODE, f"statistics of id {tracked_id}: {error}") from error
        if found != len(statistics):
            unknown = sorted(set(statistics) - self._known)
            raise Invalid(_CODE, f"statistics of ids {unknown[:8]}: the table has no such columns; omit them")
        return b"".join(parts)

    def decode(self, data: bytes | memoryview, position: int = 0) -> tuple[dict[int, FieldStatistics], int]:
        """(statistics by id, position after them).

        Raises:
            Invalid: `statistics-invalid`, the bytes are not a record of this codec's schema.
        """
        if not isinstance(data, bytes):
            data = bytes(data)
        statistics: dict[int, FieldStatistics] = {}
        tracked_id = 0
        counts, sizes = _COUNTS_OF, _SIZES_OF
        rows_raw, rows = b"\x00", 0  # most files have the same value count in all columns
        try:
            for column in self._columns:
                tracked_id, _, _, of_raw, match = column
                if data[position] == 0:
                    position += 1
                    continue
                found = match(data, position)
                if found is None or of_raw is None:
                    statistics[tracked_id], position = _read_field(column, data, position)
                    continue
                lower, upper, tight, values, nulls, nans, average, greatest = found.groups()
                if values != rows_raw and values is not None:
                    rows_raw, rows = values, _count_of(values)
                statistics[tracked_id] = _quick_field(
                    None if lower is None else of_raw(lower),
                    None if upper is None else of_raw(upper),
                    None if tight is None else tight == b"\x01",
                    None if values is None else rows,
                    counts[nulls],
                    counts[nans],
                    sizes[average],
                    sizes[greatest],
                )
                position = found.end()
        except IndexError:
            raise Invalid(_CODE, f"statistics of id {tracked_id}: the bytes end too early") from None
        except Unreadable as error:
            raise Invalid(_CODE, f"statistics of id {tracked_id}: {error}") from None
        return statistics, position

    def skip(self, data: bytes, position: int = 0) -> int:
        """The position after the record at `position`. Its structure is checked, but not its values.

        Raises:
            Invalid: `statistics-invalid`.
        """
        start = position
        for match in self._skips:
            found = match(data, position)
            if found is None:  # not a record, or a string too long for the pattern: the decoder decides
                return self.decode(data, start)[1]
            position = found.end()
        return position


class LazyStats(Mapping[int, FieldStatistics]):
    """Statistics that stay encoded until they are read. Equal to any mapping of the same items.

    Args:
        codec: the codec of the bytes.
        encoded: one `content_stats` record.
        name: the object that contains the bytes, for error messages.
        decoded: the decoded bytes, if the caller has them.
    """

    __slots__ = ("_decoded", "codec", "encoded", "name")

    def __init__(self, codec: StatisticsCodec, encoded: bytes, name: str, decoded: ContentStats | None = None) -> None:
        self.codec = codec
        self.encoded = encoded
        self.name = name
        self._decoded = decoded

    def read_once(self) -> LazyStats:
        """A copy to read once: the decoded values are freed with the copy, and `self` stays encoded. Returns `self` if
        it is already decoded.
        """
        return self if self._decoded is not None else LazyStats(self.codec, self.encoded, self.name)

    def _items(self) -> ContentStats:
        if self._decoded is None:
            try:
                decoded, end = self.codec.decode(self.encoded)
            except Invalid as error:
                raise Corrupt("root-corrupt", f"{self.name}: {error.message}") from error
            if end != len(self.encoded):
                raise Corrupt("root-corrupt", f"{self.name}: bytes follow the statistics")
            self._decoded = decoded
        return self._decoded

    def __getitem__(self, tracked_id: int) -> FieldStatistics:
        return self._items()[tracked_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def __contains__(self, tracked_id: object) -> bool:
        return tracked_id in self._items()

    def __repr__(self) -> str:
        return f"LazyStats({len(self.encoded)} bytes of {self.name})"


def _column(field: TrackedField, allow_nan: bool) -> _Column:
    counts = _NULLABLE_COUNT * 5
    if kind_of(field.type) == COUNTS_ONLY:
        return _Column(field.tracked_id, None, None, None, _compiled(counts).match)
    bound = bound_codec(field.type, allow_nan=allow_nan)
    nullable = rb"(?:\x00|\x02(" + bound.pattern + b"))"
    pattern = _compiled(nullable * 2 + rb"(?:\x00|\x02([\x00\x01]))" + counts)
    return _Column(field.tracked_id, bound.encode, bound.decode, bound.of_raw, pattern.match)


@cache
def _compiled(record: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\x00|\x02" + record)


def _count(value: int | None) -> bytes:
    if type(value) is not int or not 0 <= value <= LONG_MAX:
        raise ValueError(f"{value!r:.60} is not a count")
    return PRESENT + encode_long(value)


def _size(value: int | None) -> bytes:
    if type(value) is not int or not 0 <= value <= INT_MAX:
        raise ValueError(f"{value!r:.60} is not a size in bytes")
    return PRESENT + encode_long(value)


def _count_of(raw: bytes) -> int:
    count = long_of_varint(raw)
    if count < 0:
        raise Unreadable("a count is negative")
    return count


def _size_of(raw: bytes) -> int:
    size = _count_of(raw)
    if size > INT_MAX:
        raise Unreadable("a size in bytes does not fit 32 bits")
    return size


class _Counts(dict[bytes | None, int | None]):
    """Varint bytes → count. Small counts are precomputed, others are computed at each access."""

    def __init__(self, of_raw: Callable[[bytes], int]) -> None:
        super().__init__({encode_long(count): count for count in range(1024)})
        self[None] = None
        self._of_raw = of_raw

    def __missing__(self, raw: bytes) -> int:
        return self._of_raw(raw)


_COUNTS_OF: Final = _Counts(_count_of)
_SIZES_OF: Final = _Counts(_size_of)


def _read_field(column: _Column, data: bytes, position: int) -> tuple[FieldStatistics, int]:
    """Decode a field that the pattern does not match: long strings, types without bounds, malformed bytes."""
    if not read_present(data, position):
        raise Unreadable("a struct has an invalid null marker")
    position += 1
    lower = upper = tight = None
    if column.decode is not None:
        lower, position = column.decode(data, position)
        upper, position = column.decode(data, position)
        tight, position = _read_tight(data, position)
    counts: list[int | None] = []
    for of_raw in (_count_of, _count_of, _count_of, _size_of, _size_of):
        present = read_present(data, position)
        position += 1
        if present:
            start = position
            _, position = read_long(data, start)
            counts.append(of_raw(data[start:position]))
        else:
            counts.append(None)
    return FieldStatistics(lower, upper, tight, *counts), position


def _read_tight(data: bytes, position: int) -> tuple[bool | None, int]:
    if not read_present(data, position):
        return None, position + 1
    value = data[position + 1]
    if value > 1:
        raise Unreadable("tight_bounds is not a boolean")
    return value == 1, position + 2
