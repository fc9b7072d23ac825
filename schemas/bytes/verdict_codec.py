"""Verdicts and dead letters as bytes, framed like intents.

Owns: the framing. Does not own: the models (`verdict`), the time of publishing.
Invariants: encoding and decoding are inverse. One record may contain many verdicts.

Verdicts are encoded by hand, field by field, in a quarter of fastavro's time. A property test compares the bytes with
those of fastavro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_long, encode_optional_long, encode_string
from rootline.schemas.bytes.intent_codec import RecordFraming, shipped_schema
from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import invalid_model
from rootline.schemas.verdict import DeadLetter, Verdict

EARLIER_VERDICT_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = ()
EARLIER_DEAD_LETTER_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = (shipped_schema("dead_letter_1"),)
_VERDICTS: Final = RecordFraming(shipped_schema("verdict"), EARLIER_VERDICT_VERSIONS)
_DEAD_LETTER: Final = RecordFraming(shipped_schema("dead_letter"), EARLIER_DEAD_LETTER_VERSIONS)


def encode_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """One record of all `verdicts`, in order."""
    parts = [_VERDICTS.prefix]
    if verdicts:
        parts.append(encode_long(len(verdicts)))
        for verdict in verdicts:
            parts += (
                encode_string(verdict.intent_id),
                _repeated_text(verdict.table),
                _repeated_text(verdict.kind),
                _repeated_text(verdict.log),
                encode_long(verdict.partition),
                encode_long(verdict.offset),
                _repeated_number(verdict.version),
                _repeated_number(verdict.snapshot_id),
                encode_optional_long(verdict.sequence_number),
                NULL if verdict.code is None else PRESENT + _repeated_text(verdict.code),
                NULL if verdict.message is None else PRESENT + encode_string(verdict.message),
            )
    parts.append(NULL)
    return b"".join(parts)


def json_verdict(verdict: Verdict) -> bytes:
    """One verdict as JSON, without absent fields. Snapshot ids are 64-bit numbers."""
    return verdict.model_dump_json(exclude_none=True).encode()


# values that the verdicts of a batch share
_repeated_text: Final = lru_cache(maxsize=1024)(encode_string)
_repeated_number: Final = lru_cache(maxsize=1024)(encode_optional_long)


def decode_verdicts(value: bytes) -> list[Verdict]:
    """The verdicts of one record.

    Raises:
        Invalid: `undecodable`, the bytes are not such a record.

    """
    record = _VERDICTS.decode(value, name="verdict record")
    try:
        return [Verdict.model_validate(item) for item in record["verdicts"]]
    except ValidationError as error:
        raise _undecodable("verdict record", error) from None


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """One record of one dead letter."""
    headers = [{"name": name, "value": value} for name, value in letter.headers]
    return _DEAD_LETTER.encode({**letter.__dict__, "headers": headers})


def decode_dead_letter(value: bytes) -> DeadLetter:
    """The dead letter of one record. Raises `Invalid` (`undecodable`) if the bytes are not one."""
    record = _DEAD_LETTER.decode(value, name="dead letter")
    headers = tuple((header["name"], header["value"]) for header in record["headers"])
    try:
        return DeadLetter.model_validate({**record, "headers": headers})
    except ValidationError as error:
        raise _undecodable("dead letter", error) from None


def _undecodable(name: str, error: ValidationError) -> Invalid:
    return Invalid("undecodable", invalid_model(name, error).message)
