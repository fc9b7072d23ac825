"""Verdicts and dead letters as bytes, framed as intents are.

Owns: the framing. Does not own: the models (`verdict`, `dead_letter`), when they are published.
Invariants: what was encoded decodes to the same; one record may carry many verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from rootline.schemas.avro_framing import RecordFraming, shipped_schema
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import Verdict

EARLIER_VERDICT_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = ()
EARLIER_DEAD_LETTER_VERSIONS: Final[tuple[Mapping[str, Any], ...]] = ()
_VERDICTS: Final = RecordFraming(shipped_schema("verdict"), EARLIER_VERDICT_VERSIONS)
_DEAD_LETTER: Final = RecordFraming(shipped_schema("dead_letter"), EARLIER_DEAD_LETTER_VERSIONS)


def encode_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """One record of all `verdicts`, in their order."""
    return _VERDICTS.encode({"verdicts": [verdict.__dict__ for verdict in verdicts]})


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
    return _DEAD_LETTER.encode(letter.__dict__)


def decode_dead_letter(value: bytes) -> DeadLetter:
    """The dead letter of one record; `Raises` as `decode_verdicts`."""
    record = _DEAD_LETTER.decode(value, name="dead letter")
    try:
        return DeadLetter.model_validate(record)
    except ValidationError as error:
        raise _undecodable("dead letter", error) from None


def _undecodable(name: str, error: ValidationError) -> Invalid:
    first = error.errors(include_url=False, include_input=False)[0]
    return Invalid("undecodable", f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']:.200}")
