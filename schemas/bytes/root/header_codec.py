"""The root's header as Avro file metadata: one key per part, with compact JSON inside.

Owns: encoding and decoding the keys `format-version`, `content`, `rootline.profile` and those of the header's parts.
Does not own: `avro.*`, counts and digest (`root_codec`), drops (`header_name`), the meaning of the parts
(`root_header`).
Invariants: An encoded header decodes to an equal header. Every decoded value has the right type and sign. Any other
input raises `ValueError`, which `root_codec` turns into `Corrupt`.

Source: protocol page, section 1 (table "in the root's file metadata").
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from rootline.schemas.bytes.root.header_ledger import HeaderLedger
from rootline.schemas.bytes.root.header_left import RETIRED_KEY, decode_retired, encode_retired
from rootline.schemas.bytes.root.header_name import decode_name, encode_name
from rootline.schemas.bytes.root.header_numbers import count_of as _count
from rootline.schemas.bytes.root.header_totals import list_of_totals, totals_of_list
from rootline.schemas.field_ids import PROFILE, PROFILE_OF_EXPIRY
from rootline.schemas.identifiers import (
    MARK_BYTES,
    CommitId,
    Location,
    LogId,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    WriterId,
)
from rootline.schemas.root_header import (
    NOTHING_RETIRED,
    ClockJump,
    CommittedRun,
    Condemned,
    ContentDigest,
    CoveredOffset,
    DefinitionReference,
    Expiry,
    LogTime,
    NameState,
    Operation,
    OutcomeException,
    OutcomeRun,
    Outcomes,
    PageReference,
    PartitionOffset,
    RejectedSequence,
    Removal,
    Removals,
    RootHeader,
    Snapshot,
    WriterRecord,
)

FORMAT_VERSION: Final = b"4"
PROFILE_KEY: Final = "rootline.profile"
OUTCOME_PAGES_KEY: Final = "rootline.outcome-pages"
LEDGER_PAGES_KEY: Final = "rootline.ledger-pages"
RESTORED_AT_KEY: Final = "rootline.restored-at"
REPLACED_AT_KEY: Final = "rootline.replaced-at"
EARLIER_BYTES_KEY: Final = "rootline.earlier-bytes"
REMOVALS_KEY: Final = "rootline.removals"
LOG_TIME_KEY: Final = "rootline.log-time"
CONTENTS_KEY: Final = "rootline.contents"
HORIZON_KEY: Final = "rootline.horizon"
PARENT_NEXT_ROW_ID_KEY: Final = "rootline.parent-next-row-id"
EXPIRY_KEY: Final = "rootline.expiry"
REDEFINED_IN_KEY: Final = "rootline.redefined-in"
MARKS_KEY: Final = "rootline.marks"
"""Absent if the root has no marks, as in roots of older releases."""
_DIGEST_BYTES: Final = 32
_KEPT_BYTES: Final = 16
"""Bytes of each recorded content digest: the digest of writer and sequence, then that of the content."""


def encode_header(header: RootHeader) -> dict[str, bytes]:
    """The header's file metadata, in the order in which it is written."""
    snapshot = header.snapshot
    metadata = {
        "format-version": FORMAT_VERSION,
        "content": header.name_is.encode(),
        PROFILE_KEY: profile_of(header).encode(),
        "rootline.table": _text(header.table),
        "rootline.table-uuid": str(header.table_uuid).encode(),
        "rootline.version": str(header.version).encode(),
        "rootline.snapshot": _json(
            {
                "snapshot-id": snapshot.snapshot_id,
                "parent-snapshot-id": snapshot.parent_id,
                "sequence-number": snapshot.sequence_number,
                "timestamp-ms": snapshot.timestamp_ms,
                "operation": snapshot.operation.value,
                "summary": dict(snapshot.summary),
            }
        ),
        "rootline.definition": _json([header.definition.location, header.definition.digest.hex()]),
        "rootline.commit-id": _text(header.commit_id),
        "rootline.coordinator-id": _text(header.coordinator_id),
        "rootline.oldest-version": str(header.oldest_version).encode(),
        "rootline.next-row-id": str(header.next_row_id).encode(),
        "rootline.totals": _json(list_of_totals(header.totals)),
        "rootline.offsets": _json(header.offsets),
        "rootline.outcomes": encode_outcomes(header.outcomes),
        "rootline.ledger": HeaderLedger.of(header.ledger).encode(),
        "rootline.tags": _json(dict(header.tags)),
    }
    if header.outcome_pages:
        metadata[OUTCOME_PAGES_KEY] = _json([_page_json(page) for page in header.outcome_pages])
    if header.ledger_pages:
        metadata[LEDGER_PAGES_KEY] = _json([_page_json(page) for page in header.ledger_pages])
    if header.restored_at:
        metadata[RESTORED_AT_KEY] = str(header.restored_at).encode()
    if header.replaced_at:
        metadata[REPLACED_AT_KEY] = str(header.replaced_at).encode()
    if header.earlier_bytes:
        metadata[EARLIER_BYTES_KEY] = str(header.earlier_bytes).encode()
    if header.removals is not None:
        metadata[REMOVALS_KEY] = _removals_json(header.removals)
    if header.log_time is not None:
        metadata[LOG_TIME_KEY] = _json(header.log_time)
    if header.contents:
        metadata[CONTENTS_KEY] = base64.b64encode(b"".join([pair + content for pair, content in header.contents]))
    if any(header.marks):
        metadata[MARKS_KEY] = _json([None if mark is None else mark.hex() for mark in header.marks])
    if header.horizon_ms or header.condemned:
        condemned = [[_page_json(item.page), item.since_version, item.since_ms] for item in header.condemned]
        metadata[HORIZON_KEY] = _json([header.horizon_ms, condemned])
    if header.left:
        metadata[RETIRED_KEY] = encode_retired(header.left)
    if header.parent_next_row_id is not None:
        metadata[PARENT_NEXT_ROW_ID_KEY] = str(header.parent_next_row_id).encode()
    if header.expiry is not None:
        kept = header.expiry.kept
        metadata[EXPIRY_KEY] = _json([header.expiry.given_up_bytes, None if kept is None else _page_json(kept)])
    if header.redefined_in is not None:
        metadata[REDEFINED_IN_KEY] = str(header.redefined_in).encode()
    metadata |= encode_name(header)
    if header.parent_digest is not None:
        metadata["rootline.parent-digest"] = header.parent_digest.hex().encode()
    return metadata


def profile_of(header: RootHeader) -> str:
    """The lowest profile that covers the header. Software that knows only lower profiles must refuse the root."""
    needs_it = (
        header.expiry
        or header.horizon_ms
        or header.condemned
        or header.redefined_in is not None
        or header.drops
        or header.name_is is not NameState.TABLE
        or header.replaced_at
    )
    return PROFILE_OF_EXPIRY if needs_it else PROFILE


def encode_outcomes(outcomes: Outcomes) -> bytes:
    """The value of `rootline.outcomes`, whose length the header's limit applies to."""
    return _json([outcomes.runs, outcomes.exceptions])


def decode_header(metadata: Mapping[str, bytes]) -> RootHeader:
    """The header in a root's file metadata. Unknown keys are ignored.

    Raises:
        ValueError: a key is absent, or a value is invalid.
    """
    try:
        return _header_of(metadata)
    except KeyError as error:
        raise ValueError(f"the header lacks {error}") from None
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the header cannot be read: {error}") from None


def _header_of(metadata: Mapping[str, bytes]) -> RootHeader:
    parent = metadata.get("rootline.parent-digest")
    outcome_runs, outcome_exceptions = _list(metadata, "rootline.outcomes")
    horizon_ms, condemned = _list(metadata, HORIZON_KEY) if HORIZON_KEY in metadata else (0, [])
    location, digest = _list(metadata, "rootline.definition")
    name_is, drops, view = decode_name(metadata)
    return RootHeader(
        table=TableName(metadata["rootline.table"].decode()),
        table_uuid=uuid.UUID(metadata["rootline.table-uuid"].decode()),
        version=Version(_decimal(metadata["rootline.version"])),
        parent_digest=None if parent is None else _digest(parent.decode()),
        snapshot=_snapshot(_object(metadata, "rootline.snapshot")),
        definition=DefinitionReference(_string(location), _digest(digest)),
        commit_id=CommitId(metadata["rootline.commit-id"].decode()),
        coordinator_id=metadata["rootline.coordinator-id"].decode(),
        offsets=tuple(
            PartitionOffset(LogId(_string(log)), _count(partition), _count(next_offset))
            for log, partition, next_offset in _list(metadata, "rootline.offsets")
        ),
        outcomes=Outcomes(
            tuple(_outcome_run(*run) for run in outcome_runs),
            tuple(_outcome_exception(*exception) for exception in outcome_exceptions),
        ),
        outcome_pages=_pages(metadata, OUTCOME_PAGES_KEY),
        ledger=HeaderLedger.of(
            {
                WriterId(writer): _writer_record(*record)
                for writer, record in _object(metadata, "rootline.ledger").items()
            }
        ),
        ledger_pages=_pages(metadata, LEDGER_PAGES_KEY),
        oldest_version=Version(_decimal(metadata["rootline.oldest-version"])),
        tags={tag: _count(version) for tag, version in _object(metadata, "rootline.tags").items()},
        next_row_id=_decimal(metadata["rootline.next-row-id"]),
        totals=totals_of_list(_list(metadata, "rootline.totals")),
        restored_at=SequenceNumber(_decimal(metadata.get(RESTORED_AT_KEY, b"0"))),
        replaced_at=SequenceNumber(_decimal(metadata.get(REPLACED_AT_KEY, b"0"))),
        earlier_bytes=_decimal(metadata.get(EARLIER_BYTES_KEY, b"0")),
        removals=_removals(*_list(metadata, REMOVALS_KEY)) if REMOVALS_KEY in metadata else None,
        log_time=_log_time(*_list(metadata, LOG_TIME_KEY)) if LOG_TIME_KEY in metadata else None,
        contents=_contents(metadata[CONTENTS_KEY]) if CONTENTS_KEY in metadata else (),
        marks=tuple(map(_mark, _list(metadata, MARKS_KEY))) if MARKS_KEY in metadata else (),
        horizon_ms=_count(horizon_ms),
        condemned=tuple(
            Condemned(_page(*page), Version(_count(version)), _count(since_ms)) for page, version, since_ms in condemned
        ),
        left=decode_retired(metadata[RETIRED_KEY]) if RETIRED_KEY in metadata else NOTHING_RETIRED,
        parent_next_row_id=(_decimal(metadata[PARENT_NEXT_ROW_ID_KEY]) if PARENT_NEXT_ROW_ID_KEY in metadata else None),
        expiry=_expiry(*_list(metadata, EXPIRY_KEY)) if EXPIRY_KEY in metadata else None,
        redefined_in=Version(_decimal(metadata[REDEFINED_IN_KEY])) if REDEFINED_IN_KEY in metadata else None,
        name_is=name_is,
        drops=drops,
        view=view,
    )


def _snapshot(body: dict[str, Any]) -> Snapshot:
    parent = body["parent-snapshot-id"]
    return Snapshot(
        snapshot_id=SnapshotId(_count(body["snapshot-id"])),
        parent_id=None if parent is None else SnapshotId(_count(parent)),
        sequence_number=SequenceNumber(_count(body["sequence-number"])),
        timestamp_ms=_count(body["timestamp-ms"]),
        operation=Operation(body["operation"]),
        summary={key: _string(value) for key, value in body["summary"].items()},
    )


def _outcome_run(log: Any, partition: Any, first: Any, last: Any, version: Any, sequence_number: Any) -> OutcomeRun:
    return OutcomeRun(
        LogId(_string(log)),
        _count(partition),
        _count(first),
        _count(last),
        Version(_count(version)),
        SequenceNumber(_count(sequence_number)),
    )


def _outcome_exception(
    log: Any, partition: Any, offset: Any, decided_in: Any, code: Any, message: Any, duplicate_of: Any
) -> OutcomeException:
    return OutcomeException(
        LogId(_string(log)),
        _count(partition),
        _count(offset),
        Version(_count(decided_in)),
        None if code is None else _string(code),
        None if message is None else _string(message),
        None if duplicate_of is None else Version(_count(duplicate_of)),
    )


def _writer_record(committed: Any, rejected: Any, last_seen_ms: Any) -> WriterRecord:
    return WriterRecord(
        tuple(
            CommittedRun(_count(first), _count(last), _run_version(version), _count(stride))
            for first, last, version, stride in committed
        ),
        tuple(
            RejectedSequence(_count(sequence), _string(intent_id), _string(code), _string(message))
            for sequence, intent_id, code, message in rejected
        ),
        _count(last_seen_ms),
    )


def _run_version(value: Any) -> Version:
    """The version of a run, or -1 for committed sequences whose version is no longer known
    (`rootline.tree.ledger.ledger`).
    """
    return Version(-1) if type(value) is int and value == -1 else Version(_count(value))


def _page_json(page: PageReference) -> list[Any]:
    return [page.location, page.digest.hex(), page.size_in_bytes, page.content_bytes, page.covers]


def _pages(metadata: Mapping[str, bytes], key: str) -> tuple[PageReference, ...]:
    return tuple(_page(*page) for page in _list(metadata, key)) if key in metadata else ()


def _page(location: Any, digest: Any, size: Any, content: Any, covers: Any) -> PageReference:
    return PageReference(
        Location(_string(location)),
        _digest(digest),
        _count(size),
        _count(content),
        tuple(CoveredOffset(LogId(_string(log)), _count(partition), _count(last)) for log, partition, last in covers),
    )


def _removals_json(removals: Removals) -> bytes:
    if not removals.newest:
        return b'[%d,[],""]' % removals.forgotten
    newest = [[number, spec, base64.b64encode(partition).decode()] for number, spec, partition in removals.newest]
    return _json([removals.forgotten, newest, removals.stats_schema.hex()])


def _removals(forgotten: Any, newest: Any, stats_schema: Any) -> Removals:
    found = [
        Removal(SequenceNumber(_count(number)), _count(spec), base64.b64decode(_string(partition), validate=True))
        for number, spec, partition in newest
    ]
    return Removals(SequenceNumber(_count(forgotten)), tuple(found), bytes.fromhex(_string(stats_schema)))


def _expiry(given_up_bytes: Any, kept: Any) -> Expiry:
    return Expiry(_count(given_up_bytes), None if kept is None else _page(*kept))


def _log_time(newest_ms: Any, jumps: Any) -> LogTime:
    return LogTime(_count(newest_ms), tuple(ClockJump(_count(at), _count(skipped)) for at, skipped in jumps))


def _contents(value: bytes) -> tuple[ContentDigest, ...]:
    kept = base64.b64decode(value, validate=True)
    if len(kept) % _KEPT_BYTES:
        raise ValueError(f"{CONTENTS_KEY} has {len(kept)} bytes, which is not a multiple of {_KEPT_BYTES}")
    half = _KEPT_BYTES // 2
    return tuple(
        ContentDigest(kept[at : at + half], kept[at + half : at + _KEPT_BYTES])
        for at in range(0, len(kept), _KEPT_BYTES)
    )


def _mark(value: Any) -> bytes | None:
    mark = None if value is None else bytes.fromhex(_string(value))
    if mark is not None and len(mark) != MARK_BYTES:
        raise ValueError(f"{MARKS_KEY} has a mark of {len(mark)} bytes, not {MARK_BYTES}")
    return mark


def _json(value: Any) -> bytes:
    return _encode_json(value).encode()  # ASCII, so every string can be encoded


_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode


def _text(value: str) -> bytes:
    return value.encode()


def _list(metadata: Mapping[str, bytes], key: str) -> list[Any]:
    value = json.loads(metadata[key])
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def _object(metadata: Mapping[str, bytes], key: str) -> dict[str, Any]:
    value = json.loads(metadata[key])
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def _decimal(value: bytes) -> int:
    if not value.isdigit() or (value[:1] == b"0" and len(value) > 1):
        raise ValueError(f"{value[:30]!r} is not a plain number")
    return _count(int(value[:30]))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not a string")
    return value


def _digest(value: Any) -> bytes:
    digest = bytes.fromhex(_string(value))
    if len(digest) != _DIGEST_BYTES:
        raise ValueError("a digest is not 32 bytes long")
    return digest
