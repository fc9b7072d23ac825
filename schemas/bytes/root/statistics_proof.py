"""A fast proof that the `content_stats` of a file break no rule, without decoding them: one regular expression for the
whole record.

Owns: the pattern of a table's records, and the comparisons of its groups. Does not own: the decoder and its error
messages (`statistics_codec`), the rules (`rootline.tree.proof.file_proof`).
Invariants: the decoder and the rules accept everything that is proven here (a property test compares the two). A record
that is not proven may still be valid: the decoder decides, and gives the reason.

Theory. Decoding 20 columns takes 40 µs because every value becomes an object, and the values are not needed soon. But
nearly all records have one plain form. So the record is matched once, in C, and only values that a rule compares are
captured. Of numbers only the shortest varint is accepted. Varints of one sign are ordered like their bytes read as a
little-endian number: the continuation bits of two varints of one length are the same, and a longer one is greater. The
matched bytes begin with the file's number of rows, so that the pattern can require an equal value count by a
back-reference. The pattern does not contain unusual forms, because they would make the match of every record slower.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import ge, itemgetter, le
from typing import Final, Literal

from pyiceberg.types import DecimalType, FixedType, PrimitiveType

from rootline.schemas.bytes.avro_encoding import encode_long, long_of_varint
from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, decimal_size_in_bytes, kind_of
from rootline.schemas.table_definition import TrackedField

COLUMNS_MAX: Final = 128
"""The most columns of a table with a pattern: compiling one takes up to a millisecond per column."""
ASKED_IN_VAIN: Final = 16
"""Calls after which a pattern is compiled. Most tables of a newly started process get fewer files."""
_TEXT_BYTES_MAX: Final = 63  # its length fits in one byte, and our writers truncate bounds to 16 characters

_Groups = Sequence[bytes]
_Pick = Callable[[_Groups], _Groups]
_Check = Callable[[_Groups], bool]


def _varint(odd: bool, *longer: bytes) -> bytes:
    """A pattern of the shortest varints of zigzag numbers that are even (values of 0 or more) or odd (values below 0):
    one byte, or a first byte continued as in `longer`.
    """
    one, first = (b"".join(b"\\x%02x" % byte for byte in range(start + odd, start + 128, 2)) for start in (0, 128))
    return b"(?:[%b]|[%b](?:%b))" % (one, first, b"|".join(longer))


_32_BITS: Final = (rb"[\x80-\xff]{0,2}+[\x01-\x7f]", rb"[\x80-\xff]{3}[\x01-\x0f]")
_64_BITS: Final = (rb"[\x80-\xff]{0,7}+[\x01-\x7f]", rb"[\x80-\xff]{8}\x01")
_BITS: Final = {
    **dict.fromkeys(("int", "date"), _32_BITS),
    **dict.fromkeys(("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), _64_BITS),
}
_COUNT: Final = _varint(False, *_64_BITS)
_SIZE: Final = _varint(False, *_32_BITS)
_TEXT: Final = b"(?:%b)" % b"|".join(b"\\x%02x.{%d}" % (2 * length, length) for length in range(_TEXT_BYTES_MAX + 1))
_WIDTHS: Final = {"boolean": rb"[\x00\x01]", "float": b".{4}", "double": b".{8}", "uuid": b".{16}"}
_TEXTUAL: Final = ("string", "binary")
_FLOATING: Final = ("float", "double")


class StatisticsProof:
    """Proves by one regular expression that encoded statistics of a table's files are valid.

    The pattern is compiled by `prepare`, or at the 16th call of `proves` (`ASKED_IN_VAIN`), because compiling it takes
    longer than decoding a few files. Until then `proves` returns `False`.

    Args:
        tracked: columns and expressions, in the order of the record's fields.
    """

    def __init__(self, tracked: Sequence[TrackedField]) -> None:
        self._tracked = tuple(tracked)
        self._pattern: _Pattern | None = None
        self._asked = 0

    def prepare(self) -> None:
        """Compile the pattern now, unless the table has more than `COLUMNS_MAX` columns. Such a table never gets a
        pattern.
        """
        if self._pattern is None and len(self._tracked) <= COLUMNS_MAX:
            self._pattern = _Pattern(self._tracked)

    def proves(self, encoded: bytes, record_count: int, partition_ids: Collection[int]) -> bool:
        """Whether `encoded` is proven to be valid statistics of a file. After `False`, the decoder must check them.

        Args:
            encoded: one `content_stats` record.
            record_count: rows of the file, 0 or more.
            partition_ids: of the file's spec. Each must have a value, with equal lower and upper bounds.
        """
        pattern = self._pattern
        if pattern is None:
            self._asked += 1
            if self._asked == ASKED_IN_VAIN:
                self.prepare()
            return False
        found = pattern.match(encode_long(record_count) + encoded)
        if found is None:
            return False
        groups = found.groups(b"")
        for check in pattern.checks:
            if not check(groups):
                return False
        for partition_id in partition_ids:
            bounds = pattern.bounds.get(partition_id)
            if bounds is None or not groups[bounds[0]] or groups[bounds[0]] != groups[bounds[1]]:
                return False
        return True


class _Pattern:
    """A table's regular expression, and the comparisons between the values that its groups capture. A group that did
    not match is empty.

    `bounds`: column or expression id → the numbers of the groups of its lower and upper bound. The groups are empty if
    the bounds are null or negative numbers.
    """

    def __init__(self, tracked: Sequence[TrackedField]) -> None:
        self.bounds: dict[int, tuple[int, int]] = {}
        self._groups = 1  # the first is the number of rows
        self._pairs: dict[str, tuple[list[int], list[int]]] = {}
        self._nulls: list[int] = []
        self._beside_nans: tuple[list[int], list[int]] = ([], [])
        columns = b"".join([rb"(?:\x02%b|\x00)" % self._column(field) for field in tracked])
        self.match = re.compile(rb"(?P<rows>%b)%b\Z" % (_COUNT, columns), re.DOTALL).match
        self.checks = list(self._checks({kind_of(field.type): field.type for field in tracked}))

    def _group(self, pattern: bytes, noted: list[int]) -> bytes:
        noted.append(self._groups)
        self._groups += 1
        return b"(%b)" % pattern

    def _pair(self, compared_as: str, pattern: bytes) -> tuple[bytes, bytes]:
        """Two groups, the first of which must capture the lesser value. `compared_as` is the kind of comparison."""
        lesser, greater = self._pairs.setdefault(compared_as, ([], []))
        return self._group(pattern, lesser), self._group(pattern, greater)

    def _column(self, field: TrackedField) -> bytes:
        kind = kind_of(field.type)
        bounds = b"" if kind == COUNTS_ONLY else self._bounds(field, kind) + rb"(?:\x02[\x00\x01]|\x00)"
        nulls = rb"(?:\x02(?:\x00|%b)|\x00)" % self._group(_COUNT, self._nulls)
        nans = rb"(?:\x02\x00|\x00)"
        if kind in _FLOATING:
            self._beside_nans[0].append(self._groups - 1)
            nans = rb"(?:\x02(?:\x00|%b)|\x00)" % self._group(_COUNT, self._beside_nans[1])
        return bounds + rb"(?:\x02(?P=rows)|\x00)" + nulls + nans + self._sizes(kind)

    def _bounds(self, field: TrackedField, kind: str) -> bytes:
        """The pattern of a column's bounds, which are either both present or both null."""
        self.bounds[field.tracked_id] = (self._groups, self._groups + 1)
        bits = _BITS.get(kind)
        if bits is None:
            value = _TEXT if kind in _TEXTUAL else _WIDTHS.get(kind) or b".{%d}" % _size_of(field.type)
            return rb"(?:\x02%b\x02%b|\x00\x00)" % self._pair(kind, value)
        even, odd = _varint(False, *bits), _varint(True, *bits)
        pairs = (*self._pair("number", even), *self._pair("negative", odd), odd, even)
        return rb"(?:\x02(?:%b\x02%b|%b\x02%b|%b\x02%b)|\x00\x00)" % pairs

    def _sizes(self, kind: str) -> bytes:
        """The pattern of average and maximum size. They are equal for types whose values have one size."""
        if kind in _TEXTUAL:
            return rb"(?:\x02%b|\x00)(?:\x02%b|\x00)" % self._pair("number", _SIZE)
        name = b"size%d" % self._groups
        self._groups += 1
        return rb"(?:\x00\x00|\x02(?P<%b>%b)\x02(?P=%b))" % (name, _SIZE, name)

    def _checks(self, types: dict[str, PrimitiveType]) -> Iterator[_Check]:
        for compared_as, places in self._pairs.items():
            lesser, greater = map(_picking, places)
            if compared_as in _COMPARED:
                yield _COMPARED[compared_as](lesser, greater)
            elif isinstance(decimal := types[compared_as], DecimalType):
                yield _decimals_ascend(10**decimal.precision, lesser, greater)
            else:
                yield _bytes_ascend(lesser, greater)
        yield _nulls_fit(_picking(self._nulls))
        nulls, nans = self._beside_nans
        if nans:
            yield _nans_fit(_picking(nulls), _picking(nans))


def _size_of(field_type: PrimitiveType) -> int:
    if isinstance(field_type, DecimalType):
        return decimal_size_in_bytes(field_type.precision)
    return len(field_type) if isinstance(field_type, FixedType) else 0


def _picking(places: Sequence[int]) -> _Pick:
    if len(places) == 1:
        only = slice(places[0], places[0] + 1)
        return lambda groups: groups[only]
    return itemgetter(*places) if places else lambda groups: ()


_Little = Literal["little"]
_number: Final[Callable[[bytes, _Little], int]] = int.from_bytes
_LITTLE: Final[repeat[_Little]] = repeat("little")


def _numbers_ascend(lesser: _Pick, greater: _Pick) -> _Check:
    def check(groups: _Groups) -> bool:
        return all(map(le, map(_number, lesser(groups), _LITTLE), map(_number, greater(groups), _LITTLE)))

    return check


def _negatives_ascend(lesser: _Pick, greater: _Pick) -> _Check:
    def check(groups: _Groups) -> bool:
        found = lesser(groups)
        return not any(found) or all(map(ge, map(_number, found, _LITTLE), map(_number, greater(groups), _LITTLE)))

    return check


def _bytes_ascend(lesser: _Pick, greater: _Pick) -> _Check:
    return lambda groups: all(map(le, lesser(groups), greater(groups)))


def _binaries_ascend(lesser: _Pick, greater: _Pick) -> _Check:
    def check(groups: _Groups) -> bool:
        return all(map(le, map(_without_length, lesser(groups)), map(_without_length, greater(groups))))

    return check


def _strings_ascend(lesser: _Pick, greater: _Pick) -> _Check:
    """Compare strings as UTF-8 bytes, which are ordered like their code points.

    All strings are decoded together, with their lengths of one byte between them. The result is valid if each one is.
    """

    def check(groups: _Groups) -> bool:
        lower, upper = lesser(groups), greater(groups)
        try:
            b"".join((*lower, *upper)).decode()
        except UnicodeDecodeError:
            return False
        return all(map(le, map(_without_length, lower), map(_without_length, upper)))

    return check


_without_length: Final[Callable[[bytes], bytes]] = itemgetter(slice(1, None))


def _floats_ascend(code: str, lesser: _Pick, greater: _Pick) -> _Check:
    """Compare floats pairwise. A column has both bounds or neither, so both lists have the same length. NaN fails every
    comparison.
    """
    size = struct.calcsize(code)

    def check(groups: _Groups) -> bool:
        lower, upper = b"".join(lesser(groups)), b"".join(greater(groups))
        layout = f"<{len(lower) // size}{code}"
        return all(map(le, struct.unpack(layout, lower), struct.unpack(layout, upper)))

    return check


def _decimals_ascend(limit: int, lesser: _Pick, greater: _Pick) -> _Check:
    def check(groups: _Groups) -> bool:
        return all(
            -limit < int.from_bytes(lower, "big", signed=True) <= int.from_bytes(upper, "big", signed=True) < limit
            for lower, upper in zip(lesser(groups), greater(groups), strict=True)
        )

    return check


def _nulls_fit(nulls: _Pick) -> _Check:
    """Check that no column has more nulls than the file has rows. If all counts have one byte and the number of rows
    has more, no number is decoded.
    """

    def check(groups: _Groups) -> bool:
        rows, found = groups[0], nulls(groups)
        if len(rows) > 1 and b"".join(found).isascii():
            return True
        return max(map(_number, found, _LITTLE), default=0) <= _number(rows, "little")

    return check


def _nans_fit(nulls: _Pick, nans: _Pick) -> _Check:
    def check(groups: _Groups) -> bool:
        found = nans(groups)
        if not any(found):
            return True
        rows = long_of_varint(groups[0])
        return all(
            long_of_varint(null) + long_of_varint(nan) <= rows for null, nan in zip(nulls(groups), found, strict=True)
        )

    return check


_COMPARED: Final[dict[str, Callable[[_Pick, _Pick], _Check]]] = {
    "number": _numbers_ascend,
    "negative": _negatives_ascend,
    "string": _strings_ascend,
    "binary": _binaries_ascend,
    "float": partial(_floats_ascend, "f"),
    "double": partial(_floats_ascend, "d"),
}
