"""Intents of every kind, with every field of the wire set somewhere."""

from __future__ import annotations

from uuid import UUID

from rootline.schemas.content_entry import ContentType, FileFormat
from rootline.schemas.intent import (
    AddedManifest,
    AddedVector,
    AdoptedRoot,
    DataFile,
    EqualityDeleteFile,
    GenericStatistics,
    Intent,
    IntentKind,
    Isolation,
    Reaffiliation,
    RemovedFile,
    StoredPage,
    VectorReference,
    VersionReference,
)

STATISTICS = GenericStatistics(
    field_id=3,
    lower_bound=b"\x01\x00\x00\x00",
    upper_bound=b"\xff\xff\xff\x7f",
    tight_bounds=True,
    value_count=100,
    null_value_count=0,
    nan_value_count=0,
    avg_value_size_in_bytes=4,
    max_value_size_in_bytes=4,
)
FILE = DataFile(
    location="data/part-0.parquet",
    record_count=100,
    file_size_in_bytes=4_096,
    content_stats=b"\x02\x00\xff",
    stats_schema=b"12345678",
)
GENERIC_FILE = DataFile(
    location="data/größe.orc",
    file_format=FileFormat.ORC,
    partition_spec_id=2,
    record_count=2**63 - 1,
    file_size_in_bytes=0,
    statistics=(STATISTICS, GenericStatistics(field_id=10_000_000)),
    sort_order_id=1,
    split_offsets=(4, 2**40),
    key_metadata=b"\x00",
)
VECTOR = AddedVector(
    location="data/v.puffin",
    offset=4,
    size_in_bytes=40,
    file_size_in_bytes=200,
    cardinality=3,
    referenced_file="data/part-0.parquet",
    replaces_vector=VectorReference(location="data/u.puffin", offset=4),
)
PAGE = StoredPage(
    location="metadata/pages/000102030405060708090a0b0c0d0e0f.avro", file_size_in_bytes=900, digest=bytes(range(32))
)


def intents() -> list[Intent]:
    return [
        Intent(
            intent_id="i-append",
            table="db.events",
            table_uuid=UUID(int=7),
            kind=IntentKind.APPEND,
            writer_id="process/1",
            writer_sequence=0,
            schema_id=0,
            add_data_files=(FILE, GENERIC_FILE),
            summary={"spark.app.id": "local-1", "ключ": ""},
        ),
        Intent(
            intent_id="i-remove",
            table="db.events",
            kind=IntentKind.REMOVE,
            remove_files=(
                RemovedFile(location="data/a.parquet"),
                RemovedFile(location="data/e.parquet", content_type=ContentType.EQUALITY_DELETE),
                RemovedFile(location="data/b.parquet", vector=VectorReference(location="data/v.puffin", offset=44)),
            ),
        ),
        Intent(
            intent_id="i-overwrite",
            table="db.events",
            kind=IntentKind.OVERWRITE,
            read_version=4,
            read_sequence_number=9,
            isolation=Isolation.SERIALIZABLE,
            filter="day = '2024-01-01'",
            add_data_files=(FILE,),
            remove_files=(RemovedFile(location="data/a.parquet"),),
        ),
        Intent(
            intent_id="i-delta",
            table="db.events",
            kind=IntentKind.ROW_DELTA,
            add_data_files=(FILE,),
            add_equality_deletes=(
                EqualityDeleteFile(
                    location="data/eq.parquet", record_count=1, file_size_in_bytes=10, equality_ids=(1, 2)
                ),
            ),
            add_vectors=(VECTOR, VECTOR.model_copy(update={"replaces_vector": None})),
        ),
        Intent(intent_id="i-create", table="db.events", kind=IntentKind.CREATE, definition='{"format-version":4}'),
        Intent(
            intent_id="i-flush",
            table="db.events",
            kind=IntentKind.FLUSH,
            made_from_version=12,
            add_manifests=(
                AddedManifest(
                    location="metadata/leaves/x.parquet",
                    content_type=ContentType.DELETE_MANIFEST,
                    file_size_in_bytes=1,
                    record_count=2,
                    partition_spec_id=0,
                    referenced_file="metadata/leaves/y.parquet",
                ),
            ),
        ),
        Intent(
            intent_id="i-compact-vectors",
            table="db.events",
            kind=IntentKind.COMPACT_VECTORS,
            made_from_version=13,
            add_vectors=(
                VECTOR.model_copy(
                    update={
                        "location": "metadata/vectors/v.puffin",
                        "referenced_file": "metadata/leaves/a.parquet",
                        "replaces_vector": None,
                    }
                ),
            ),
        ),
        Intent(
            intent_id="i-compact-leaves",
            table="db.events",
            kind=IntentKind.COMPACT_LEAVES,
            made_from_version=13,
            add_manifests=(
                AddedManifest(
                    location="metadata/leaves/z.parquet",
                    content_type=ContentType.DATA_MANIFEST,
                    file_size_in_bytes=1,
                    record_count=2,
                    partition_spec_id=0,
                ),
            ),
            replaces=("metadata/leaves/a.parquet", "metadata/leaves/b.parquet"),
            reaffiliate=(
                Reaffiliation(location="metadata/leaves/d.parquet", referenced_file="metadata/leaves/z.parquet"),
                Reaffiliation(location="metadata/leaves/e.parquet"),
            ),
        ),
        Intent(
            intent_id="i-convert",
            table="db.events",
            kind=IntentKind.CONVERT_EQUALITY_DELETES,
            made_from_version=13,
            read_sequence_number=29,
            remove_files=(RemovedFile(location="data/e.parquet", content_type=ContentType.EQUALITY_DELETE),),
            add_vectors=(VECTOR,),
            replaces=("data/clean.parquet",),
        ),
        Intent(
            intent_id="i-tag",
            table="db.events",
            kind=IntentKind.TAG,
            ref=VersionReference(version=7, tag="release-2.1", seen_version=4),
        ),
        Intent(intent_id="i-restore", table="db.events", kind=IntentKind.RESTORE, ref=VersionReference(version=7)),
        Intent(
            intent_id="i-alter",
            table="db.events",
            kind=IntentKind.ALTER,
            definition=(
                f'{{"changes":[{{"action":"set-properties","updates":{{"owner":"ops"}}}}],'
                f'"replaces-definition":"{bytes(range(32)).hex()}"}}'
            ),
        ),
        Intent(
            intent_id="i-replace",
            table="db.events",
            table_uuid=UUID(int=7),
            kind=IntentKind.REPLACE,
            add_data_files=(FILE,),
            definition=(
                '{"changes":[{"action":"set-current-schema","schema-id":0}],'
                f'"replaces-definition":"{bytes(range(32)).hex()}"}}'
            ),
        ),
        Intent(
            intent_id="i-adopt",
            table="db.events",
            kind=IntentKind.CREATE,
            definition='{"format-version":4}',
            adopt=AdoptedRoot(location="metadata/adopted/0f.avro", file_size_in_bytes=9_000, digest=bytes(range(32))),
        ),
        Intent(
            intent_id="i-rewrite",
            table="db.events",
            kind=IntentKind.REWRITE,
            read_version=4,
            read_sequence_number=9,
            add_data_files=(FILE,),
            remove_files=(
                RemovedFile(location="data/a.parquet"),
                RemovedFile(location="data/b.parquet", vector=VectorReference(location="data/v.puffin", offset=44)),
            ),
        ),
        Intent(
            intent_id="i-expire",
            table="db.events",
            kind=IntentKind.EXPIRE,
            made_from_version=500,
            ref=VersionReference(version=400),
        ),
        Intent(
            intent_id="i-expire-all-but",
            table="db.events",
            kind=IntentKind.EXPIRE,
            made_from_version=500,
            ref=VersionReference(version=400),
            page=PAGE,
        ),
        Intent(intent_id="i-drop", table="db.events", kind=IntentKind.DROP, table_uuid=UUID(int=7)),
        Intent(intent_id="i-purge", table="db.events", kind=IntentKind.PURGE, table_uuid=UUID(int=7)),
        Intent(
            intent_id="i-create-view",
            table="db.late_events",
            kind=IntentKind.CREATE_VIEW,
            table_uuid=UUID(int=8),
            definition=(
                '{"view-uuid":"00000000-0000-0000-0000-000000000008","location":"s3://lake/db/late_events",'
                '"version":{"representations":[{"type":"sql","sql":"SELECT 1","dialect":"spark"}]}}'
            ),
        ),
        Intent(
            intent_id="i-replace-view",
            table="db.late_events",
            kind=IntentKind.REPLACE_VIEW,
            table_uuid=UUID(int=8),
            definition='{"current-version-id":1}',
        ),
        Intent(intent_id="i-drop-view", table="db.late_events", kind=IntentKind.DROP_VIEW, table_uuid=UUID(int=8)),
        Intent(intent_id="i-sweep", table="db.events", kind=IntentKind.SWEEP, made_from_version=501, page=PAGE),
    ]
