"""What a user says about a new table, and what is refused."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.client.create_drop import build_definition
from rootline.client.given_schema import iceberg_schema
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

FLIGHTS = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32()),
        pa.field("dep_delay", pa.float64()),
        pa.field("time_hour", pa.timestamp("us", tz="UTC")),
        pa.field("route", pa.struct([("origin", pa.string()), ("stops", pa.list_(pa.string()))])),
    ]
)

NUMBERED = pa.schema([("carrier", pa.string()), ("flight", pa.int32()), ("dep_delay_s", pa.int64())])


def _definition(partition_by: list[str], schema: pa.Schema = FLIGHTS) -> TableDefinition:
    return build_definition(schema, partition_by=partition_by, table_uuid=uuid.UUID(int=7))


def _identified(schema: pa.Schema | Schema, *paths: str) -> list[str | None]:
    made = build_definition(schema, identifier_fields=paths, table_uuid=uuid.UUID(int=7)).schema
    return [made.find_column_name(field_id) for field_id in made.identifier_field_ids]


def test_identifier_fields_are_named_by_their_paths() -> None:
    stop = pa.struct([pa.field("code", pa.int64(), nullable=False)])
    schema = pa.schema([*FLIGHTS, pa.field("stop", stop, nullable=False)])
    assert _identified(schema, "carrier", "stop.code", "carrier") == ["carrier", "stop.code"]
    assert _identified(Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1])) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent", "no column 'absent'; there is carrier, flight"),
        ("flight", "must be required"),
        ("route", "of one value"),
        ("route.origin", "inside required structs"),
        ("route.stops.element", "inside required structs"),
    ],
)
def test_identifier_fields_that_no_row_can_be_identified_by_are_refused(path: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        _identified(FLIGHTS, "carrier", path)
    assert refused.value.code == "definition-invalid"


def test_expressions_take_ids_after_the_schemas_own() -> None:
    definition = _definition(["month(time_hour)", "bucket(8, carrier)"])
    highest = definition.schema.highest_field_id
    assert [(one.expr_id, one.transform, one.name) for one in definition.expressions] == [
        (highest + 1, "month", "time_hour_month"),
        (highest + 2, "bucket[8]", "carrier_bucket"),
    ]
    assert definition.partition_specs[0].expr_ids == (highest + 1, highest + 2)
    assert definition.last_column_id == highest + 2


def test_a_plain_column_is_its_own_partition() -> None:
    definition = _definition(["carrier", "identity(route.origin)"])
    assert definition.expressions == ()
    assert definition.partition_specs[0].expr_ids == (1, definition.schema.find_field("route.origin").field_id)


def test_plural_names_and_aliases_are_understood() -> None:
    (expression,) = _definition(["days(time_hour) as day"]).expressions
    assert (expression.transform, expression.name) == ("day", "day")


def test_a_bucket_may_take_several_columns() -> None:
    definition = _definition(['bucket(8, carrier, "flight")', "bucket(4, flight , dep_delay_s) as both"], NUMBERED)
    first, second = definition.expressions
    assert (first.source_ids, first.transform, first.name) == ((1, 2), "bucket[8]", "carrier_flight_bucket")
    assert (second.source_ids, second.name) == ((2, 3), "both")
    assert TableDefinition.from_json(definition.to_json()) == definition


def test_expressions_are_derived_columns_that_do_not_partition() -> None:
    definition = build_definition(
        FLIGHTS,
        partition_by=["month(time_hour)"],
        expressions=["lower(carrier)", "day(time_hour) as day"],
        table_uuid=uuid.UUID(int=7),
    )
    highest = definition.schema.highest_field_id
    assert definition.partition_specs[0].expr_ids == (highest + 1,)
    assert [(one.expr_id, one.transform, one.name) for one in definition.expressions[1:]] == [
        (highest + 2, "lower", "carrier_lower"),
        (highest + 3, "day", "day"),
    ]
    assert definition.last_column_id == highest + 3


@pytest.mark.parametrize("term", ["lower(flight)", "lower(carrier, carrier)", "carrier", "zorder(carrier)", "lower(x)"])
def test_an_expression_that_has_no_values_is_refused_and_named(term: str) -> None:
    with pytest.raises(Invalid, match="expressions") as caught:
        build_definition(FLIGHTS, expressions=[term], table_uuid=uuid.UUID(int=7))
    assert caught.value.code == "definition-invalid"


def test_a_definition_survives_its_own_json() -> None:
    definition = _definition(["truncate(2, carrier)"])
    assert TableDefinition.from_json(definition.to_json()) == definition


@pytest.mark.parametrize(
    ("term", "column"),
    [
        ("\u043a\u043b\u044e\u0447", "\u043a\u043b\u044e\u0447"),
        ('"dep. delay"', "dep. delay"),
        ('identity("dep. delay")', "dep. delay"),
    ],
)
def test_a_column_of_any_name_can_partition(term: str, column: str) -> None:
    schema = pa.schema([("\u043a\u043b\u044e\u0447", pa.string()), ("dep. delay", pa.int64())])
    definition = _definition([term], schema)
    assert definition.partition_specs[0].expr_ids == (definition.schema.find_field(column).field_id,)


@pytest.mark.parametrize(
    "term",
    [
        "month(carrier)",
        "bucket(carrier)",
        "month(3, time_hour)",
        "soundex(carrier)",
        "nowhere",
        "bucket(8, route)",
        "month(time_hour",
        "",
        "carrier as c",
        "month(time_hour) as carrier",
        "month(time_hour, flight)",
        "truncate(3, carrier, flight)",
        "bucket(8, carrier, dep_delay)",
        "bucket(8, flight, flight)",
        "bucket(8, carrier,)",
        "lower(carrier)",
    ],
)
def test_a_term_that_cannot_partition_is_refused_and_named(term: str) -> None:
    with pytest.raises(Invalid, match="partition_by") as caught:
        _definition([term])
    assert caught.value.code == "definition-invalid"


def test_the_same_column_cannot_partition_twice() -> None:
    with pytest.raises(Invalid, match="twice"):
        _definition(["carrier", "identity(carrier)"])


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(Invalid, match="at least one column"):
        _definition([], pa.schema([]))


def test_top_level_columns_get_the_first_ids_and_nullability_is_kept() -> None:
    schema = iceberg_schema(FLIGHTS)
    assert [field.field_id for field in schema.fields] == [1, 2, 3, 4, 5]
    assert [field.required for field in schema.fields] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (pa.uint32(), "long"),
        (pa.int8(), "int"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("ms", tz="UTC"), "timestamptz"),
        (pa.decimal128(9, 2), "decimal(9, 2)"),
        (pa.binary(4), "fixed[4]"),
        (pa.date32(), "date"),
        (pa.time64("us"), "time"),
        (pa.map_(pa.string(), pa.int64()), "map<string, long>"),
        (pa.list_(pa.int64()), "list<long>"),
    ],
)
def test_an_arrow_type_maps_to_the_iceberg_type_that_holds_all_of_it(arrow: pa.DataType, iceberg: str) -> None:
    assert str(iceberg_schema(pa.schema([("c", arrow)])).find_type("c")) == iceberg


@pytest.mark.parametrize(
    "arrow", [pa.uint64(), pa.time64("ns"), pa.timestamp("us", tz="Europe/Berlin"), pa.duration("s"), pa.null()]
)
def test_a_type_that_would_lose_values_is_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(Invalid, match="column c"):
        iceberg_schema(pa.schema([("c", arrow)]))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(Invalid, match="differ"):
        iceberg_schema(pa.schema([pa.field("c", pa.int32()), pa.field("c", pa.int32())]))
