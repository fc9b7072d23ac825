"""Putting intents on the log, and waiting for verdicts.

Owns: framing, the size limit at the producer, resending after an unknown outcome, the error of a time-out.
Does not own: who wrote the intent (`writer_stamp`), the order of several (`publish_queue`), what a verdict means for
the caller (`commit`).
Invariants: what is resent is the identical record, so the ledger decides it once; a wait has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rootline.client.session.session import Session
from rootline.ports.intent_log import NewRecord
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.intent_codec import encode_intent, encode_intent_json
from rootline.schemas.bytes.record_headers import CONTENT_HEADER, content_of_intent, stated
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import LogPosition, TableName, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import DEFAULT_LIMITS, VIEW_KINDS
from rootline.schemas.verdict import Verdict, is_about, lost_place

_SENDS_MAX: Final = 4
_RESEND: Final = RetryPolicy(delay_s_min=0.1, delay_s_max=0.4)


Content = str | bytes | None
"""What a writer says of an intent's content: `None`, that it is what the intent does; `""`, nothing; any other words;
or, as bytes, what the record said that is published again.
"""


def record_of(intent: Intent, content: Content = "") -> NewRecord:
    """Key and value of the intent's record, Avro, or JSON when a bound is given as a JSON value; what is said of it.

    Raises:
        Invalid: `intent-too-large` or `table-name-invalid`, before anything is sent.

    """
    key = table_name(intent.table).encode()
    value = encode_intent_json(intent) if _has_json_values(intent) else encode_intent(intent)
    said = content if isinstance(content, bytes) else stated(content_of_intent(intent) if content is None else content)
    beside = 0 if said is None else len(CONTENT_HEADER) + len(said)
    if len(key) + len(value) + beside > DEFAULT_LIMITS.max_bytes:
        raise Invalid(
            "intent-too-large",
            f"{intent.table}: intent {intent.intent_id} takes {len(value):,} bytes, the limit is "
            f"{DEFAULT_LIMITS.max_bytes:,}; " + _way_to_fit(intent),
        )
    return (key, value) if said is None else (key, value, said)


def _way_to_fit(intent: Intent) -> str:
    if intent.kind in VIEW_KINDS:
        return "shorten its SQL"
    if len(intent.definition or "") > DEFAULT_LIMITS.max_bytes // 2:
        return "give the table fewer columns, shorter comments and properties, or add them in several changes"
    return "add fewer files at once"


async def publish_intent(session: Session, intent: Intent) -> LogPosition:
    """Append `intent` to the log; durable when this returns.

    Raises:
        OutcomeUnknown: the log did not answer several times; the same stamped intent may be published again.

    """
    record = await asyncio.to_thread(record_of, intent)
    oldest_ms, may_resend = session.uploads.oldest_of([intent]), intent.writer_id is not None
    return (await publish_records(session, [record], may_resend=may_resend, oldest_file_ms=oldest_ms))[0]


async def publish_records(
    session: Session, records: Sequence[NewRecord], *, may_resend: bool, oldest_file_ms: int | None = None
) -> list[LogPosition]:
    """Append records in order; durable when this returns.

    Args:
        session: whose log.
        records: of intents, as `record_of` makes them.
        may_resend: whether the ledger would know a record that is on the log twice.
        oldest_file_ms: when the oldest file that they bring was uploaded, if that is known.

    Raises:
        Invalid, Unavailable: nothing was appended.
        OutcomeUnknown: the log did not answer, several times if it may be asked again; publishing all again is safe.

    """
    for send in range(_SENDS_MAX):
        try:
            return await session.log.publish_many(records, oldest_file_ms=oldest_file_ms)
        except OutcomeUnknown:
            if send == _SENDS_MAX - 1 or not may_resend:
                raise
            await asyncio.sleep(_RESEND.after_failure(send + 1, session.environment.jitter()))
    raise AssertionError("unreachable: the last send returns or raises")


async def await_verdict(session: Session, intent: Intent, position: LogPosition, *, timeout_s: float) -> Verdict:
    """The verdict on `intent`, whose record is at `position`.

    Raises:
        OutcomeUnknown: `verdict-timeout`, none came within `timeout_s` seconds; `publish-unknown`, the log has another
            record in the intent's place by now.

    """
    verdict = await session.log.wait_verdict(position, timeout_s=max(0.0, timeout_s))
    if verdict is None:
        trouble = await session.trouble(TableName(intent.table))
        raise OutcomeUnknown(
            "verdict-timeout",
            f"{intent.table}: no verdict on intent {intent.intent_id} (offset {position.offset}) within "
            f"{max(0.0, timeout_s):.3g} s" + (f"; {trouble}" if trouble else ""),
        )
    if not is_about(verdict, intent.intent_id):
        raise OutcomeUnknown("publish-unknown", f"{intent.table}: {lost_place(intent.intent_id, verdict)}")
    return verdict


def _has_json_values(intent: Intent) -> bool:
    return any(
        item.lower_value is not None or item.upper_value is not None
        for file in (*intent.add_data_files, *intent.add_equality_deletes)
        for item in file.statistics
    )
