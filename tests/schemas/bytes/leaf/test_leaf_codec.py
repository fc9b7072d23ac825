from __future__ import annotations

import dataclasses
import hashlib
import io
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import PrimitiveType

from rootline.schemas import field_ids
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, ROW_GROUP_ENTRIES, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.leaf_schema import statistics_field, with_id
from rootline.schemas.content_entry import Bound, ContentType, EntryPlace, FieldStatistics, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.object_keys import leaf_location
from tests.golden_files import golden, kept
from tests.schemas.leaf_examples import (
    BOUNDS,
    EXPRESSION_ID,
    LEAF_UUID,
    data_entry,
    definition,
    equality_entry,
    vector_entry,
)


def test_a_data_leaf_reads_back_as_it_was_written() -> None:
    entries = [data_entry(number) for number in range(40)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    assert (len(leaf), leaf.content, leaf.size_in_bytes) == (40, LeafContent.DATA, len(encoded.body))
    assert list(leaf.entries()) == entries
    assert [leaf.entry(ordinal) for ordinal in (39, 0, 17)] == [entries[39], entries[0], entries[17]]


def test_a_delete_leaf_reads_back_as_it_was_written() -> None:
    entries = [vector_entry(0), equality_entry(1), vector_entry(2)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DELETE)
    assert list(decode_leaf(encoded.body, location=encoded.location).entries()) == entries


def test_entries_without_any_statistics_need_no_statistics_column() -> None:
    encoded = encode_leaf([equality_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DELETE)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    assert "content_stats" not in leaf.table.column_names
    assert leaf.tracked_ids == ()
    assert leaf.entry(0) == equality_entry(1)


@pytest.mark.parametrize(("index", "kind", "low", "high"), [(i, *row) for i, row in enumerate(BOUNDS, 1)], ids=str)
def test_bounds_of_every_type_are_the_same_physical_values(
    index: int, kind: PrimitiveType, low: Bound, high: Bound
) -> None:
    statistics = {index: FieldStatistics(lower_bound=low, upper_bound=high)}
    entry = dataclasses.replace(data_entry(1), content_stats=statistics)
    encoded = encode_leaf([entry], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    read = decode_leaf(encoded.body, location=encoded.location).entry(0).content_stats[index]
    assert (repr(read.lower_bound), repr(read.upper_bound)) == (repr(low), repr(high))
    assert read.value_count is None


def test_absent_statistics_and_null_bounds_stay_apart() -> None:
    entry = dataclasses.replace(data_entry(1), content_stats={EXPRESSION_ID: FieldStatistics()})
    other = dataclasses.replace(data_entry(2), content_stats={2: FieldStatistics(1, 2)})
    encoded = encode_leaf([entry, other], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    first, second = decode_leaf(encoded.body, location=encoded.location).entries()
    assert dict(first.content_stats) == {EXPRESSION_ID: FieldStatistics()}
    assert dict(second.content_stats) == {2: FieldStatistics(1, 2)}


def test_every_field_has_its_field_id_and_only_known_columns_exist() -> None:
    entries = [data_entry(number) for number in range(8)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    file = pq.ParquetFile(io.BytesIO(encoded.body))
    ids = dict(_field_ids(file.schema_arrow))
    assert ids["location"] == field_ids.LOCATION
    assert ids["version_info.sequence_number"] == field_ids.SEQUENCE_NUMBER
    assert ids["split_offsets.element"] == field_ids.SPLIT_OFFSETS_ELEMENT
    assert ids["content_stats"] == field_ids.CONTENT_STATS
    assert ids["content_stats._2"] == 10_400
    assert ids["content_stats._2.max_value_size_in_bytes"] == 10_408
    assert None not in ids.values()
    assert len(set(ids.values())) == len(ids)
    metadata = file.metadata.metadata
    assert metadata[b"format-version"] == b"4"
    assert metadata[b"content"] == b"data"
    assert metadata[b"rootline.profile"] == b"single-file-commits/1"


def _field_ids(fields: pa.Schema | pa.DataType, prefix: str = "") -> list[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = []
    for field in fields:
        held = (field.metadata or {}).get(b"PARQUET:field_id")
        found.append((prefix + field.name, None if held is None else int(held)))
        if pa.types.is_struct(field.type):
            found += _field_ids(field.type, f"{prefix}{field.name}.")
        elif pa.types.is_list(field.type):
            found += _field_ids([field.type.value_field], f"{prefix}{field.name}.")
    return found


def test_the_name_carries_the_uuid_the_content_and_the_footers_digest() -> None:
    encoded = encode_leaf([data_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    footer_size = int.from_bytes(encoded.body[-8:-4], "little")
    digest = hashlib.sha256(encoded.body[-8 - footer_size : -8])
    assert encoded.footer_digest == digest.digest()
    assert encoded.location == leaf_location(LEAF_UUID, "data", digest.hexdigest())


def test_the_same_entries_give_the_same_bytes() -> None:
    once, again = (
        encode_leaf([data_entry(1), data_entry(2)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
        for _ in range(2)
    )
    assert once == again


def test_numbers_are_delta_encoded_and_only_text_and_bytes_cost_a_zstd_frame() -> None:
    encoded = encode_leaf([data_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    group = pq.read_metadata(io.BytesIO(encoded.body)).row_group(0)
    for column in (group.column(index) for index in range(group.num_columns)):
        is_text = column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        assert column.compression == ("ZSTD" if is_text else "LZ4"), column.path_in_schema
        assert ("DELTA_BINARY_PACKED" in column.encodings) == (column.physical_type in ("INT32", "INT64"))
        assert ("BYTE_STREAM_SPLIT" in column.encodings) == (column.physical_type in ("FLOAT", "DOUBLE"))


def test_planning_reads_single_columns() -> None:
    entries = [data_entry(number) for number in range(9)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    path = f"content_stats._{EXPRESSION_ID}.lower_bound"
    table = leaf.columns(["location", path])
    assert table.column_names == ["location", "content_stats"]
    assert table.column("location").to_pylist() == [entry.location for entry in entries]
    assert [struct.name for struct in table.schema.field("content_stats").type] == [f"_{EXPRESSION_ID}"]
    assert leaf.table.num_rows == 9


def test_ordinals_are_found_by_place_and_deleted_rows_are_not() -> None:
    entries = [data_entry(0), data_entry(1, status=Status.DELETED), data_entry(2)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    assert [leaf.ordinal_of(entry.place) for entry in entries] == [0, None, 2]
    assert leaf.ordinal_of(EntryPlace(ContentType.EQUALITY_DELETE, entries[0].location)) is None
    assert leaf.ordinal_of(EntryPlace(ContentType.DATA, "data/none.parquet")) is None


def test_vectors_of_one_puffin_file_are_told_apart_by_their_offset() -> None:
    entries = [vector_entry(0), vector_entry(1)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DELETE)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    assert [leaf.ordinal_of(entry.place) for entry in entries] == [0, 1]
    assert leaf.ordinal_of(EntryPlace(ContentType.POSITION_DELETE, "data/vectors.puffin", 5)) is None


def test_ordinals_run_across_row_groups() -> None:
    entries = [
        dataclasses.replace(equality_entry(number), content_stats={2: FieldStatistics(number, number)})
        for number in range(ROW_GROUP_ENTRIES + 3)
    ]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DELETE)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    assert leaf.ordinal_of(entries[-1].place) == ROW_GROUP_ENTRIES + 2
    for ordinal in (0, ROW_GROUP_ENTRIES - 1, ROW_GROUP_ENTRIES, ROW_GROUP_ENTRIES + 2):
        assert leaf.entry(ordinal) == entries[ordinal]
    assert list(leaf.entries()) == entries
    picked = [ROW_GROUP_ENTRIES + 2, 0, 17, 15, 16, 17, ROW_GROUP_ENTRIES, ROW_GROUP_ENTRIES - 1]
    assert leaf.entries_at(picked) == [entries[ordinal] for ordinal in picked]
    ascending = sorted(set(picked))
    assert leaf.statistics_at(ascending)[2].field(0).to_pylist() == ascending
    assert leaf.statistics_at([]) == {}
    with pytest.raises(IndexError):
        leaf.entry(len(entries))
    with pytest.raises(IndexError):
        leaf.entry(-1)


def test_an_added_entry_may_inherit_its_numbers_and_an_existing_one_may_not() -> None:
    added = dataclasses.replace(data_entry(1), version_info=VersionInfo(Status.ADDED))
    encoded = encode_leaf([added], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    assert decode_leaf(encoded.body, location=encoded.location).entry(0) == added
    for info in (VersionInfo(Status.EXISTING), VersionInfo(Status.EXISTING, 1, None, 1)):
        with pytest.raises(Invalid, match=r"part-00001.*only an ADDED"):
            encode_leaf(
                [dataclasses.replace(added, version_info=info)],
                definition(),
                leaf_uuid=LEAF_UUID,
                content=LeafContent.DATA,
            )


def test_a_leaf_holds_entries_of_one_spec_and_its_own_content() -> None:
    other_spec = dataclasses.replace(data_entry(2), partition_spec_id=0)
    for entries, content in (
        ([data_entry(1), other_spec], LeafContent.DATA),
        ([data_entry(1)], LeafContent.DELETE),
        ([vector_entry(1)], LeafContent.DATA),
        ([dataclasses.replace(data_entry(1), content_type=ContentType.DATA_MANIFEST)], LeafContent.DATA),
        ([], LeafContent.DATA),
        ([data_entry(1)] * (MAX_ENTRIES + 1), LeafContent.DATA),
        ([dataclasses.replace(data_entry(1), record_count=2**63)], LeafContent.DATA),
    ):
        with pytest.raises(Invalid) as caught:
            encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=content)
        assert caught.value.code == "leaf-invalid"


def test_statistics_that_do_not_fit_their_column_are_refused() -> None:
    for statistics in ({2: FieldStatistics("text")}, {2: FieldStatistics(2**31)}, {999: FieldStatistics(1)}):
        with pytest.raises(Invalid) as caught:
            encode_leaf(
                [dataclasses.replace(data_entry(1), content_stats=statistics)],
                definition(),
                leaf_uuid=LEAF_UUID,
                content=LeafContent.DATA,
            )
        assert caught.value.code == "statistics-invalid"


def _leaf_of_table(table: pa.Table, *, profile: str = "single-file-commits/1") -> tuple[bytes, str]:
    """A leaf whose digests are right but whose rows another writer chose."""
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, table.schema, store_schema=False)
    writer.write_table(table)
    pages = hashlib.sha256(sink.getbuffer()).hexdigest()
    writer.add_key_value_metadata(
        {"format-version": "4", "content": "data", "rootline.profile": profile, "rootline.pages-digest": pages}
    )
    writer.close()
    body = sink.getvalue()
    footer = body[-8 - int.from_bytes(body[-8:-4], "little") : -8]
    return body, leaf_location(UUID(int=1), "data", hashlib.sha256(footer).hexdigest())


def with_statistics(table: pa.Table, *fields: pa.Field) -> pa.Table:
    kind = pa.struct(fields)
    column = pa.array([{}], kind)
    return table.drop_columns(["content_stats"]).append_column(with_id(pa.field("content_stats", kind), 149), column)


def strange_statistics() -> list[tuple[pa.Field, ...]]:
    good = statistics_field(definition().tracked_by_id[2])
    members = list(good.type)
    return [
        (pa.field("_2", pa.int32(), metadata=good.metadata),),
        (pa.field("_2", good.type),),
        (pa.field("x", good.type, metadata=good.metadata),),
        (pa.field("_3", good.type, metadata=good.metadata),),
        (pa.field("_²", good.type, metadata=good.metadata),),
        (pa.field("_2", pa.struct(members[1:]), metadata=good.metadata),),
        (pa.field("_2", pa.struct(members[:-1]), metadata=good.metadata),),
        (pa.field("_2", pa.struct([members[0], with_id(members[1], 9), *members[2:]]), metadata=good.metadata),),
        (
            pa.field(
                "_2",
                pa.struct([*(member.with_type(pa.uint8()) for member in members[:2]), *members[2:]]),
                metadata=good.metadata,
            ),
        ),
    ]


def test_a_leaf_of_another_writer_that_breaks_a_rule_is_corrupt() -> None:
    encoded = encode_leaf([data_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    table = decode_leaf(encoded.body, location=encoded.location).table
    body, location = _leaf_of_table(table)
    assert decode_leaf(body, location=location).entry(0) == data_entry(1)

    numbers = table.schema.get_field_index("version_info")
    nulls = pa.array([{"status": 0, "snapshot_id": 5}], table.schema.field(numbers).type)
    strange = pa.array([{"status": 3, "snapshot_id": 5}], table.schema.field(numbers).type)
    specs = pa.concat_tables(
        [table, table.set_column(5, table.schema.field(5), pa.array([0], pa.int32()))],
    )
    for violations in (
        table.set_column(numbers, table.schema.field(numbers), nulls),
        table.set_column(numbers, table.schema.field(numbers), strange),
        table.set_column(0, table.schema.field(0), pa.array([1], pa.int32())),
        table.set_column(2, table.schema.field(2), pa.array(["csv"])),
        table.slice(0, 0),
        table.drop_columns(["record_count"]),
        table.drop_columns(["record_count"]).append_column("record_count", pa.array([1])),
        table.rename_columns(["content_type", "place", *table.column_names[2:]]),
        specs,
        table.set_column(
            1, pa.field("location", pa.string(), metadata=table.schema.field(1).metadata), table.column(1)
        ),
        table.append_column(table.schema.field(1), table.column(1)),
        table.drop_columns(["content_stats"]).take(pa.array([0] * (MAX_ENTRIES + 1))),
        *(with_statistics(table, *fields) for fields in strange_statistics()),
    ):
        body, location = _leaf_of_table(violations)
        with pytest.raises(Corrupt, match=location) as caught:
            decode_leaf(body, location=location)
        assert caught.value.code == "leaf-corrupt"

    body, location = _leaf_of_table(table, profile="single-file-commits/2")
    with pytest.raises(Corrupt, match="single-file-commits/2") as caught:
        decode_leaf(body, location=location)
    assert caught.value.code == "profile-unknown"


def test_text_that_is_no_text_is_noticed_when_it_is_read() -> None:
    encoded = encode_leaf([data_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    table = decode_leaf(encoded.body, location=encoded.location).table
    text = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    body, location = _leaf_of_table(table.set_column(1, table.schema.field(1), text))
    leaf = decode_leaf(body, location=location)
    for read in (lambda: leaf.entry(0), lambda: leaf.columns(["location"]), lambda: leaf.table):
        with pytest.raises(Corrupt, match=location):
            read()


def test_leaves_that_were_released_stay_readable() -> None:
    entries = [data_entry(number) for number in range(6)]
    made = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    body = kept("leaf-data.parquet", made.body)
    footer = body[-8 - int.from_bytes(body[-8:-4], "little") : -8]
    location = leaf_location(LEAF_UUID, "data", hashlib.sha256(footer).hexdigest())
    assert list(decode_leaf(body, location=location).entries()) == entries


def test_the_table_definition_reads_and_writes_as_it_was_released() -> None:
    assert golden("table-definition.json", definition().to_json())
    assert definition().from_json(definition().to_json()) == definition()
