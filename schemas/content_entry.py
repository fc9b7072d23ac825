"""The content entry: one row of a root or leaf manifest, with its statistics.

Owns: the value types and enums of the entry, statistics of one column or expression and their rules, a fast
constructor for frozen values. Does not own: the allowed combinations (`entry_rules`), bytes (`entry_codec`,
`leaf_codec`, `statistics_codec`), aggregation and pruning (`rootline.tree`).
Invariants: values only, immutable. `None` means absent exactly where the specification calls a field optional. Bounds
are *physical* values: date is days, time and timestamps are micro- or nanoseconds since the epoch (int), uuid and
fixed are bytes, decimal is `decimal.Decimal`, string is str, binary is bytes. NaN is never a bound outside partition
values. An absent struct means "unknown". A value from the fast constructor equals one from the class's own.

Theory. A frozen dataclass forbids assignment, so its constructor calls `object.__setattr__` for each field: 1.5 µs for
the 16 fields of a content entry, where plain assignment takes 0.2 µs. `quick` makes a second class that is not frozen,
with the same slots and so the same memory layout. Its constructor assigns the fields and then changes the object's
class to the frozen one. This constructor is compiled from source, like that of any dataclass.

Source: the Single File Commits proposal, "V4 content entry structure".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def quick(made: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
    """A faster constructor of a frozen dataclass with slots, without `__post_init__`. Same arguments, same defaults."""
    frozen: Any = made
    members = fields(frozen)
    known: dict[str, Any] = {"frozen": frozen, "MISSING": MISSING}
    known |= {f"default_{item.name}": item.default for item in members}
    known |= {f"make_{item.name}": item.default_factory for item in members}
    lines = [
        f"def __init__(self, {', '.join(map(_parameter, members))}):",
        *map(_assignment, members),
        "    self.__class__ = frozen",
    ]
    exec("\n".join(lines), known)
    names = tuple(item.name for item in members)
    return type(frozen.__name__, (), {"__slots__": names, "__init__": known["__init__"]})


def _parameter(item: Field[Any]) -> str:
    if item.default is not MISSING:
        return f"{item.name}=default_{item.name}"
    return item.name if item.default_factory is MISSING else f"{item.name}=MISSING"


def _assignment(item: Field[Any]) -> str:
    if item.default_factory is MISSING:
        return f"    self.{item.name} = {item.name}"
    return f"    self.{item.name} = make_{item.name}() if {item.name} is MISSING else {item.name}"


Bound = bool | int | float | str | bytes | Decimal


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """The statistics of one column. `value_count` includes nulls and NaNs. Sizes are bytes of one value."""

    lower_bound: Bound | None = None
    upper_bound: Bound | None = None
    tight_bounds: bool | None = None
    value_count: int | None = None
    null_value_count: int | None = None
    nan_value_count: int | None = None
    avg_value_size_in_bytes: int | None = None
    max_value_size_in_bytes: int | None = None


ContentStats = Mapping[int, FieldStatistics]
"""Column or expression id → statistics. A partition value is the lower bound of an id in the spec."""


def same_statistics(one: ContentStats, other: ContentStats) -> bool:
    """Whether both contain the same statistics of the same columns. NaN, a possible partition value, equals NaN
    here.
    """
    return one.keys() == other.keys() and all(same_field(item, other[field_id]) for field_id, item in one.items())


def same_field(one: FieldStatistics | None, other: FieldStatistics | None) -> bool:
    """Whether the statistics of one column are equal, as in `same_statistics`."""
    if one == other or one is None or other is None:
        return one == other
    return _without_nan(one) == _without_nan(other) and all(
        same_bound(mine, theirs)
        for mine, theirs in ((one.lower_bound, other.lower_bound), (one.upper_bound, other.upper_bound))
    )


def same_bound(one: Bound | None, other: Bound | None) -> bool:
    """Whether two bounds are equal, with NaN equal to NaN."""
    return one == other or (one != one and other != other)


def _without_nan(item: FieldStatistics) -> FieldStatistics:
    low, high = item.lower_bound, item.upper_bound
    return replace(item, lower_bound=low if low == low else None, upper_bound=high if high == high else None)


MORE_NULLS: Final = "more nulls and NaNs than values"
GREATER_MEAN: Final = "avg_value_size_in_bytes is greater than max_value_size_in_bytes"
CROSSED_BOUNDS: Final = "the lower bound is above the upper bound"


def statistics_violations(item: FieldStatistics) -> Iterator[str]:
    """The contradictions in one column's statistics, a sentence for each rule that `item` breaks.

    The rules are code, because reading them from a table would take more than twice as long. `leaf_proof` has the
    same rules over columns, and `tests/tree/proof/test_leaf_proof.py` proves both equal.
    """
    values = item.value_count
    if values is not None and (item.null_value_count or 0) + (item.nan_value_count or 0) > values:
        yield MORE_NULLS
    mean, greatest = item.avg_value_size_in_bytes, item.max_value_size_in_bytes
    if mean is not None and greatest is not None and mean > greatest:
        yield GREATER_MEAN
    lower, upper = item.lower_bound, item.upper_bound
    if lower is not None and upper is not None and lower > upper:  # type: ignore[operator]
        yield CROSSED_BOUNDS


class ContentType(IntEnum):
    """The kind of object that an entry describes. 3, 4 and 5 occur in roots only."""

    DATA = 0
    POSITION_DELETE = 1
    EQUALITY_DELETE = 2
    DATA_MANIFEST = 3
    DELETE_MANIFEST = 4
    MANIFEST_DV = 5


LEAF_TYPES: Final = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)
FILE_TYPES: Final = (ContentType.DATA, ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE)
"""The types of the entries that may be in a leaf, too. Every other type occurs in roots only."""


class Status(IntEnum):
    """The entry's status, as in Iceberg: how the snapshot that wrote it changed the entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class FileFormat(StrEnum):
    """The format of the file at an entry's location."""

    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"
    PUFFIN = "puffin"


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """Status, snapshot id and sequence numbers. A `None` is inherited from the root row that names the leaf, for ADDED
    entries of a leaf only.
    """

    status: Status
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The place of a vector's bytes: a range of a Puffin file (bytes), or inline (portable 32-bit Roaring)."""

    offset: int | None = None
    size_in_bytes: int | None = None
    inline_content: bytes | None = None


@dataclass(frozen=True, slots=True)
class ManifestStats:
    """Counts over a leaf's entries when it was written. A manifest vector does not change them."""

    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    min_sequence_number: int


@dataclass(frozen=True, slots=True)
class ContentEntry:
    """One row of a manifest. `location` and `referenced_file` are relative to the table's prefix, or absolute."""

    content_type: ContentType
    location: str
    file_format: FileFormat
    version_info: VersionInfo
    partition_spec_id: int
    record_count: int
    file_size_in_bytes: int | None = None
    deletion_vector: DeletionVector | None = None
    sort_order_id: int | None = None
    manifest_stats: ManifestStats | None = None
    referenced_file: str | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    first_row_id: int | None = None
    content_stats: ContentStats = field(default_factory=dict)

    def with_version_info(self, version_info: VersionInfo) -> ContentEntry:
        """The same entry with another status and other numbers. `dataclasses.replace` takes three times as long."""
        return unchecked_entry(
            self.content_type,
            self.location,
            self.file_format,
            version_info,
            self.partition_spec_id,
            self.record_count,
            self.file_size_in_bytes,
            self.deletion_vector,
            self.sort_order_id,
            self.manifest_stats,
            self.referenced_file,
            self.key_metadata,
            self.split_offsets,
            self.equality_ids,
            self.first_row_id,
            self.content_stats,
        )

    @property
    def place(self) -> EntryPlace:
        """The identity of this entry among the live ones: content type, location and, in a Puffin file, the offset."""
        vector = self.deletion_vector
        return _place((self.content_type, self.location, None if vector is None else vector.offset))


class EntryPlace(NamedTuple):
    """The identity of a live entry. It includes the offset, because several vectors may share one Puffin file."""

    content_type: ContentType
    location: str
    content_offset: int | None = None


_place: Final = EntryPlace._make
unchecked_entry: Final = quick(ContentEntry)
unchecked_version_info: Final = quick(VersionInfo)
