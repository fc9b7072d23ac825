"""A dead letter: a rejected record with its original bytes and the reason.

Owns: the model. Does not own: its framing (`verdict_codec`).
Invariants: all of the original bytes are kept, so that the record can be replayed after a repair; headers are the
record's own, in order.
"""

from __future__ import annotations

from rootline.schemas.intent import WireModel
from rootline.schemas.log_position import Headers


class DeadLetter(WireModel):
    """The record at (`log`, `partition`, `offset`), and why it was rejected."""

    log: str
    partition: int
    offset: int
    intent_id: str
    table: str | None
    code: str
    message: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
