"""Columns that a data file lacks, or names otherwise: what files of an adopted table's earlier life hold."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from rootline.client.create_drop import build_definition
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY, TableDefinition
from rootline.storage.rows.arrow_types import nulls_of
from tests.storage.stored_deletes import at, equality_delete, parquet
from tests.storage.stored_tables import StoredTable, flights, flights_definition, ids_of, replaced


def _table(definition: TableDefinition) -> StoredTable:
    table = StoredTable(definition)
    for entry in table.write(flights(*range(6))):
        body = parquet(
            pa.table({"nr": [i for i in range(6) if ("UA", "AA")[i % 2] == entry.content_stats[2].lower_bound]})
        )
        stats = {2: entry.content_stats[2]}
        table.entries.append(replace(at(replaced(table, entry, body, 3), 1), content_stats=stats))
    return table


def _mapped(definition: TableDefinition) -> TableDefinition:
    mapping = [{"field-id": 1, "names": ["id", "nr"]}, {"field-id": 2, "names": ["carrier"]}]
    return replace(definition, properties={**definition.properties, NAME_MAPPING_PROPERTY: json.dumps(mapping)})


@pytest.fixture
def table() -> StoredTable:
    """Files as Hive writes them: no field ids, other names, and the partition's column in the folder's name only."""
    return _table(_mapped(flights_definition("carrier")))


def test_a_column_that_a_file_lacks_has_the_value_of_its_identity_partition(table: StoredTable) -> None:
    table.commit()
    rows = table.scan().to_pylist()
    assert sorted((row["id"], row["carrier"], row["delay"]) for row in rows) == [
        (n, ("UA", "AA")[n % 2], None) for n in range(6)
    ]
    assert sorted(ids_of(table.scan("carrier = 'UA' and id > 0"))) == [2, 4]
    assert table.scan(columns=["carrier"]).column("carrier").value_counts().to_pylist() == [
        {"values": "UA", "counts": 3},
        {"values": "AA", "counts": 3},
    ]


def test_equality_deletes_see_the_value_of_the_partition(table: StoredTable) -> None:
    ua = table.entries[0]
    deletes = pa.table({"id": [2, 3], "carrier": ["UA", "UA"]})
    table.entries.append(equality_delete(table, deletes, [1, 2], 2, partition_of=ua))
    table.commit()
    assert sorted(ids_of(table.scan())) == [0, 1, 3, 4, 5]


def test_a_column_that_the_file_has_is_read_from_the_file() -> None:
    table = StoredTable(flights_definition("carrier"))
    (entry,) = table.write(flights(0, 2))
    other = {2: FieldStatistics("ZZ", "ZZ")}
    table.entries = [replace(entry, content_stats=other)]
    table.commit()
    assert table.scan().column("carrier").to_pylist() == ["UA", "UA"]


def test_a_null_partition_is_null_and_a_partition_that_nobody_knows_is_the_default(table: StoredTable) -> None:
    null, unknown = table.entries
    table.entries = [replace(null, content_stats={2: FieldStatistics(None, None)}), replace(unknown, content_stats={})]
    table.commit()
    assert table.scan().column("carrier").to_pylist() == [None] * 6


def test_other_transforms_say_nothing_of_their_column() -> None:
    table = _table(_mapped(flights_definition("carrier")))
    table.definition = _mapped(flights_definition("truncate(1, carrier)"))
    (member,) = table.definition.partition_specs[-1].expr_ids
    table.entries = [replace(one, content_stats={member: FieldStatistics("U", "U")}) for one in table.entries]
    table.commit()
    assert table.scan().column("carrier").to_pylist() == [None] * 6


def test_values_of_every_form_become_columns() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "day", DateType(), required=True),
        NestedField(3, "price", DecimalType(9, 2), required=False),
        NestedField(4, "key", UUIDType(), required=False),
        NestedField(5, "name", StringType(), required=False),
    )
    table = StoredTable(
        build_definition(schema, partition_by=["day", "price", "key", "name"], table_uuid=uuid.UUID(int=3))
    )
    key = uuid.UUID(int=77)
    values = {"day": dt.date(2020, 2, 29), "price": Decimal("-1.25"), "key": key.bytes, "name": "a/b %2F"}
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "day": pa.array([values["day"]] * 2, pa.date32()),
            "price": pa.array([values["price"]] * 2, pa.decimal128(9, 2)),
            "key": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([key.bytes] * 2, pa.binary(16))),
            "name": pa.array(["a/b %2F"] * 2),
        }
    )
    (entry,) = table.write(rows)
    stored = replaced(table, entry, parquet(pa.table({"id": [1, 2]})), 2)
    table.entries = [replace(stored, content_stats=entry.content_stats)]
    table.commit()
    found = table.scan()
    assert found.schema.equals(table.scan(columns=["id", "day", "price", "key", "name"]).schema)
    assert found.to_pylist() == [{"id": n, **values, "key": key} for n in (1, 2)]


def test_without_a_mapping_a_required_column_under_another_name_is_refused() -> None:
    definition = flights_definition("carrier")
    schema = definition.schema
    fields = [f.model_copy(update={"required": True}) if f.field_id == 1 else f for f in schema.fields]
    changed = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=[])
    table = _table(replace(definition, schemas=(changed,)))
    table.commit()
    with pytest.raises(Invalid, match="column id is required, but missing"):
        table.scan()


@pytest.mark.parametrize(
    "member",
    [
        BooleanType(),
        UUIDType(),
        DecimalType(9, 2),
        StringType(),
        ListType(5, LongType(), element_required=True),
        MapType(6, StringType(), 7, LongType(), value_required=True),
        StructType(NestedField(9, "inner", LongType(), required=True)),
    ],
    ids=str,
)
def test_an_absent_struct_with_a_required_member_can_be_stored(member: IcebergType) -> None:
    absent = nulls_of(StructType(NestedField(2, "member", member, required=True)), 3)
    stored = io.BytesIO()
    pq.write_table(pa.table({"parent": absent}), stored)
    assert pq.read_table(stored).column("parent").to_pylist() == [None] * 3
