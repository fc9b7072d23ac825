"""The part `removals`: the recent removals of rows, which the conflict check of serializable intents reads."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of, list_in, string_of

REMOVALS_KEY: Final = "rootline.removals"


class Removal(NamedTuple):
    """A removal of rows from a partition at `sequence_number`, or the return of deleted rows because their delete was
    removed.

    `partition`: the partition's values, encoded like a file's statistics.
    """

    sequence_number: SequenceNumber
    partition_spec_id: int
    partition: bytes


class Removals(NamedTuple):
    """The recent removals of rows. No live entry shows them, but the conflict check of serializable intents needs them.

    `newest` has all removals after sequence number `forgotten`, ascending. `stats_schema`: the fingerprint of the
    encoding of partitions, empty while there are none.
    """

    forgotten: SequenceNumber = SequenceNumber(0)
    newest: tuple[Removal, ...] = ()
    stats_schema: bytes = b""


def _encode(removals: Removals | None) -> bytes | None:
    if removals is None:
        return None
    if not removals.newest:
        return b'[%d,[],""]' % removals.forgotten
    newest = [[number, spec, base64.b64encode(partition).decode()] for number, spec, partition in removals.newest]
    return json_of([removals.forgotten, newest, removals.stats_schema.hex()])


def _decode(metadata: Mapping[str, bytes]) -> Removals | None:
    return _removals(*list_in(metadata, REMOVALS_KEY)) if REMOVALS_KEY in metadata else None


def _removals(forgotten: Any, newest: Any, stats_schema: Any) -> Removals:
    found = [
        Removal(SequenceNumber(count_of(number)), count_of(spec), base64.b64decode(string_of(partition), validate=True))
        for number, spec, partition in newest
    ]
    return Removals(SequenceNumber(count_of(forgotten)), tuple(found), bytes.fromhex(string_of(stats_schema)))


REMOVALS: Final[HeaderPart[Removals | None]] = HeaderPart("removals", {REMOVALS_KEY: _encode}, _decode)
