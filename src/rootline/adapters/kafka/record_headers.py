"""The headers of verdict records on Kafka: which intents a record is about, so that readers need not decode it.

Owns: their names, and reading them back. Does not own: keys and values (`verdict_sink`), the headers of dead
letters (`dead_letter_headers`).
Invariants: names are on the wire and never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.intent_codec import CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE
from rootline.schemas.identifiers import Headers
from rootline.schemas.verdict import Verdict

LOG: Final = "rootline.log"
PARTITION: Final = "rootline.partition"
FIRST_OFFSET: Final = "rootline.first-offset"
LAST_OFFSET: Final = "rootline.last-offset"


@dataclass(frozen=True, slots=True)
class VerdictRange:
    """Which intents a verdict record is about: all between two offsets, or some of them."""

    log: str
    partition: int
    first: int
    last: int


def headers_of_verdicts(verdicts: Sequence[Verdict]) -> Headers:
    """Headers of a record with verdicts on one partition of one log."""
    offsets = [verdict.offset for verdict in verdicts]
    return (
        (LOG, verdicts[0].log.encode()),
        (PARTITION, str(verdicts[0].partition).encode()),
        (FIRST_OFFSET, str(min(offsets)).encode()),
        (LAST_OFFSET, str(max(offsets)).encode()),
    )


def headers_of_json_verdict(verdict: Verdict) -> Headers:
    """Headers of a record with one verdict as JSON: which intent it is about, and that it is JSON."""
    return ((CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE), *headers_of_verdicts([verdict]))


def is_json(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a verdict record is a second form of what another record says."""
    return (CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE) in headers


def range_of(headers: Sequence[tuple[str, bytes | None]]) -> VerdictRange | None:
    """What `headers_of_verdicts` wrote; `None` for a record without these headers."""
    held = {name: value or b"" for name, value in headers}
    try:
        return VerdictRange(held[LOG].decode(), int(held[PARTITION]), int(held[FIRST_OFFSET]), int(held[LAST_OFFSET]))
    except (KeyError, ValueError):
        return None
