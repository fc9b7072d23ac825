"""The commonest intent read straight from its bytes: an append of one data file with encoded statistics.

Owns: recognising that form, and reading it. Does not own: the schema and every other form (`intent_codec`), the
model (`intent`), statistics.
Invariants: one-sided. What is read here equals what the general way reads, field by field (a property test compares the
two); whatever is unusual, or wrong, is left to the general way, which knows the reason too.

Theory. Avro's reader makes a dictionary of 20 and one of 11 fields, and the model checks each of them: 22 µs, most of
it for fields that are null. In this form all that varies is in a few places, so that three patterns find them, and what
they match is proven by matching. Numbers are accepted as shortest varints, short texts with their length in one byte;
the location and the statistics are cut out by their lengths.
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from typing import Final

from rootline.schemas.bytes.log.avro_framing import MARKER, fingerprint_of, shipped_schema
from rootline.schemas.bytes.values.avro_primitives import NUMBER_OF
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.intent import DataFile, Intent, IntentKind, Isolation
from rootline.schemas.intent_limits import IntentLimits

_NAMES: Final = list(Intent.model_fields)
_LATER: Final = {
    name: Intent.model_fields[name].get_default(call_default_factory=True)
    for name in _NAMES[_NAMES.index("add_data_files") + 1 :]
}
"""The fields after `add_data_files`, in this form all absent."""
_LATER_BYTES: Final = len(shipped_schema("intent")["fields"]) - _NAMES.index("add_data_files") - 1
"""Of those that the schema has: nulls and empty lists, each of which is a zero byte."""
_TEXT_BYTES_MAX: Final = 63
_TEXT: Final = b"|".join(b"\\x%02x.{%d}" % (2 * length, length) for length in range(1, _TEXT_BYTES_MAX + 1))
_EVEN, _EVEN_FIRST = (b"".join(b"\\x%02x" % byte for byte in range(start, start + 128, 2)) for start in (0, 128))
_LONG: Final = rb"[%b]|[%b](?:[\x80-\xff]{0,7}+[\x01-\x7f]|[\x80-\xff]{8}\x01)" % (_EVEN, _EVEN_FIRST)
_INT: Final = rb"[%b]|[%b](?:[\x80-\xff]{0,2}+[\x01-\x7f]|[\x80-\xff]{3}[\x01-\x0f])" % (_EVEN, _EVEN_FIRST)


def _nullable(pattern: bytes) -> bytes:
    return rb"(?:\x02(%b)|\x00)" % pattern


def _compiled(*parts: bytes) -> re.Pattern[bytes]:
    return re.compile(b"".join(parts), re.DOTALL)


_HEAD: Final = _compiled(
    re.escape(MARKER + fingerprint_of(shipped_schema("intent"))),
    b"(%b)(%b)" % (_TEXT, _TEXT),  # intent_id, table
    rb"(?:\x02\x48(.{36})|\x00)",  # table_uuid
    rb"\x0cappend",
    _nullable(_TEXT),  # writer_id
    _nullable(_LONG),  # writer_sequence
    _nullable(_INT),  # schema_id
    _nullable(_LONG),  # read_version
    _nullable(_LONG),  # read_sequence_number
    rb"\x10snapshot\x00",  # isolation, filter
    rb"\x02(%b)" % _INT,  # one data file, the length of its location
)
_SIZES: Final = _compiled(
    rb"(\x0eparquet|\x06orc|\x08avro)",
    b"(%b)(%b)(%b)" % (_INT, _LONG, _LONG),  # partition_spec_id, record_count, file_size_in_bytes
    rb"\x02(%b)" % _INT,  # the length of content_stats
)
_REST: Final = _compiled(
    rb"\x02\x10(.{8})\x00",  # stats_schema, no statistics in the generic form
    _nullable(_INT),  # sort_order_id
    rb"(?:\x00|\x02([\x02-\x7e])((?:%b)+?)\x00)" % _LONG.replace(rb"[\x00", b"[", 1),  # split_offsets, none of them 0
    rb"\x00{%d}\Z" % (2 + _LATER_BYTES),  # no key_metadata, no further file, nothing in any later field
)
_OFFSETS: Final = re.compile(_LONG)
_UUID: Final = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_FORMATS: Final = {
    b"\x0eparquet": FileFormat.PARQUET,
    b"\x06orc": FileFormat.ORC,
    b"\x08avro": FileFormat.AVRO,
}


def read_fast_append(value: bytes, limits: IntentLimits) -> Intent | None:
    """The intent in a record's `value`; `None`: ask the general way. The record's size has been checked."""
    head = _HEAD.match(value)
    if head is None or limits.max_files < 1:
        return None
    intent_id, table, named_uuid, writer_id, sequence, schema_id, version, number, length = head.groups()
    end = head.end() + NUMBER_OF[length]
    sizes = _SIZES.match(value, end)
    if sizes is None or (writer_id is None) != (sequence is None):
        return None
    file_format, spec_id, record_count, size, stats_length = sizes.groups()
    stats_start = sizes.end()
    stats_end = stats_start + NUMBER_OF[stats_length]
    rest = _REST.match(value, stats_end)
    if rest is None:
        return None
    stats_schema, sort_order_id, offset_count, offsets = rest.groups()
    split_offsets = None
    if offset_count is not None:
        split_offsets = tuple(map(NUMBER_OF.__getitem__, _OFFSETS.findall(offsets)))
        if 2 * len(split_offsets) != offset_count[0] or list(split_offsets) != sorted(split_offsets):
            return None
    table_uuid = None
    if named_uuid is not None:
        table_uuid = _uuid_of(named_uuid)
        if table_uuid is None:
            return None
    try:
        location = value[head.end() : end].decode()
        if len(location) > limits.max_location_chars:
            return None
        data_file = DataFile.proven(
            {
                "location": location,
                "file_format": _FORMATS[file_format],
                "partition_spec_id": NUMBER_OF[spec_id],
                "record_count": NUMBER_OF[record_count],
                "file_size_in_bytes": NUMBER_OF[size],
                "content_stats": value[stats_start:stats_end],
                "stats_schema": stats_schema,
                "statistics": (),
                "sort_order_id": None if sort_order_id is None else NUMBER_OF[sort_order_id],
                "split_offsets": split_offsets,
                "key_metadata": None,
            }
        )
        return Intent.proven(
            {
                "intent_id": intent_id[1:].decode(),
                "table": _repeated_text(table),
                "table_uuid": table_uuid,
                "kind": IntentKind.APPEND,
                "writer_id": None if writer_id is None else _repeated_text(writer_id),
                "writer_sequence": None if sequence is None else NUMBER_OF[sequence],
                "schema_id": None if schema_id is None else NUMBER_OF[schema_id],
                "read_version": None if version is None else NUMBER_OF[version],
                "read_sequence_number": None if number is None else NUMBER_OF[number],
                "isolation": Isolation.SNAPSHOT,
                "filter": None,
                "add_data_files": (data_file,),
                **_LATER,
                "summary": {},
            }
        )
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=4096)
def _repeated_text(with_length: bytes) -> str:
    """Of tables and writers: one string for all intents that name it, so that its hash is known already."""
    return with_length[1:].decode()


@lru_cache(maxsize=1024)
def _uuid_of(text: bytes) -> uuid.UUID | None:
    return uuid.UUID(text.decode()) if _UUID.fullmatch(text) else None
