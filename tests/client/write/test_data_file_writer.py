"""Writing data files: what fits a table, how rows are split, what the files hold."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from rootline.client.create_drop import build_definition
from rootline.client.data_file import DataFile
from rootline.client.data_file_writer import WrittenFile, write_files
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import SortField, SortOrder, TableDefinition
from tests.storage.stored_tables import uuids

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("carrier", pa.string())])


def definition_of(schema: pa.Schema | Schema = SCHEMA, *partition_by: str) -> TableDefinition:
    return build_definition(schema, partition_by=partition_by, table_uuid=uuid.UUID(int=3))


def write(rows: Any, definition: TableDefinition | None = None, **options: Any) -> list[WrittenFile]:
    return write_files(rows, definition or definition_of(), uuids(), **options)


def read(file: WrittenFile) -> pa.Table:
    return pq.read_table(pa.BufferReader(file.body))


def test_rows_come_back_and_fields_carry_their_ids() -> None:
    (file,) = write(pa.table({"id": [1, 2], "carrier": ["UA", None]}))
    table = read(file)
    assert table.to_pydict() == {"id": [1, 2], "carrier": ["UA", None]}
    assert [table.schema.field(name).metadata[b"PARQUET:field_id"] for name in ("id", "carrier")] == [b"1", b"2"]
    assert file.data_file.location == f"data/{uuid.UUID(int=1)}.parquet"
    assert (file.data_file.record_count, file.data_file.file_size_in_bytes) == (2, len(file.body))
    assert file.data_file.split_offsets == (4,)


def test_the_same_rows_and_ids_give_the_same_bytes() -> None:
    rows = pa.table({"id": list(range(1000)), "carrier": ["UA", "AA"] * 500})
    assert write(rows) == write(rows)


def test_columns_are_found_by_name_whatever_their_order_and_width() -> None:
    rows = pa.table({"carrier": pa.array(["UA"], pa.large_string()), "id": pa.array([7], pa.int8())})
    assert read(write(rows)[0]).to_pydict() == {"id": [7], "carrier": ["UA"]}
    encoded = pa.table({"id": [7], "carrier": pa.array(["UA"]).dictionary_encode()})
    assert read(write(encoded)[0]).column("carrier").to_pylist() == ["UA"]


def test_a_missing_optional_column_is_null() -> None:
    assert read(write(pa.table({"id": [7]}))[0]).to_pydict() == {"id": [7], "carrier": [None]}


def test_batches_are_as_good_as_a_table() -> None:
    rows = pa.table({"id": [1, 2, 3], "carrier": ["a", "b", "c"]})
    assert write(rows) == write(rows.to_batches()[0]) == write(iter(rows.to_batches()))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"carrier": ["UA"]}, "column id is required, but missing"),
        ({"id": [1, None, None]}, "column id is required, but 2 of 3 rows have none"),
        ({"id": ["1"]}, "column id is a long, not string"),
        ({"id": [1.5]}, r"column id is a long, and row 0 \(the first is 0\) is 1.5, which does not fit"),
        ({"id": [1], "carrier": [2]}, "column carrier is a string, not int64"),
        ({"id": [1], "carier": ["UA"]}, "no column 'carier'; .*merge_schema=True"),
        ({"id": [1], "Carrier": ["UA"]}, "the table has 'carrier', and names are case-sensitive: rename it"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_column(rows: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        write(pa.table(rows))
    assert caught.value.code == "rows-invalid"


def test_every_batch_is_checked() -> None:
    good, bad = pa.RecordBatch.from_pydict({"id": [1]}), pa.RecordBatch.from_pydict({"id": [2], "carier": ["UA"]})
    with pytest.raises(Invalid, match="no column 'carier'"):
        write([good, bad])
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(Invalid, match="column 'id' is given more than once"):
        write([good, twice])


def test_a_value_that_would_change_is_refused() -> None:
    narrow = definition_of(pa.schema([("id", pa.int32()), ("at", pa.timestamp("us"))]))
    with pytest.raises(Invalid, match="column id is a int"):
        write(pa.table({"id": pa.array([2**40])}), narrow)
    with pytest.raises(Invalid, match="column at is a timestamp"):
        write(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), narrow)


def test_members_of_structs_are_checked_only_where_the_struct_is() -> None:
    schema = Schema(NestedField(1, "pair", StructType(NestedField(2, "left", IntegerType(), required=True))))
    pair = pa.struct([pa.field("left", pa.int32())])
    (file,) = write(pa.table({"pair": pa.array([{"left": 1}, None], pair)}), definition_of(schema))
    assert read(file).column("pair").to_pylist() == [{"left": 1}, None]
    with pytest.raises(Invalid, match=r"column pair.left is required, but 1 of 2 rows have none"):
        write(pa.table({"pair": pa.array([{"left": None}, None], pair)}), definition_of(schema))


def test_sliced_lists_and_maps_of_structs_are_written_as_they_are() -> None:
    element = pa.struct([pa.field("x", pa.int32())])
    schema = pa.schema([("many", pa.list_(element)), ("named", pa.map_(pa.string(), pa.int64()))])
    values = [{"many": [{"x": i}, None], "named": [(str(i), i)]} if i % 3 else {} for i in range(9)]
    rows = pa.Table.from_pylist(values, schema)
    (file,) = write(rows.slice(2, 5), definition_of(schema))
    assert read(file).to_pylist() == rows.slice(2, 5).to_pylist()


def test_rows_are_split_by_partition_and_keep_their_order() -> None:
    definition = definition_of(SCHEMA, "carrier", "bucket(2, id)")
    rows = pa.table({"id": list(range(20)), "carrier": ["UA", "AA", None, "UA"] * 5})
    files = write(rows, definition)
    assert sorted(row["id"] for file in files for row in read(file).to_pylist()) == list(range(20))
    for file in files:
        table = read(file)
        assert len(set(table.column("carrier").to_pylist())) == 1
        assert table.column("id").to_pylist() == sorted(table.column("id").to_pylist())
        assert file.data_file.content_stats is not None
        stats, _ = EntryCodec.of_definition(definition).statistics.decode(file.data_file.content_stats)
        assert stats[2].lower_bound == table.column("carrier")[0].as_py()
    assert files[0].data_file.location.startswith("data/carrier=UA/id_bucket=")
    assert len({file.data_file.location for file in files}) == len(files)


def test_folder_names_hold_nothing_that_a_location_may_not() -> None:
    rows = pa.table({"id": [1], "carrier": ["../%2e\n\\é" + "x" * 200]})
    location = write(rows, definition_of(SCHEMA, "carrier"))[0].data_file.location
    assert location.count("/") == 2
    assert not set(location) & set("%\\\né")
    assert len(location) < 200


def test_no_rows_make_no_file() -> None:
    assert write(pa.table({"id": pa.array([], pa.int64()), "carrier": pa.array([], pa.string())})) == []
    assert write(iter(())) == []


def test_files_are_closed_at_the_target_size() -> None:
    rows = pa.table({"id": list(range(30_000)), "carrier": [f"{number * 7919 % 20_011:x}" for number in range(30_000)]})
    files = write(rows, target_file_size_bytes=20_000)
    assert len(files) > 3
    assert pa.concat_tables([read(file) for file in files]).column("id").to_pylist() == list(range(30_000))
    assert all(len(file.body) < 60_000 for file in files)


def test_rows_are_put_in_the_tables_sort_order() -> None:
    plain = definition_of(SCHEMA)
    order = SortOrder(1, (SortField(2, "identity", "desc", "nulls-last"), SortField(1)))
    definition = TableDefinition(
        plain.table_uuid, plain.schemas, 0, (), plain.partition_specs, 0, (order,), 1, plain.last_column_id, {}
    )
    rows = pa.table({"id": [3, 1, 2, 4], "carrier": ["a", "b", None, "b"]})
    (file,) = write(rows, definition)
    assert read(file).to_pylist() == [
        {"id": 1, "carrier": "b"},
        {"id": 4, "carrier": "b"},
        {"id": 3, "carrier": "a"},
        {"id": 2, "carrier": None},
    ]
    assert file.data_file.sort_order_id == 1


def test_an_existing_file_is_described_as_if_we_had_written_it() -> None:
    definition = definition_of(SCHEMA, "carrier")
    (written,) = write(pa.table({"id": [1, 2], "carrier": ["UA", "UA"]}), definition)
    described = DataFile.from_parquet(written.data_file.location, definition, source=written.body)
    assert described.model_dump() == written.data_file.model_dump()
    assert Intent(intent_id="i", table="a.b", kind=IntentKind.APPEND, add_data_files=(described,)).add_data_files


def test_a_file_without_ids_is_described_by_name(tmp_path: Any) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 5], pa.int64())}), path)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "carrier", StringType()))
    described = DataFile.from_parquet("data/plain.parquet", schema, source=path)
    by_id = {item.field_id: item for item in described.statistics}
    assert (by_id[1].value_count, by_id[2].null_value_count) == (2, 2)
    assert by_id[1].upper_bound == (5).to_bytes(8, "little")


HIVE = pa.schema([("id", pa.int64()), ("Day", pa.date32()), ("carrier", pa.string()), ("at", pa.timestamp("us"))])


def hive_file() -> bytes:
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array([1, 5], pa.int64())}), body)
    return body.getvalue().to_pybytes()


def test_a_column_that_only_the_path_states_has_its_value_from_there() -> None:
    definition = definition_of(HIVE, "Day", "carrier", "at")
    by_us = pa.table({"id": [1, 5], "Day": [dt.date(2024, 2, 29)] * 2, "carrier": ["a/b"] * 2, "at": [None] * 2}, HIVE)
    (written,) = write(by_us, definition)
    location = "backfill/day=2024-02-29/carrier=a%2Fb/at=__HIVE_DEFAULT_PARTITION__/x.parquet"
    described = DataFile.from_parquet(location, definition, source=hive_file())
    assert described.content_stats == written.data_file.content_stats


def test_the_path_that_a_file_is_read_from_states_values_too(tmp_path: Path) -> None:
    path = tmp_path / "Day=2024-02-29" / "carrier=UA" / "x.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(hive_file())
    with pytest.raises(Invalid, match="its path states Day='2024-02-29', and the file has no column Day"):
        DataFile.from_parquet("data/x.parquet", definition_of(HIVE, "carrier"), source=path)


@pytest.mark.parametrize(
    ("location", "terms", "said"),
    [
        ("day=2024-02-29", (), "only if it is partitioned by Day itself"),
        ("day=2024-02-29", ("month(Day)",), "only if it is partitioned by Day itself"),
        ("day=yesterday", ("Day",), "The text is not a date"),
        ("at=noon", ("at",), "The text is not a timestamp"),
        ("carrier=a%FF", ("carrier",), "escaped bytes of 'carrier=a%FF' in its path are not UTF-8"),
    ],
)
def test_a_value_of_a_path_that_a_table_cannot_keep_is_refused(
    location: str, terms: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        DataFile.from_parquet(f"backfill/{location}/x.parquet", definition_of(HIVE, *terms), source=hive_file())
    assert caught.value.code == "rows-invalid"


PATH_VALUES: list[tuple[pa.DataType, str, Any]] = [
    (pa.int32(), "01", 1),
    (pa.int64(), "-007", -7),
    (pa.int32(), "2147483648", None),
    (pa.int32(), "1.0", None),
    (pa.int32(), "", None),
    (pa.bool_(), "true", True),
    (pa.float64(), "1.5E10", 1.5e10),
    (pa.float64(), "-Infinity", float("-inf")),
    (pa.decimal128(9, 2), "1.5", Decimal("1.50")),
    (pa.decimal128(9, 2), "1.555", None),
    (pa.string(), "01", "01"),
    (pa.string(), "", ""),
    (pa.string(), "a%2Fb%3D%25+ %C3%A9", "a/b=%+ \u00e9"),
    (pa.date32(), "2024-02-29", dt.date(2024, 2, 29)),
    (pa.date32(), "2023-02-29", None),
    (pa.timestamp("us"), "2024-02-29 12%3A30%3A00.5", dt.datetime(2024, 2, 29, 12, 30, 0, 500_000)),
    (pa.timestamp("us", "UTC"), "2024-02-29 12%3A30%3A00", None),
    (pa.timestamp("us", "UTC"), "2024-02-29T12%3A30%3A00Z", dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)),
    (pa.uuid(), "00000000-0000-0000-0000-000000000007", uuid.UUID(int=7)),
    (pa.uuid(), "7", None),
]


@pytest.mark.parametrize(("kind", "text", "value"), PATH_VALUES)
def test_a_value_of_a_path_is_of_the_columns_type_or_is_refused(kind: pa.DataType, text: str, value: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", kind)])
    definition = definition_of(schema, "part")
    location = f"backfill/part={text}/x.parquet"
    if value is None:
        with pytest.raises(Invalid, match=r"backfill/part=.*The text is not a") as caught:
            DataFile.from_parquet(location, definition, source=hive_file())
        assert caught.value.code == "rows-invalid"
        return
    stored = value.bytes if isinstance(value, uuid.UUID) else value
    (written,) = write(pa.Table.from_pylist([{"id": at, "part": stored} for at in (1, 5)], schema), definition)
    described = DataFile.from_parquet(location, definition, source=hive_file())
    assert described.content_stats == written.data_file.content_stats


def test_a_column_that_the_file_has_is_not_taken_from_its_path() -> None:
    definition = definition_of(SCHEMA, "carrier")
    (written,) = write(pa.table({"id": [1], "carrier": ["UA"]}), definition)
    described = DataFile.from_parquet("data/carrier=AA/id=7/other=3/x.parquet", definition, source=written.body)
    assert described.content_stats == written.data_file.content_stats


def test_a_file_with_a_row_group_that_has_no_rows_is_described() -> None:
    definition = definition_of(pa.schema([("yes", pa.bool_())]))
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"yes": pa.array([], pa.bool_())}), body)
    found = DataFile.from_parquet("data/empty.parquet", definition, source=body.getvalue().to_pybytes())
    assert (found.record_count, found.split_offsets) == (0, None)


@pytest.mark.parametrize(
    ("body", "code"), [(b"PAR1 not really", "file-unreadable"), (b"", "file-unreadable"), (None, "file-unreadable")]
)
def test_what_is_no_parquet_file_is_refused(body: bytes | None, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        DataFile.from_parquet("data/none.parquet", definition_of(), source=body)
    assert caught.value.code == code


def texts(*values: bytes) -> pa.Array:
    """Texts of these bytes, which Arrow does not check."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def in_lists(*values: bytes) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), texts(*values))


@pytest.mark.parametrize("partition_by", [(), ("carrier",)])
def test_a_file_with_a_text_that_is_not_utf_8_is_refused(partition_by: tuple[str, ...]) -> None:
    """Spark writes such texts: `cast(X'FF41' as string)`."""
    definition = definition_of(pa.schema([("carrier", pa.string())]), *partition_by)
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"carrier": texts(b"\xffA")}), body)
    with pytest.raises(Invalid, match=r"data/x.parquet: column carrier: row 0 .* not UTF-8") as caught:
        DataFile.from_parquet("data/x.parquet", definition, source=body.getvalue().to_pybytes())
    assert caught.value.code == "rows-invalid"


@pytest.mark.parametrize(
    "carriers", [texts(b"a", b"m\xff", b"z"), in_lists(b"a", b"m\xff", b"z")], ids=["text", "list"]
)
def test_a_text_that_is_not_utf_8_is_refused_where_it_is_no_bound(carriers: pa.Array) -> None:
    """DuckDB would read nothing of such a file, and a compaction would fail once the text is a bound."""
    definition, rows = definition_of(pa.schema([("carrier", carriers.type)])), pa.table([carriers], ["carrier"])
    with pytest.raises(Invalid, match=r"column carrier: .*row.* not UTF-8"):
        write(rows, definition)
    out = pa.BufferOutputStream()
    pq.write_table(rows, out)
    with pytest.raises(Invalid, match=r"data/x.parquet: column carrier: .*row.* not UTF-8"):
        DataFile.from_parquet("data/x.parquet", definition, source=out.getvalue().to_pybytes())


@pytest.mark.parametrize("store_schema", [True, False], ids=["as a dictionary", "as texts"])
def test_a_small_file_of_many_long_texts_is_not_in_memory_at_once(store_schema: bool) -> None:
    """Spark writes equal texts once, into a dictionary. Arrow may read its own files as dictionaries, too."""
    carriers = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20_000, pa.int8()), ["A" * 8_000, "B" * 8_000])
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"carrier": carriers}), body, row_group_size=35_000, store_schema=store_schema)
    definition = definition_of(pa.schema([("carrier", pa.string())]))
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        found = DataFile.from_parquet("data/x.parquet", definition, source=body.getvalue().to_pybytes())
    finally:
        pa.set_memory_pool(before)
    assert (found.record_count, found.file_size_in_bytes < 1_000_000) == (40_000, True)
    assert counted.max_memory() < 200_000_000, "the rows have 320 MB"


@pytest.mark.parametrize(("value", "term"), [(-(2**63), "truncate(10, id)"), (-(2**31), "truncate(10, small)")])
def test_a_file_with_a_value_whose_partition_is_out_of_range_is_refused(value: int, term: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("small", pa.int32())])
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [value], "small": pa.array([-(2**31)], pa.int32())}), body)
    with pytest.raises(Invalid, match=r"does not fit a (long|int): remove such rows") as caught:
        DataFile.from_parquet("data/x.parquet", definition_of(schema, term), source=body.getvalue().to_pybytes())
    assert caught.value.code == "rows-invalid"


def test_a_file_of_several_partitions_is_refused() -> None:
    (written,) = write(pa.table({"id": [1, 2], "carrier": ["UA", "AA"]}))
    with pytest.raises(Invalid, match="more than one partition"):
        DataFile.from_parquet("data/x.parquet", definition_of(SCHEMA, "carrier"), source=written.body)
