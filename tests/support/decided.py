"""An intent as any client would write it; verdicts and dead letters on given positions."""

from __future__ import annotations

from typing import Any

from rootline.schemas.identifiers import Headers, LogPosition
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind

APPEND: dict[str, Any] = {
    "intent_id": "a-job-of-somebody/17",
    "table": "demo.flights",
    "kind": "append",
    "add_data_files": [
        {
            "location": "data/part-0.parquet",
            "file_format": "parquet",
            "record_count": 3,
            "file_size_in_bytes": 1_234,
        }
    ],
}


def verdict_on(position: LogPosition, *, table: str = "demo.flights", version: int = 1, message: str = "") -> Verdict:
    return Verdict(
        intent_id=f"intent-{position.offset}",
        table=table,
        kind=VerdictKind.REJECTED if message else VerdictKind.COMMITTED,
        log=position.log,
        partition=position.partition,
        offset=position.offset,
        version=version,
        message=message or None,
        code="row-conflict" if message else None,
    )


def letter_on(
    position: LogPosition, value: bytes, *, key: bytes | None = b"demo.flights", headers: Headers = ()
) -> DeadLetter:
    return DeadLetter(
        log=position.log,
        partition=position.partition,
        offset=position.offset,
        intent_id=f"intent-{position.offset}",
        table="demo.flights",
        code="undecodable",
        message="intent: neither Avro nor JSON — nothing of it",
        key=key,
        value=value,
        headers=headers,
    )
