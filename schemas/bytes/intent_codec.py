"""Intents as bytes: single-object Avro, a fast reader of plain appends, and JSON for small and hand-written ones.

Owns: the frame of every record on the log (`C3 01`, CRC-64-AVRO fingerprint, record) with the schemas that ship with
the package, both framings of an intent, the check of a record's size before it is expanded. Does not own: the model
and its shape rules (`intent`), locations (`intent_rules`), the check against the table (`rootline.tree`).
Invariants: any bytes yield an intent or `Invalid`. Memory stays proportional to the received bytes. A message names the
field and never repeats a large input. A record is decoded with exactly the schema that it names, to its last byte, and
records of released schemas are read by Avro's rules of evolution. The fast reader is one-sided: its results equal the
general reader's, field by field (a property test compares the two). Everything unusual or invalid is left to the
general reader, which also knows the reason.

Theory. Avro's reader makes one dictionary of 20 fields for an intent and one of 11 for its file, and the model checks
each field: 22 µs, most of it for null fields. In a plain append only a few fields have values. Three regular
expressions find these, and a record that matches them is valid. They accept only the shortest varints as numbers, and
only short texts, whose length is one byte. The location and the statistics are sliced by their lengths.

Source: format page, "Intents on the log", and the Avro specification, "Single-object encoding".
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from rootline.schemas.bytes.avro_encoding import NUMBER_OF
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent, IntentKind, Isolation
from rootline.schemas.intent_rules import DEFAULT_LIMITS, IntentLimits
from rootline.schemas.model_faults import reason_of

MARKER: Final = b"\xc3\x01"
_FRAME_BYTES: Final = 10
_DECODING_ERRORS: Final = (
    ValueError,  # of which UnicodeDecodeError
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    StopIteration,
)


class RecordFraming:
    """The framing of records of one schema. It encodes with that schema, and also decodes records of its earlier
    versions.
    """

    def __init__(self, schema: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        self._schema = fastavro.parse_schema(dict(schema))
        self._fingerprint = fingerprint_of(schema)
        self._prefix = MARKER + self._fingerprint
        self._earlier = {fingerprint_of(older): fastavro.parse_schema(dict(older)) for older in earlier}

    @property
    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the schema's canonical form, little-endian as in Avro's single-object encoding."""
        return self._fingerprint

    @property
    def prefix(self) -> bytes:
        """The bytes before a record: the marker and the fingerprint."""
        return self._prefix

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """The framed record."""
        sink = io.BytesIO()
        sink.write(self._prefix)
        fastavro.schemaless_writer(sink, self._schema, record, disable_tuple_notation=True)
        return sink.getvalue()

    def decode(self, value: bytes, *, name: str) -> dict[str, Any]:
        """The record in `value`. `name`: its name in errors.

        Raises:
            Invalid: `undecodable`, the frame, the fingerprint or the record cannot be read.
        """
        if value[:2] != MARKER or len(value) < _FRAME_BYTES:
            raise Invalid("undecodable", f"{name}: does not begin with the marker of single-object Avro, C3 01")
        source = io.BytesIO(value)
        source.seek(_FRAME_BYTES)
        try:
            if value.startswith(self._prefix):
                record = fastavro.schemaless_reader(source, self._schema, None)
            else:
                record = self._decode_earlier(source, value[2:_FRAME_BYTES], name)
        except _DECODING_ERRORS as error:
            raise Invalid("undecodable", f"{name}: not a record of its schema: {_brief(error)}") from error
        if source.tell() != len(value):
            raise Invalid("undecodable", f"{name}: {len(value) - source.tell()} bytes follow the record")
        return record  # type: ignore[return-value]  # the schema is a record's

    def _decode_earlier(self, source: io.BytesIO, named: bytes, name: str) -> Any:
        writer_schema = self._earlier.get(named)
        if writer_schema is None:
            raise Invalid("undecodable", f"{name}: no schema with fingerprint {named.hex()} is known")
        return fastavro.schemaless_reader(source, writer_schema, self._schema)


def fingerprint_of(schema: Mapping[str, Any]) -> bytes:
    """CRC-64-AVRO of the canonical form of `schema`, 8 bytes little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO"))


@cache
def shipped_schema(name: str) -> Mapping[str, Any]:
    """The schema `avro/<name>.avsc` of this package."""
    text = files("rootline.schemas").joinpath("avro", f"{name}.avsc").read_text("utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__} {error!s:.100}".strip()


_NAMES: Final = list(Intent.model_fields)
_LATER: Final = {
    name: Intent.model_fields[name].get_default(call_default_factory=True)
    for name in _NAMES[_NAMES.index("add_data_files") + 1 :]
}
"""The fields after `add_data_files`, all absent in this form."""
_LATER_BYTES: Final = len(shipped_schema("intent")["fields"]) - _NAMES.index("add_data_files") - 1
"""The number of bytes of these fields in the schema. Each is null or an empty list, which is one zero byte."""
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
    """The intent in a record's `value`, or `None` if the general reader must read it. The size is already checked."""
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
    """The name of a table or writer in `with_length`. All intents share one string object of each name, whose hash is
    already computed.
    """
    return with_length[1:].decode()


@lru_cache(maxsize=1024)
def _uuid_of(text: bytes) -> uuid.UUID | None:
    return uuid.UUID(text.decode()) if _UUID.fullmatch(text) else None


CONTENT_TYPE_HEADER: Final = "content-type"
JSON_CONTENT_TYPE: Final = b"application/json"
EARLIER_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = (shipped_schema("intent_1"), shipped_schema("intent_2"))
"""Schemas of released versions before this one."""
_FRAMING: Final = RecordFraming(shipped_schema("intent"), EARLIER_VERSIONS)
_FRAMING_WITH_PAGE: Final = RecordFraming(shipped_schema("intent_4"))
"""Only for intents that `intent.avsc` cannot represent. Coordinators that do not know it reject it as `undecodable`."""
_FILE_LISTS: Final = (
    "add_data_files",
    "add_equality_deletes",
    "add_vectors",
    "add_manifests",
    "remove_files",
    "replaces",
    "reaffiliate",
)
_FILES_WITH_STATISTICS: Final = ("add_data_files", "add_equality_deletes")
_JSON_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_STEP: Final = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


def encode_intent(intent: Intent) -> bytes:
    """The intent in single-object Avro.

    Raises:
        Invalid: `intent-malformed`, a bound is a JSON value, or a number does not fit its Avro type.
    """
    for file in (*intent.add_data_files, *intent.add_equality_deletes):
        if any(item.lower_value is not None or item.upper_value is not None for item in file.statistics):
            raise Invalid(
                "intent-malformed",
                f"intent {intent.intent_id}: {file.location} has bounds as JSON values; "
                "give lower_bound and upper_bound as bytes, or send the intent as JSON",
            )
    framing = _FRAMING if intent.page is None else _FRAMING_WITH_PAGE
    record = intent.model_dump(exclude={"page"} if intent.page is None else None)
    if intent.table_uuid is not None:
        record["table_uuid"] = str(intent.table_uuid)
    try:
        return framing.encode(record)
    except (ValueError, OverflowError, TypeError) as error:
        raise Invalid("intent-malformed", f"intent {intent.intent_id}: {error!s:.200}") from error


def encode_intent_json(intent: Intent) -> bytes:
    """The intent as JSON, without defaults, bytes in base64. Publish it with `content-type: application/json`."""
    return intent.model_dump_json(exclude_defaults=True).encode()


def decode_intent(
    value: bytes, headers: Mapping[str, bytes] | None = None, limits: IntentLimits = DEFAULT_LIMITS
) -> Intent:
    """The intent in a record's `value`. It is JSON if its `headers` state so or if it begins like a JSON object.

    Raises:
        Invalid: `undecodable`, `intent-malformed`, `kind-unknown` or `intent-too-large`.
    """
    size = len(value) + sum(len(name) + len(held) for name, held in headers.items()) if headers else len(value)
    if size > limits.max_bytes:
        raise _too_large(f"{size} bytes with its headers, of {limits.max_bytes} allowed")
    if (headers or value[:2] != MARKER) and _is_json(value, headers):
        return _decode_json(value, limits)
    plain = read_fast_append(value, limits)
    if plain is not None:
        return plain
    framing = _FRAMING_WITH_PAGE if value.startswith(_FRAMING_WITH_PAGE.prefix) else _FRAMING
    record = framing.decode(value, name="intent")
    record.setdefault("page", None)
    _check_counts(record, limits)
    try:
        intent = Intent.model_validate(record)
    except ValidationError as error:
        raise _explained(error) from None
    _check_locations(intent, limits)
    return intent


def begins_like_json(value: bytes) -> bool:
    """Whether `value` is read as JSON if no header states a content type. No record in single-object Avro begins like
    JSON.
    """
    return value[:64].lstrip()[:1] == b"{"


def _is_json(value: bytes, headers: Mapping[str, bytes] | None) -> bool:
    if headers and headers.get(CONTENT_TYPE_HEADER, b"").partition(b";")[0].strip().lower() == JSON_CONTENT_TYPE:
        return True
    return begins_like_json(value)  # not every log stores headers


def _decode_json(value: bytes, limits: IntentLimits) -> Intent:
    brackets = _JSON_STRINGS.sub(b"", value).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_DEPTH_STEP.__getitem__, brackets)), default=0) > limits.max_nesting:
        raise _too_large(f"more than {limits.max_nesting} levels of nesting")
    try:
        record = from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise Invalid("undecodable", f"intent: not JSON: {error!s:.100}") from None
    if not isinstance(record, dict):
        raise Invalid("undecodable", "intent: its JSON is not an object")
    _check_counts(record, limits)
    try:
        intent = Intent.model_validate_json(value, strict=True)
    except ValidationError as error:
        raise _explained(error) from None
    _check_locations(intent, limits)
    return intent


def _check_counts(record: Mapping[str, Any], limits: IntentLimits) -> None:
    lists = {name: held for name in _FILE_LISTS if isinstance(held := record.get(name), list)}
    count = sum(map(len, lists.values()))
    if count > limits.max_files:
        raise _too_large(f"{count} files, of {limits.max_files} allowed")
    for name in _FILES_WITH_STATISTICS:
        for index, file in enumerate(lists.get(name, ())):
            columns = file.get("statistics") if isinstance(file, dict) else None
            if isinstance(columns, list) and len(columns) > limits.max_statistics_columns:
                raise _too_large(
                    f"{name}.{index} has statistics of {len(columns)} columns, "
                    f"of {limits.max_statistics_columns} allowed"
                )


def _check_locations(intent: Intent, limits: IntentLimits) -> None:
    for location in _locations(intent):
        if len(location) > limits.max_location_chars:
            raise _too_large(
                f"a location of {len(location)} characters, of {limits.max_location_chars} allowed: {location[:40]!r}…"
            )


def _locations(intent: Intent) -> Iterable[str]:
    for file in (*intent.add_data_files, *intent.add_equality_deletes):
        yield file.location
    for vector in intent.add_vectors:
        yield vector.location
        yield vector.referenced_file
        if vector.replaces_vector is not None:
            yield vector.replaces_vector.location
    for leaf in intent.add_manifests:
        yield leaf.location
        if leaf.referenced_file is not None:
            yield leaf.referenced_file
    yield from intent.replaces
    for moved in intent.reaffiliate:
        yield moved.location
        if moved.referenced_file is not None:
            yield moved.referenced_file
    if intent.adopt is not None:
        yield intent.adopt.location
    if intent.page is not None:
        yield intent.page.location
    for removed in intent.remove_files:
        yield removed.location
        if removed.vector is not None:
            yield removed.vector.location


def _too_large(what: str) -> Invalid:
    return Invalid(
        "intent-too-large", f"intent: {what}; split it, or write a leaf manifest and publish a reference to it"
    )


def _explained(error: ValidationError) -> Invalid:
    details = error.errors(include_url=False, include_context=False)
    for item in details:
        if item["loc"] == ("kind",) and isinstance(item["input"], str):
            kinds = ", ".join(IntentKind)
            return Invalid("kind-unknown", f"intent: kind {item['input'][:40]!r} is none of {kinds}")
    shown = "; ".join(map(_field_and_reason, details[:3]))
    rest = f"; and {len(details) - 3} more" if len(details) > 3 else ""
    return Invalid("intent-malformed", f"intent: {shown}{rest}")


def _field_and_reason(item: ErrorDetails) -> str:
    path = ".".join(str(part)[:64] for part in item["loc"][:6])
    reason = reason_of(item)[:200]
    text = f"{path}: {reason}" if path else reason
    return "".join(char if char.isprintable() else "?" for char in text)
