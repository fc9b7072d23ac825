"""Which changes of a definition are legal, rule by rule of the specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, PartitionSpec, SortField, SortOrder, TableDefinition
from rootline.tree.evolution.changes import (
    AddSchema,
    DefinitionChanges,
    RemoveProperties,
    SetCurrentSchema,
    schema_changes,
)
from rootline.tree.evolution.next_definition import evolved
from tests.tree.tables import DEFINITION


def field(field_id: int, name: str, of_type: IcebergType, **more: Any) -> NestedField:
    return NestedField(field_id, name, of_type, **{"required": False, **more})


INNER = StructType(field(11, "x", IntegerType()), field(12, "y", StringType(), required=True))
COLUMNS = (
    field(1, "id", IntegerType(), required=True),
    field(2, "price", DecimalType(9, 2)),
    field(3, "ratio", FloatType()),
    field(4, "name", StringType(), initial_default="none", write_default="none"),
    field(5, "at", INNER, required=True),
    field(6, "tags", ListType(13, StructType(field(14, "word", StringType())))),
    field(7, "by", MapType(15, StructType(field(17, "k", StringType())), 16, IntegerType())),
)
BEFORE = replace(
    DEFINITION,
    schemas=(Schema(*COLUMNS, schema_id=0, identifier_field_ids=[1]),),
    expressions=(Expression(18, (1,), "bucket[4]", "id_bucket"),),
    partition_specs=(PartitionSpec(0, (18,)),),
    default_spec_id=0,
    sort_orders=(SortOrder(0), SortOrder(1, (SortField(3),))),
    default_sort_order_id=1,
    last_column_id=18,
)


def to(
    *columns: NestedField, before: TableDefinition = BEFORE, identifiers: list[int] | None = None
) -> TableDefinition:
    schema = Schema(*columns, schema_id=77, identifier_field_ids=[1] if identifiers is None else identifiers)
    return evolved(before, DefinitionChanges(None, tuple(schema_changes(schema))))


def with_column(number: int, column: NestedField) -> tuple[NestedField, ...]:
    return (*COLUMNS[: number - 1], column, *COLUMNS[number:])


@pytest.mark.parametrize(
    "columns",
    [
        (*COLUMNS, field(19, "more", StringType())),
        (*COLUMNS, field(19, "more", LongType(), required=True, initial_default=1, write_default=2)),
        (*COLUMNS, field(19, "more", StructType(field(20, "z", IntegerType(), required=True)))),
        with_column(1, field(1, "number", LongType(), required=True)),
        with_column(2, field(2, "price", DecimalType(20, 2), doc="in cents")),
        with_column(3, field(3, "ratio", DoubleType())),
        with_column(4, field(4, "name", StringType(), initial_default="none", write_default="other")),
        with_column(5, field(5, "at", StructType(INNER.fields[1], INNER.fields[0]))),
        with_column(5, field(5, "at", StructType(*INNER.fields, field(19, "z", LongType())), required=True)),
        with_column(
            6, field(6, "tags", ListType(13, StructType(field(14, "w", StringType()), field(19, "n", LongType()))))
        ),
        with_column(7, field(7, "by", MapType(15, COLUMNS[6].field_type.key_type, 16, LongType()))),
        tuple(column for column in COLUMNS if column.field_id not in (2, 4, 5, 6, 7)),
        COLUMNS[::-1],
    ],
    ids=lambda columns: ",".join(str(column.field_id) for column in columns),
)
def test_what_keeps_every_file_readable_is_legal(columns: tuple[NestedField, ...]) -> None:
    after = to(*columns)
    assert after.schema.fields == columns
    assert (after.current_schema_id, after.schemas[0]) == (1, BEFORE.schemas[0])
    assert after.last_column_id == max(18, after.schema.highest_field_id)
    assert TableDefinition.from_json(after.to_json()) == after


KEY = COLUMNS[6].field_type.key_type


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ((*COLUMNS, field(10, "more", StringType())), "ids up to 18 have been used"),
        ((*COLUMNS, field(19, "more", LongType(), required=True)), "give it an initial-default and a write-default"),
        ((*COLUMNS, field(19, "more", LongType(), required=True, write_default=1)), "give it an initial-default"),
        (with_column(1, field(1, "id", StringType(), required=True)), "cannot change from int to string"),
        (with_column(2, field(2, "price", DecimalType(8, 2))), "cannot change from"),
        (with_column(2, field(2, "price", DecimalType(12, 3))), "cannot change from"),
        (with_column(2, field(2, "price", StructType(field(19, "x", IntegerType())))), "cannot change from"),
        (with_column(5, field(5, "at", StringType(), required=True)), "cannot change from a struct to string"),
        (with_column(2, field(2, "price", DecimalType(9, 2), required=True)), "cannot become required"),
        (with_column(4, field(4, "name", StringType(), initial_default="x")), "initial-default cannot change"),
        ((*with_column(5, field(5, "at", StructType(INNER.fields[1]), required=True)), INNER.fields[0]), "cannot move"),
        (with_column(5, field(5, "at", StructType(), required=True)), "a struct without fields"),
        ((*COLUMNS, field(19, "more", StructType())), "a struct without fields"),
        (with_column(6, field(6, "tags", ListType(19, StringType()))), "cannot replace another field"),
        (
            with_column(7, field(7, "by", MapType(15, StringType(), 16, IntegerType()))),
            "cannot change from a struct to string",
        ),
        (
            with_column(
                7, field(7, "by", MapType(15, StructType(*KEY.fields, field(19, "l", LongType())), 16, IntegerType()))
            ),
            "part of a map's key",
        ),
        (
            with_column(7, field(7, "by", MapType(15, StructType(field(19, "l", LongType())), 16, IntegerType()))),
            "part of a map's key",
        ),
        (tuple(column for column in COLUMNS if column.field_id != 3), "the table is sorted by it"),
    ],
)
def test_what_would_change_the_meaning_of_stored_rows_is_not(columns: tuple[NestedField, ...], reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as raised:
        to(*columns)
    assert raised.value.code == "evolution-illegal"


def with_identifiers(identifiers: list[int], *columns: NestedField) -> str:
    fields = json.loads(Schema(*columns, schema_id=0).model_dump_json())["fields"]
    schema = {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": identifiers}
    return json.dumps({"changes": [{"action": "add-schema", "schema": schema}]})


@pytest.mark.parametrize("identifiers", [[2], [3], [5], [14], [11], [99]])
def test_identifier_fields_are_primitive_never_null_and_there_once_a_row(identifiers: list[int]) -> None:
    with pytest.raises(Invalid, match=rf"(?i)(identifier field|field with id:) {identifiers[0]}\b") as raised:
        DefinitionChanges.from_json(with_identifiers(identifiers, *COLUMNS))
    assert raised.value.code == "definition-invalid"
    assert "pydantic" not in raised.value.message
    assert DefinitionChanges.from_json(with_identifiers([12], *COLUMNS))
    with pytest.raises(Invalid, match="field with id: 1"):
        DefinitionChanges.from_json(with_identifiers([1], *COLUMNS[1:]))


def test_a_column_that_the_table_is_partitioned_by_stays() -> None:
    with pytest.raises(Invalid, match="partitioned by it"):
        to(*COLUMNS[1:], identifiers=[])


def test_a_dropped_column_comes_back_under_its_id_only_where_it_may_be_null() -> None:
    dropped = to(*(column for column in COLUMNS if column.field_id not in (2, 5)))
    assert to(*COLUMNS[:4], COLUMNS[5], COLUMNS[6], before=dropped).schema.find_field("price").field_id == 2
    with pytest.raises(Invalid, match="cannot become required"):
        to(*COLUMNS, before=dropped)


def test_an_equal_schema_is_found_again_and_the_past_is_remembered_once() -> None:
    more = to(*COLUMNS, field(19, "more", StringType()))
    back = to(*COLUMNS, before=more)
    assert (back.current_schema_id, len(back.schemas)) == (0, 2)
    assert len(more.past_layouts) == 1
    assert back.past_layouts == more.past_layouts, "statistics of the column that left are kept, so nothing changed"
    assert [field.tracked_id for field in more.past_tracked_fields[0]] == [
        field.tracked_id for field in BEFORE.tracked_fields
    ]


def test_a_schema_that_does_not_exist_cannot_become_current() -> None:
    with pytest.raises(Invalid, match="schema id 5 does not exist"):
        evolved(BEFORE, DefinitionChanges(None, (SetCurrentSchema(5),)))
    with pytest.raises(Invalid, match="no schema was added"):
        evolved(BEFORE, DefinitionChanges(None, (SetCurrentSchema(-1),)))


def test_statistics_never_become_narrower_by_way_of_a_schema_that_was_added_aside() -> None:
    narrow, more = field(19, "c", IntegerType()), field(20, "x", IntegerType())
    table = to(*COLUMNS, narrow)
    narrow_schema = table.current_schema_id
    for columns in ((*COLUMNS, field(19, "c", LongType())), (*COLUMNS, narrow, more)):
        schema = Schema(*columns, schema_id=77, identifier_field_ids=[1])
        table = evolved(table, DefinitionChanges(None, (AddSchema(schema),)))
    wide = evolved(table, DefinitionChanges(None, (SetCurrentSchema(narrow_schema + 1),)))
    assert wide.tracked_by_id[19].type == LongType()
    with pytest.raises(Invalid, match=r"statistics of 'c' \(id 19\) are long") as raised:
        to(*COLUMNS, before=wide)  # the schema that was added last says int, and the current one says nothing
    assert raised.value.code == "evolution-illegal"


def test_changes_that_are_no_object_are_refused_in_our_words() -> None:
    for text in ("[]", "null", "1", '"x"'):
        with pytest.raises(Invalid, match="it must be an object"):
            DefinitionChanges.from_json(text)


def test_as_many_properties_as_intents_can_name_are_removed_in_one_pass() -> None:
    names = tuple(f"k{number}" for number in range(60_000))
    many = replace(BEFORE, properties=dict.fromkeys((*names, "kept"), "v"))
    after = evolved(many, DefinitionChanges(None, (RemoveProperties(names),)))
    assert after.properties == {"kept": "v"}
