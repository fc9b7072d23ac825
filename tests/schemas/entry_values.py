"""Entries, statistics and headers for tests of the Avro side: strategies, examples, and fastavro's view of them.

Owns: values. Does not own: what is asserted about them.
Invariants: everything made here is valid; types cover all that statistics can have.
"""

from __future__ import annotations

import io
import struct
import uuid
from decimal import Context, Decimal
from functools import cache
from typing import Any, Final

import fastavro
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.entry_schema import content_entry_schema, decimal_size_in_bytes
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.identifiers import CommitId, LogId, SequenceNumber, SnapshotId, TableName, Version, WriterId
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.ledger import CommittedRun, ContentDigest, RejectedSequence, WriterLedger, WriterRecord
from rootline.schemas.parts.locations import Condemned, Locations
from rootline.schemas.parts.log import ClockJump, LogProgress, LogTime, PartitionOffset
from rootline.schemas.parts.outcomes import OutcomeException, OutcomeRun, Outcomes, RecordedOutcomes
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress
from rootline.schemas.parts.removals import Removal, Removals
from rootline.schemas.parts.restores import Restores
from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.parts.versions import Expiry, ReadableVersions
from rootline.schemas.root_header import Operation, RootHeader, Snapshot, Totals
from rootline.schemas.table_definition import TrackedField

TYPES: Final[tuple[PrimitiveType, ...]] = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(9, 2),
    DecimalType(38, 10),
    DecimalType(18, 0),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    TimestampNanoType(),
    TimestamptzNanoType(),
    StringType(),
    BinaryType(),
    UUIDType(),
    FixedType(5),
    UnknownType(),
)
TRACKED: Final = tuple(
    TrackedField(position + 1, f"c{position}", field_type) for position, field_type in enumerate((*TYPES, *TYPES[5:8]))
)
TABLE_UUID: Final = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

_INT: Final = st.integers(-(2**31), 2**31 - 1)
_LONG: Final = st.integers(-(2**63), 2**63 - 1)
_COUNT: Final = st.integers(0, 2**63 - 1) | st.integers(0, 300)
_SIZE: Final = st.integers(0, 2**31 - 1) | st.integers(0, 300)


def bounds(field_type: PrimitiveType) -> st.SearchStrategy[Any]:
    """Every bound that a column of the type can have."""
    if isinstance(field_type, DecimalType):
        limit = 10**field_type.precision - 1
        return st.integers(-limit, limit).map(lambda unscaled: Decimal(f"{unscaled}E-{field_type.scale}"))
    if isinstance(field_type, FixedType):
        return st.binary(min_size=len(field_type), max_size=len(field_type))
    return {
        BooleanType: st.booleans(),
        IntegerType: _INT,
        DateType: _INT,
        FloatType: st.floats(width=32, allow_nan=False),
        DoubleType: st.floats(allow_nan=False),
        StringType: st.text(max_size=80),
        BinaryType: st.binary(max_size=80),
        UUIDType: st.binary(min_size=16, max_size=16),
    }.get(type(field_type), _LONG)


@cache
def field_statistics(field_type: PrimitiveType) -> st.SearchStrategy[FieldStatistics]:
    bound = st.none() if isinstance(field_type, UnknownType) else st.none() | bounds(field_type)
    tight = st.none() if isinstance(field_type, UnknownType) else st.none() | st.booleans()
    return st.builds(
        FieldStatistics,
        bound,
        bound,
        tight,
        st.none() | _COUNT,
        st.none() | _COUNT,
        st.none() | _COUNT,
        st.none() | _SIZE,
        st.none() | _SIZE,
    )


def content_stats() -> st.SearchStrategy[dict[int, FieldStatistics]]:
    """Of up to five columns, so that examples stay quick to make."""
    one = st.sampled_from(TRACKED).flatmap(
        lambda field: st.tuples(st.just(field.tracked_id), field_statistics(field.type))
    )
    return st.lists(one, max_size=5).map(lambda items: dict(sorted(items, key=lambda item: item[0])))


def entries(statistics: st.SearchStrategy[ContentStats] | None = None) -> st.SearchStrategy[ContentEntry]:
    """Any entry that the types allow, whether or not the rules do."""
    return st.builds(
        ContentEntry,
        content_type=st.sampled_from(ContentType),
        location=st.text(max_size=40),
        file_format=st.sampled_from(FileFormat),
        version_info=version_infos(),
        partition_spec_id=_INT,
        record_count=_LONG,
        file_size_in_bytes=st.none() | _LONG,
        deletion_vector=st.none()
        | st.builds(DeletionVector, st.none() | _LONG, st.none() | _LONG, st.none() | st.binary(max_size=40)),
        sort_order_id=st.none() | _INT,
        manifest_stats=st.none() | st.builds(ManifestStats, _INT, _INT, _INT, _LONG, _LONG, _LONG, _LONG),
        referenced_file=st.none() | st.text(max_size=40),
        key_metadata=st.none() | st.binary(max_size=40),
        split_offsets=st.none() | st.lists(_LONG, max_size=4).map(tuple),
        equality_ids=st.none() | st.lists(_INT, max_size=4).map(tuple),
        first_row_id=st.none() | _LONG,
        content_stats=content_stats() if statistics is None else statistics,
    )


def version_infos() -> st.SearchStrategy[VersionInfo]:
    number = st.none() | _LONG
    return st.builds(VersionInfo, st.sampled_from(Status), number, number, number)


def headers() -> st.SearchStrategy[RootHeader]:
    count = st.integers(0, 2**63 - 1)
    text = st.text(max_size=20)
    digest = st.binary(min_size=32, max_size=32)
    run = st.builds(CommittedRun, count, count, count, st.sampled_from((0, 1)))
    rejected = st.builds(RejectedSequence, count, text, text, text)
    covers = st.lists(st.builds(CoveredOffset, text, count, count), max_size=2).map(tuple)
    pages = st.lists(st.builds(PageReference, text, digest, count, count, covers), max_size=2).map(tuple)
    eight = st.binary(min_size=8, max_size=8)
    page = st.builds(PageReference, text, digest, count, count, st.just(()))
    condemned = st.builds(Condemned, page, count, count)
    jumps = st.lists(st.builds(ClockJump, count, count), max_size=2).map(tuple)
    removal = st.builds(Removal, count, count, st.binary(max_size=20))
    newest = st.lists(removal, min_size=1, max_size=3).map(tuple)
    none_left, newest_left = st.just(Removals()), st.tuples(count, newest, st.binary(min_size=8, max_size=8))
    removals = none_left | newest_left.map(lambda parts: Removals(*parts))
    words = st.dictionaries(text, text, max_size=2)
    job = st.builds(JobProgress, text, count, st.builds(ClientSnapshot, count, text), words)
    return st.builds(
        RootHeader,
        table=st.just(TableName("shop.orders")),
        table_uuid=st.uuids(),
        version=count,
        parent_digest=st.none() | digest,
        snapshot=st.builds(
            Snapshot,
            count,
            st.none() | count,
            count,
            count,
            st.sampled_from(Operation),
            st.dictionaries(text, text, max_size=3),
        ),
        definition=st.builds(DefinitionReference, text, digest),
        commit_id=st.text("0123456789abcdef", min_size=32, max_size=32),
        coordinator_id=text,
        log=st.builds(
            LogProgress,
            st.lists(st.builds(PartitionOffset, text, count, count), max_size=3).map(tuple),
            st.none() | st.builds(LogTime, count, jumps),
        ),
        outcomes=st.builds(
            RecordedOutcomes,
            st.builds(
                Outcomes,
                st.lists(st.builds(OutcomeRun, text, count, count, count, count, count), max_size=3).map(tuple),
                st.lists(
                    st.builds(
                        *(OutcomeException, text, count, count, count),
                        *(st.none() | text, st.none() | text, st.none() | count),
                    ),
                    max_size=3,
                ).map(tuple),
            ),
            pages,
        ),
        ledger=st.builds(
            WriterLedger,
            st.dictionaries(
                text,
                st.builds(
                    WriterRecord, st.lists(run, max_size=3).map(tuple), st.lists(rejected, max_size=2).map(tuple), count
                ),
                max_size=3,
            ),
            pages,
            st.lists(st.builds(ContentDigest, eight, eight), max_size=64).map(tuple),
        ),
        versions=st.builds(
            ReadableVersions,
            count,
            st.none() | st.builds(Expiry, count, pages.map(lambda found: found[0] if found else None)),
        ),
        tags=st.dictionaries(text, count, max_size=2),
        totals=st.builds(Totals, count, count, count, count, count, count, count, count),
        restores=st.builds(Restores, count, count, st.none() | count),
        removals=st.none() | removals,
        row_ids=st.builds(RowIds, count, st.none() | count),
        locations=st.builds(Locations, count, st.lists(condemned, max_size=2).map(tuple)),
        progress=st.lists(job, max_size=2).map(tuple),
    )


def example_header(version: int = 7) -> RootHeader:
    """A header in which every part holds something."""
    log = LogId("embedded/5f0c")
    return RootHeader(
        table=TableName("shop.orders"),
        table_uuid=TABLE_UUID,
        version=Version(version),
        parent_digest=bytes(range(32)),
        snapshot=Snapshot(
            SnapshotId(41), SnapshotId(40), SequenceNumber(9), 1_700_000_000_123, Operation.APPEND, {"added": "1"}
        ),
        definition=DefinitionReference("metadata/definitions/d.json", bytes(32)),
        commit_id=CommitId("0" * 31 + "1"),
        coordinator_id="coordinator-1",
        log=LogProgress(offsets=(PartitionOffset(log, 0, 12),)),
        outcomes=RecordedOutcomes(
            newest=Outcomes(
                (OutcomeRun(log, 0, 9, 10, Version(version), SequenceNumber(8)),),
                (OutcomeException(log, 0, 11, Version(version), "file-not-live", "data/x: not live", None),),
            )
        ),
        ledger=WriterLedger(
            writers={
                WriterId("spark/q1"): WriterRecord(
                    (CommittedRun(0, 9, Version(0), 1),), (RejectedSequence(10, "i-10", "spec-unknown", "spec 9"),), 5
                )
            }
        ),
        tags={"eom": 3},
        row_ids=RowIds(next=4000),
        totals=Totals(data_files=2, rows=4000, data_bytes=90_000),
    )


def example_entry(number: int = 0) -> ContentEntry:
    """A data file with a bound of every type."""
    return ContentEntry(
        content_type=ContentType.DATA,
        location=f"data/part-{number}.parquet",
        file_format=FileFormat.PARQUET,
        version_info=VersionInfo(Status.ADDED, 41, 8 + number, 8 + number),
        partition_spec_id=0,
        record_count=2000,
        file_size_in_bytes=45_000,
        sort_order_id=1,
        split_offsets=(4, 20_000),
        first_row_id=2000 * number,
        content_stats={field.tracked_id: _example_statistics(field.type, number) for field in TRACKED[: len(TYPES)]},
    )


def _example_statistics(field_type: PrimitiveType, number: int) -> FieldStatistics:
    if isinstance(field_type, UnknownType):
        return FieldStatistics(value_count=2000, null_value_count=2000)
    lower: dict[type[PrimitiveType], Any] = {
        BooleanType: False,
        FloatType: 0.5,
        DoubleType: -1.25,
        DecimalType: Decimal(-7 - number),
        StringType: f"Ä{number}",
        BinaryType: b"\x00\xff",
        UUIDType: bytes(range(16)),
        FixedType: b"fixed",
    }
    bound = lower.get(type(field_type), 1000 + number)
    return FieldStatistics(bound, bound, True, 2000, 3, 0, 8, 8)


def plain_schema(schema: Any) -> Any:
    """The schema without logical types, so that fastavro hands out what is stored."""
    if isinstance(schema, dict):
        return {key: plain_schema(value) for key, value in schema.items() if key != "logicalType"}
    if isinstance(schema, list):
        return [plain_schema(item) for item in schema]
    return schema


_PLAIN_ENTRY: Final = fastavro.parse_schema(plain_schema(content_entry_schema(TRACKED)))


def fastavro_encoded(entry: ContentEntry) -> bytes:
    """The entry as fastavro writes it."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, _PLAIN_ENTRY, as_avro(entry))
    return sink.getvalue()


def fastavro_decoded(encoded: bytes) -> Any:
    """The entry as fastavro reads it, in the shape of `as_avro`."""
    return fastavro.schemaless_reader(io.BytesIO(encoded), _PLAIN_ENTRY, None)


def as_avro(entry: ContentEntry) -> dict[str, Any]:
    """The entry as fastavro holds it without logical types."""
    info, vector, manifest = entry.version_info, entry.deletion_vector, entry.manifest_stats
    return {
        "version_info": {
            "status": int(info.status),
            "snapshot_id": info.snapshot_id,
            "sequence_number": info.sequence_number,
            "file_sequence_number": info.file_sequence_number,
        },
        "content_type": int(entry.content_type),
        "location": entry.location,
        "file_format": entry.file_format.value,
        "partition_spec_id": entry.partition_spec_id,
        "record_count": entry.record_count,
        "file_size_in_bytes": entry.file_size_in_bytes,
        "deletion_vector": None
        if vector is None
        else {
            "offset": vector.offset,
            "size_in_bytes": vector.size_in_bytes,
            "inline_content": vector.inline_content,
        },
        "sort_order_id": entry.sort_order_id,
        "manifest_stats": None
        if manifest is None
        else {name: getattr(manifest, name) for name in ManifestStats.__slots__},
        "referenced_file": entry.referenced_file,
        "key_metadata": entry.key_metadata,
        "split_offsets": None if entry.split_offsets is None else list(entry.split_offsets),
        "equality_ids": None if entry.equality_ids is None else list(entry.equality_ids),
        "first_row_id": entry.first_row_id,
        "content_stats": _stats_as_avro(entry.content_stats) if entry.content_stats else None,
    }


def _stats_as_avro(statistics: ContentStats) -> dict[str, Any]:
    return {
        f"_{field.tracked_id}": _field_as_avro(statistics[field.tracked_id], field.type)
        if field.tracked_id in statistics
        else None
        for field in TRACKED
    }


def _field_as_avro(field: FieldStatistics, field_type: PrimitiveType) -> dict[str, Any]:
    members = {name: getattr(field, name) for name in FieldStatistics.__slots__}
    if isinstance(field_type, UnknownType):
        return {name: value for name, value in members.items() if name not in _BOUND_MEMBERS}
    if isinstance(field_type, DecimalType):
        size = decimal_size_in_bytes(field_type.precision)
        for name in ("lower_bound", "upper_bound"):
            if members[name] is not None:
                unscaled = int(Decimal(members[name]).scaleb(field_type.scale, Context(prec=60)))
                members[name] = unscaled.to_bytes(size, "big", signed=True)
    return members


_BOUND_MEMBERS: Final = ("lower_bound", "upper_bound", "tight_bounds")


def nan_bytes(layout: str) -> bytes:
    """A NaN in `layout` (`<f` or `<d`)."""
    return struct.pack(layout, float("nan"))
