"""The root's header as Avro file metadata: the keys of the header itself and of its parts, with compact JSON inside.

Owns: the order of the keys, the keys that belong to no part, the profile (the version of the format that a reader must
know). Does not own: the keys of the parts (`rootline.schemas.parts`), `avro.*`, counts and digest (`root_codec`).
Invariants: An encoded header decodes to an equal header. Every decoded value has the right type and sign. Any other
input raises `ValueError`, which `root_codec` turns into `Corrupt`.

Source: protocol page, section 1 (table "in the root's file metadata").
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from rootline.schemas.field_ids import PROFILE, PROFILE_OF_EXPIRY
from rootline.schemas.identifiers import CommitId, SequenceNumber, SnapshotId, TableName, Version
from rootline.schemas.parts.header_part import (
    count_of,
    decimal_of,
    digest_of,
    json_of,
    list_in,
    never,
    number_of,
    object_in,
    string_of,
)
from rootline.schemas.root_header import PARTS, Operation, RootHeader, Snapshot, Totals

FORMAT_VERSION: Final = b"4"
PROFILE_KEY: Final = "rootline.profile"
KEYS: Final = (
    "format-version",
    "content",
    PROFILE_KEY,
    "rootline.table",
    "rootline.table-uuid",
    "rootline.version",
    "rootline.snapshot",
    "rootline.definition",
    "rootline.commit-id",
    "rootline.coordinator-id",
    "rootline.oldest-version",
    "rootline.next-row-id",
    "rootline.totals",
    "rootline.offsets",
    "rootline.outcomes",
    "rootline.ledger",
    "rootline.tags",
    "rootline.outcome-pages",
    "rootline.ledger-pages",
    "rootline.restored-at",
    "rootline.replaced-at",
    "rootline.earlier-bytes",
    "rootline.removals",
    "rootline.log-time",
    "rootline.contents",
    "rootline.marks",
    "rootline.horizon",
    "rootline.left",
    "rootline.parent-next-row-id",
    "rootline.expiry",
    "rootline.redefined-in",
    "rootline.view",
    "rootline.drops",
    "rootline.progress",
    "rootline.parent-digest",
)
"""All keys of a header, in the order in which they are written."""


def encode_header(header: RootHeader) -> dict[str, bytes]:
    """The header's file metadata, in the order in which it is written."""
    metadata = {}
    values = (header, *_parts_of(header))
    for key, source, encode in _WRITTEN:
        value = encode(values[source])
        if value is not None:
            metadata[key] = value
    return metadata


def profile_of(header: RootHeader) -> str:
    """The lowest profile that covers the header. Software that knows only lower profiles must refuse the root."""
    for part in _WITH_PROFILE_2:
        if part.needs_profile_2(getattr(header, part.name)):
            return PROFILE_OF_EXPIRY
    return PROFILE


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
    parts: dict[str, Any] = {part.name: part.decode(metadata) for part in PARTS}
    return RootHeader(
        table=TableName(metadata["rootline.table"].decode()),
        table_uuid=uuid.UUID(metadata["rootline.table-uuid"].decode()),
        version=Version(decimal_of(metadata["rootline.version"])),
        parent_digest=None if parent is None else digest_of(parent.decode()),
        snapshot=_snapshot(object_in(metadata, "rootline.snapshot")),
        commit_id=CommitId(metadata["rootline.commit-id"].decode()),
        coordinator_id=metadata["rootline.coordinator-id"].decode(),
        totals=_totals(list_in(metadata, "rootline.totals")),
        earlier_bytes=decimal_of(metadata.get("rootline.earlier-bytes", b"0")),
        **parts,
    )


def _snapshot_json(snapshot: Snapshot) -> bytes:
    return json_of(
        {
            "snapshot-id": snapshot.snapshot_id,
            "parent-snapshot-id": snapshot.parent_id,
            "sequence-number": snapshot.sequence_number,
            "timestamp-ms": snapshot.timestamp_ms,
            "operation": snapshot.operation.value,
            "summary": dict(snapshot.summary),
        }
    )


def _snapshot(body: dict[str, Any]) -> Snapshot:
    parent = body["parent-snapshot-id"]
    return Snapshot(
        snapshot_id=SnapshotId(count_of(body["snapshot-id"])),
        parent_id=None if parent is None else SnapshotId(count_of(parent)),
        sequence_number=SequenceNumber(count_of(body["sequence-number"])),
        timestamp_ms=count_of(body["timestamp-ms"]),
        operation=Operation(body["operation"]),
        summary={key: string_of(value) for key, value in body["summary"].items()},
    )


def _totals(numbers: list[Any]) -> Totals:
    if len(numbers) != len(_TOTALS):
        raise ValueError(f"rootline.totals has {len(numbers)} numbers, not {len(_TOTALS)}")
    return Totals(*map(count_of, numbers))


_TOTALS: Final = tuple(field.name for field in fields(Totals))
_numbers_of: Final = attrgetter(*_TOTALS)
_totals_json: Final = f"[{','.join(['%d'] * len(_TOTALS))}]".encode().__mod__

_OWN: Final[Mapping[str, Callable[[RootHeader], bytes | None]]] = {
    "format-version": lambda _: FORMAT_VERSION,
    PROFILE_KEY: lambda header: profile_of(header).encode(),
    "rootline.table": lambda header: header.table.encode(),
    "rootline.table-uuid": lambda header: str(header.table_uuid).encode(),
    "rootline.version": lambda header: number_of(header.version),
    "rootline.snapshot": lambda header: _snapshot_json(header.snapshot),
    "rootline.commit-id": lambda header: header.commit_id.encode(),
    "rootline.coordinator-id": lambda header: header.coordinator_id.encode(),
    "rootline.totals": lambda header: _totals_json(_numbers_of(header.totals)),
    "rootline.earlier-bytes": lambda header: number_of(header.earlier_bytes) if header.earlier_bytes else None,
    "rootline.parent-digest": lambda header: (
        None if header.parent_digest is None else header.parent_digest.hex().encode()
    ),
}
"""The keys of no part, with their encoders."""


_parts_of: Final = attrgetter(*(part.name for part in PARTS))
_WITH_PROFILE_2: Final = tuple(part for part in PARTS if part.needs_profile_2 is not never)
_Row = tuple[str, int, Callable[[Any], bytes | None]]


def _rows() -> list[_Row]:
    """(key, the index of its part, its encoder) for each of `KEYS`. Index 0 is the header itself. Raises `KeyError` if
    a part has a key that is not in `KEYS`.
    """
    rows: list[_Row] = [(key, 0, encode) for key, encode in _OWN.items()]
    rows += [(key, index, encode) for index, part in enumerate(PARTS, start=1) for key, encode in part.keys.items()]
    order = {key: at for at, key in enumerate(KEYS)}
    return sorted(rows, key=lambda row: order[row[0]])


_WRITTEN: Final = _rows()
