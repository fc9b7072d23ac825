"""Intents as bytes: single-object Avro, and JSON for small and hand-written ones.

Owns: both framings, and measuring what arrives before it is expanded. Does not own: the model and its shape rules
(`intent`), whether locations are allowed (`location_rules`), whether the change is possible (`rootline.tree`).
Invariants: any bytes give an intent or `Invalid`; memory stays in proportion to the bytes that arrived; a message
names the field, and never repeats a large input.

Source: format page, "Intents on the log".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from rootline.schemas.bytes.log.avro_framing import MARKER, RecordFraming, shipped_schema
from rootline.schemas.bytes.log.fast_append import read_fast_append
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_limits import DEFAULT_LIMITS, IntentLimits
from rootline.schemas.model_faults import reason_of

CONTENT_TYPE_HEADER: Final = "content-type"
JSON_CONTENT_TYPE: Final = b"application/json"
EARLIER_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = (shipped_schema("intent_1"), shipped_schema("intent_2"))
"""Schemas of released versions before this one."""
_FRAMING: Final = RecordFraming(shipped_schema("intent"), EARLIER_VERSIONS)
_FRAMING_WITH_PAGE: Final = RecordFraming(shipped_schema("intent_4"))
"""For what `intent.avsc` cannot say, and nothing else: coordinators that do not know it answer `undecodable`."""
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
        Invalid: `intent-malformed`, a bound is given as a JSON value, or a number does not fit its Avro type.

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
    """The intent as JSON, defaults left out, bytes in base64; publish it with `content-type: application/json`."""
    return intent.model_dump_json(exclude_defaults=True).encode()


def decode_intent(
    value: bytes, headers: Mapping[str, bytes] | None = None, limits: IntentLimits = DEFAULT_LIMITS
) -> Intent:
    """The intent in a record's `value`, which is JSON if its `headers` say so or if it begins like a JSON object.

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
    """Whether `value` is taken for JSON without a header that says so: no single-object Avro begins like that."""
    return value[:64].lstrip()[:1] == b"{"


def _is_json(value: bytes, headers: Mapping[str, bytes] | None) -> bool:
    if headers and headers.get(CONTENT_TYPE_HEADER, b"").partition(b";")[0].strip().lower() == JSON_CONTENT_TYPE:
        return True
    return begins_like_json(value)  # not every log carries headers


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
