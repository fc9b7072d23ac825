"""A stored root for each key of the header: this version reads it, and writes the very same bytes.

The roots have no rows, because a row's compressed bytes depend on the library. Whatever writes a header must leave
every one of these files unchanged.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.types import LongType

from rootline.schemas.bytes.avro_encoding import read_head
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.location_pages import (
    CONDEMNED_PAGES,
    RETIRED_PAGES,
    CondemnedLocations,
    RetiredLocations,
)
from rootline.schemas.bytes.root.root_codec import decode_root, encode_root, sync_marker
from rootline.schemas.identifiers import (
    CommitId,
    Location,
    LogId,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    WriterId,
)
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.object_keys import page_location
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.ledger import CommittedRun, ContentDigest, RejectedSequence, WriterLedger, WriterRecord
from rootline.schemas.parts.locations import Condemned, Locations, Retired, RetiredSince
from rootline.schemas.parts.log import ClockJump, LogProgress, LogTime, PartitionOffset
from rootline.schemas.parts.name import Drop, NameRecord, NameState
from rootline.schemas.parts.outcomes import OutcomeException, OutcomeRun, Outcomes, RecordedOutcomes
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress
from rootline.schemas.parts.removals import Removal, Removals
from rootline.schemas.parts.restores import Restores
from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.parts.versions import Expiry, ReadableVersions
from rootline.schemas.root_header import Operation, RootHeader, Snapshot, Totals
from rootline.schemas.table_definition import TrackedField
from tests.golden_files import golden

CODEC: Final = EntryCodec([TrackedField(1, "id", LongType())])
TABLE_UUID: Final = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
LOG: Final = LogId("kafka/5f0c")
PAGE: Final = PageReference(Location("metadata/pages/p.avro"), bytes(range(32)), 900, 2_000)
FIRST: Final = RootHeader(
    table=TableName("shop.orders"),
    table_uuid=TABLE_UUID,
    version=Version(0),
    parent_digest=None,
    snapshot=Snapshot(SnapshotId(41), None, SequenceNumber(0), 1_700_000_000_123, Operation.APPEND, {}),
    definition=DefinitionReference("metadata/definitions/d.json", bytes(range(32, 64))),
    commit_id=CommitId("0" * 31 + "1"),
    coordinator_id="coordinator-1",
)
"""Root 0 of a table: all that every root has, and nothing else."""

REMOVED: Final = Removals(
    SequenceNumber(4), (Removal(SequenceNumber(5), 0, b"\x00"), Removal(SequenceNumber(7), 1, b"\x02\x04")), bytes(8)
)
RETIRED: Final = Retired(
    bytes(16),
    bytes(range(16)) + bytes(range(16, 32)),
    1_700_000_000_009,
    SequenceNumber(8),
    (RetiredSince(PAGE._replace(location=page_location(PAGE.digest.hex())), 1_700_000_000_005, SequenceNumber(6)),),
)
DROPPED: Final = (Drop(uuid.UUID(int=77), Version(1), 5, True), Drop(TABLE_UUID, Version(3), 1_700_000_000_000))

EXPECTED: Final[Mapping[str, RootHeader]] = {
    "first": FIRST,
    "rootline.version": replace(FIRST, version=Version(12)),
    "rootline.parent-digest": replace(FIRST, version=Version(1), parent_digest=bytes(range(32))),
    "rootline.snapshot": replace(
        FIRST,
        snapshot=Snapshot(
            SnapshotId(2**62),
            SnapshotId(41),
            SequenceNumber(9),
            1_700_000_000_456,
            Operation.OVERWRITE,
            {"added-records": "12", "rootline.writer": "é"},
        ),
    ),
    "rootline.offsets": replace(
        FIRST, log=LogProgress(offsets=(PartitionOffset(LOG, 0, 12), PartitionOffset(LOG, 3, 2**40)))
    ),
    "rootline.outcomes": replace(
        FIRST,
        outcomes=RecordedOutcomes(
            newest=Outcomes(
                (OutcomeRun(LOG, 0, 9, 10, Version(7), SequenceNumber(8)),),
                (
                    OutcomeException(LOG, 0, 11, Version(7), "file-not-live", "data/x: not live", None),
                    OutcomeException(LOG, 3, 12, Version(7), None, None, Version(2)),
                    OutcomeException(LOG, 3, 13, Version(7), None, None, None),
                ),
            )
        ),
    ),
    "rootline.ledger": replace(
        FIRST,
        ledger=WriterLedger(
            writers={
                WriterId("spark/q1"): WriterRecord(
                    (CommittedRun(0, 9, Version(-1), 0), CommittedRun(10, 19, Version(3), 1)),
                    (RejectedSequence(20, "i-20", "spec-unknown", "spec 9"),),
                    5,
                ),
                WriterId("python"): WriterRecord((CommittedRun(4, 4, Version(2), 0),), (), 9),
            }
        ),
    ),
    "rootline.outcome-pages": replace(
        FIRST, outcomes=RecordedOutcomes(pages=(PAGE._replace(covers=(CoveredOffset(LOG, 3, 7),)),))
    ),
    "rootline.ledger-pages": replace(FIRST, ledger=WriterLedger(pages=(PAGE, PAGE._replace(size_in_bytes=901)))),
    "rootline.totals": replace(FIRST, totals=Totals(2, 3, 4, 5, 6, 7_000, 8, 9_000)),
    "rootline.oldest-version": replace(FIRST, version=Version(12), versions=ReadableVersions(oldest=Version(11))),
    "rootline.tags": replace(FIRST, version=Version(12), tags={"eom": 3, "year end": 11}),
    "rootline.next-row-id": replace(FIRST, row_ids=RowIds(next=4_000)),
    "rootline.restored-at": replace(FIRST, restores=Restores(restored_at=SequenceNumber(6))),
    "rootline.replaced-at": replace(FIRST, restores=Restores(replaced_at=SequenceNumber(7))),
    "rootline.removals": replace(FIRST, removals=REMOVED),
    "nothing-removed-since": replace(FIRST, removals=Removals(SequenceNumber(4))),
    "rootline.log-time": replace(
        FIRST, log=LogProgress(time=LogTime(1_700_000_000_100, (ClockJump(1_600_000_000_000, 100_000_000_000),)))
    ),
    "rootline.contents": replace(
        FIRST,
        ledger=WriterLedger(
            contents=(ContentDigest(b"pair-one", bytes(8)), ContentDigest(b"pair-two", RETIRED.rewritten[:8]))
        ),
    ),
    "rootline.marks": replace(
        FIRST,
        log=LogProgress(
            offsets=(PartitionOffset(LOG, 0, 12), PartitionOffset(LOG, 3, 1)), marks=(None, bytes(range(8)))
        ),
    ),
    "rootline.horizon": replace(
        FIRST,
        locations=Locations(horizon_ms=1_700_000_000_001, condemned=(Condemned(PAGE, Version(4), 1_700_000_000_002),)),
    ),
    "rootline.left": replace(FIRST, locations=Locations(retired=RETIRED)),
    "rootline.earlier-bytes": replace(FIRST, earlier_bytes=9_876),
    "rootline.parent-next-row-id": replace(FIRST, row_ids=RowIds(next_of_parent=0)),
    "rootline.expiry": replace(FIRST, earlier_bytes=9_876, versions=ReadableVersions(expiry=Expiry(5_432, PAGE))),
    "no-version-retained": replace(FIRST, earlier_bytes=9_876, versions=ReadableVersions(expiry=Expiry(5_432))),
    "rootline.redefined-in": replace(FIRST, version=Version(12), restores=Restores(redefined_in=Version(9))),
    "rootline.drops": replace(FIRST, version=Version(4), name=NameRecord(drops=DROPPED[:1])),
    "tombstone": replace(FIRST, version=Version(4), name=NameRecord(state=NameState.TOMBSTONE, drops=DROPPED)),
    "rootline.progress": replace(
        FIRST,
        progress=(
            JobProgress(
                "f7/writer",
                SequenceNumber(7),
                ClientSnapshot(2**62, "append"),
                {"flink.max-committed-checkpoint-id": "12"},
            ),
            JobProgress("q é", SequenceNumber(9), ClientSnapshot(1, "overwrite"), {"queryId": "q é", "epochId": "3"}),
        ),
    ),
    "rootline.view": replace(
        FIRST, name=NameRecord(state=NameState.VIEW, view=b'{"format-version":1,"view-uuid":"x"}')
    ),
}
"""The header of each stored root, by the key for whose sake it is stored."""

OTHERWISE: Final = frozenset(("first", "nothing-removed-since", "no-version-retained", "tombstone"))
"""Stored for another form of a value, not for a key."""

IN_EVERY_ROOT: Final = frozenset(
    (
        *("avro.schema", "avro.codec", "format-version", "content", "rootline.profile", "rootline.table"),
        *("rootline.table-uuid", "rootline.definition", "rootline.commit-id", "rootline.coordinator-id"),
        *("rootline.entries", "rootline.blocks", "rootline.digest"),
    )
)
"""Keys for which `first` is enough."""


def root_of(header: RootHeader) -> bytes:
    return encode_root(header, [], CODEC, sync_marker(TABLE_UUID))[1]


def stored(name: str) -> bytes:
    return golden(f"roots/{name}.avro", root_of(EXPECTED[name]))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stored_root_is_read_as_it_was_meant_and_written_as_the_very_same_bytes(name: str) -> None:
    held = stored(name)
    read = decode_root(held, name=name)
    assert read.header == EXPECTED[name]
    assert root_of(read.header) == held, "what was read is written as it was stored"
    metadata = read_head(held).metadata
    assert name in metadata or name in OTHERWISE


def test_every_key_that_a_header_can_have_is_in_a_stored_root() -> None:
    in_roots = {key for name in EXPECTED for key in read_head(stored(name)).metadata}
    assert in_roots == IN_EVERY_ROOT | {name for name in EXPECTED if name in in_roots}, "each key has a root"
    assert in_roots - {"avro.schema", "avro.codec"} == documented_keys(), "the format page lists the same keys"


def test_every_field_of_a_header_has_a_telling_value_in_a_stored_root() -> None:
    """So a key that is added with a field needs a stored root, or this fails."""
    for field in fields(RootHeader):
        plain: Any = field.default if field.default is not MISSING else getattr(FIRST, field.name)
        told = [name for name, header in EXPECTED.items() if getattr(header, field.name) != plain]
        in_first = field.default is MISSING and field.default_factory is MISSING and field.name not in ("version",)
        assert told or in_first, f"no stored root has a value for {field.name}"
        if not in_first and is_dataclass(plain):  # a part of several fields
            for inner in fields(plain):
                values = [getattr(getattr(header, field.name), inner.name) for header in EXPECTED.values()]
                assert any(value != getattr(plain, inner.name) for value in values), f"{field.name}.{inner.name}"


def test_a_stored_root_that_no_test_reads_is_an_error() -> None:
    folder = Path(__file__).parents[3] / "golden" / "roots"
    assert {path.stem for path in folder.iterdir()} == set(EXPECTED)


def test_stored_pages_of_locations_are_read_and_written_as_the_very_same_bytes() -> None:
    one, two = (LocationHashes.of(map(location_hash, names)) for names in (("data/a", "data/b"), ("data/c",)))
    condemned, made = CONDEMNED_PAGES.encode(TABLE_UUID, CondemnedLocations(1_700_000_000_000, one, (bytes(32),)))
    held, named = golden("page-condemned.avro", made), condemned.reference
    assert (
        CONDEMNED_PAGES.decode_stored(held, named.location, named.digest, len(held), TABLE_UUID, name="page")
        == condemned
    )
    retired, made = RETIRED_PAGES.encode(TABLE_UUID, RetiredLocations(one, two))
    assert RETIRED_PAGES.decode(golden("page-left.avro", made), retired.reference, TABLE_UUID, name="page") == retired


def documented_keys() -> set[str]:
    """The keys in the table of the format page."""
    page = (Path(__file__).parents[4] / "docs" / "format.md").read_text()
    table = page[page.index("| `format-version` `content` `rootline.profile` |") :].split("\n\n")[0]
    return {key for line in table.splitlines() for key in re.findall(r"`([^`]+)`", line.split("|")[1])}
