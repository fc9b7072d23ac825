"""A definition in the words of Iceberg's table metadata, held against pyiceberg's own models of V2 and V3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, PartitionSpec, SortField, SortOrder, TableDefinition
from tests.catalog.exported_tables import (
    COLUMNS,
    EXPRESSIONS,
    SCHEMA,
    SPECS,
    definition,
    nanosecond_schema,
    schema_with_defaults,
)
from tests.tree.tables import DEFINITION

BOTH = pytest.mark.parametrize("version", list(FormatVersion))


def parsed(table: TableDefinition, version: FormatVersion) -> TableMetadata:
    body: dict[str, Any] = ExportedDefinition.of(table, version).metadata() | {
        "format-version": int(version),
        "location": "file:///lake/ns/t",
        "table-uuid": str(table.table_uuid),
        "last-sequence-number": 0,
        "last-updated-ms": 1,
        "next-row-id": 0,
    }
    return TableMetadataUtil.parse_raw(json.dumps(body))


@BOTH
def test_metadata_is_what_pyiceberg_reads_as_the_version_it_is_labelled_with(version: FormatVersion) -> None:
    found = parsed(definition(), version)
    assert found.format_version == version
    assert found.schema() == SCHEMA
    assert found.schema().identifier_field_ids == [1]
    assert found.properties["owner"] == "ops"
    mapping = found.name_mapping()
    assert mapping is not None
    assert [(field.field_id, field.names) for field in mapping] == [(1, ["id", "key"])]


@BOTH
def test_every_spec_has_a_partition_type_under_the_current_schema(version: FormatVersion) -> None:
    exported = ExportedDefinition.of(definition(), version)
    found = parsed(definition(), version)
    for spec in found.partition_specs:
        of_pyiceberg = [(field.field_id, field.field_type) for field in spec.partition_type(found.schema()).fields]
        assert of_pyiceberg == [(field.field_id, field.result_type) for field in exported.fields(spec.spec_id)]
    assert found.specs_struct() is not None


def test_members_that_engines_cannot_read_are_left_out_of_their_spec() -> None:
    exported = ExportedDefinition.of(definition(), FormatVersion.V3)
    assert [field.transform for field in exported.fields(2)] == ["day", "identity", "truncate[3]"]
    unreadable = PartitionSpec(9, (109, 110))
    table = definition(partition_specs=(*SPECS, unreadable))
    assert ExportedDefinition.of(table, FormatVersion.V2).fields(9) == ()


def test_types_that_an_engine_reads_wrongly_from_manifests_are_in_no_partition_tuple_but_their_buckets_are() -> None:
    table = definition(
        schemas=(nanosecond_schema(),),
        expressions=(Expression(101, (17,), "day", "exact_day"), Expression(111, (9,), "bucket[4]", "key_bucket")),
        partition_specs=(PartitionSpec(1, (17, 101)), PartitionSpec(2, (9, 10, 111))),
        sort_orders=(),
        default_sort_order_id=0,
    )
    exported = ExportedDefinition.of(table, FormatVersion.V3)
    assert [field.transform for field in exported.fields(1)] == ["day"]
    assert [field.transform for field in exported.fields(2)] == ["bucket[4]"]


def test_the_same_source_and_transform_have_the_same_field_id_in_every_spec() -> None:
    exported = ExportedDefinition.of(definition(), FormatVersion.V2)
    day_of_one = next(field for field in exported.fields(1) if field.transform == "day")
    day_of_two = next(field for field in exported.fields(2) if field.transform == "day")
    assert (day_of_one.field_id, day_of_one.name) == (day_of_two.field_id, day_of_two.name) == (1001, "at_day")


def test_what_is_left_out_takes_an_id_too_so_that_other_ids_stay() -> None:
    exported = ExportedDefinition.of(definition(), FormatVersion.V2)
    assert [field.field_id for field in exported.fields(2)] == [1001, 1004, 1005]
    without_column = Schema(*(column for column in COLUMNS if column.name != "carrier"), schema_id=1)
    evolved = definition(schemas=(SCHEMA, without_column), current_schema_id=1)
    later = ExportedDefinition.of(evolved, FormatVersion.V2)
    assert [field.field_id for field in later.fields(1)] == [1001, 1002]
    assert [field.field_id for field in later.fields(2)] == [1001, 1004]


def without(*names: str, schema_id: int = 1) -> Schema:
    return Schema(*(column for column in COLUMNS if column.name not in names), schema_id=schema_id)


def specs_of(table: TableDefinition, *schema_ids: int, **more: Any) -> dict[int, list[str]]:
    """Spec id → names of its fields, as the metadata of an export with snapshots of these schemas states them."""
    found = ExportedDefinition.of(table, FormatVersion.V2).metadata(schema_ids, **more)["partition-specs"]
    return {spec["spec-id"]: [field["name"] for field in spec["fields"]] for spec in found}


def test_a_spec_of_a_dropped_column_becomes_another_spec_because_engines_bind_specs_to_the_current_schema() -> None:
    whole = ExportedDefinition.of(definition(), FormatVersion.V2)
    evolved = definition(schemas=(SCHEMA, without("carrier", "at")), current_schema_id=1)
    exported = ExportedDefinition.of(evolved, FormatVersion.V2)
    found = parsed(evolved, FormatVersion.V2)
    assert whole.exported_spec_id(1) == 1
    lost = exported.exported_spec_id(1)
    assert lost not in {spec.spec_id for spec in evolved.partition_specs}
    assert [field.name for field in found.specs()[lost].fields] == ["id_bucket"]
    assert 1 not in found.specs(), "its id has a meaning already"
    assert found.specs_struct() is not None
    assert found.last_partition_id is not None
    assert found.last_partition_id >= 1002


def test_a_spec_that_lost_fields_has_the_id_of_the_spec_that_it_equals_now() -> None:
    specs = (PartitionSpec(0, (2, 101)), PartitionSpec(1, (101,)), PartitionSpec(2))
    dropped = {"schemas": (SCHEMA, without("carrier")), "current_schema_id": 1}
    table = definition(partition_specs=specs, default_spec_id=1, **dropped)
    assert ExportedDefinition.of(table, FormatVersion.V3).exported_spec_id(0) == 1
    assert specs_of(table) == {1: ["at_day"], 2: []}


def test_snapshots_are_of_specs_whose_columns_their_own_schema_and_the_current_one_have() -> None:
    specs = (PartitionSpec(0, (2, 101)), PartitionSpec(1, (101,)))
    gone, back = without("carrier"), Schema(*COLUMNS, schema_id=2)
    schemas = {"schemas": (SCHEMA, gone, back), "partition_specs": specs, "default_spec_id": 1}
    now = ExportedDefinition.of(definition(**schemas, current_schema_id=2), FormatVersion.V3)
    between = ExportedDefinition.of(definition(**schemas, current_schema_id=1), FormatVersion.V3, now)
    assert [now.exported_spec_id(0), between.exported_spec_id(0)] == [0, 1]
    assert specs_of(now.definition, 1) == {0: ["carrier", "at_day"], 1: ["at_day"]}
    dropped = ExportedDefinition.of(definition(**schemas, current_schema_id=1), FormatVersion.V3)
    before = ExportedDefinition.of(definition(**schemas, current_schema_id=0), FormatVersion.V3, dropped)
    assert before.exported_spec_id(0) == 1


def test_snapshots_from_before_an_adoption_keep_their_specs() -> None:
    adopted = PartitionSpec(0, (2, 101), (1000, 1001), ("carrier", "at_day"))
    dropped = {"schemas": (SCHEMA, without("carrier")), "current_schema_id": 1}
    table = definition(partition_specs=(adopted, PartitionSpec(1)), default_spec_id=1, **dropped)
    lost = ExportedDefinition.of(table, FormatVersion.V2).exported_spec_id(0)
    assert specs_of(table) == {1: [], lost: ["at_day"]}
    assert specs_of(table, has_history=True) == {0: ["carrier", "at_day"], 1: [], lost: ["at_day"]}


def test_a_sort_order_keeps_the_fields_of_dropped_columns() -> None:
    orders = (SortOrder(1, (SortField(2), SortField(1))), SortOrder(2, (SortField(1), SortField(2))))
    before = definition(sort_orders=orders, default_sort_order_id=0)
    after = definition(
        sort_orders=orders, default_sort_order_id=0, schemas=(SCHEMA, without("carrier")), current_schema_id=1
    )
    of_before, of_after = (ExportedDefinition.of(each, FormatVersion.V2).metadata() for each in (before, after))
    assert of_after["sort-orders"] == of_before["sort-orders"]
    assert parsed(after, FormatVersion.V2).sort_orders[1].fields[0].source_id == 2


def test_an_adopted_spec_keeps_its_field_ids_and_names_and_no_other_field_takes_them() -> None:
    adopted = PartitionSpec(7, (2, 101), (1003, 1000), ("who", "when"))
    own = PartitionSpec(8, (102, 101, 103))
    exported = ExportedDefinition.of(definition(partition_specs=(adopted, own), default_spec_id=8), FormatVersion.V2)
    assert [(field.field_id, field.name) for field in exported.fields(7)] == [(1003, "who"), (1000, "when")]
    assert [field.field_id for field in exported.fields(8)] == [1001, 1000, 1002]
    assert exported.metadata()["last-partition-id"] == 1003


def test_an_expression_keeps_the_partition_field_id_that_it_names() -> None:
    expressions = (Expression(101, (3,), "day", "at_day", 1005), *EXPRESSIONS[1:])
    exported = ExportedDefinition.of(definition(expressions=expressions), FormatVersion.V2)
    assert [field.field_id for field in exported.fields(1)] == [1000, 1005, 1001]


def test_no_partition_field_has_the_name_of_another_column_or_field() -> None:
    exported = ExportedDefinition.of(definition(), FormatVersion.V2)
    assert [field.name for field in exported.fields(1)] == ["carrier", "at_day", "id_bucket"]
    assert "carrier" in [field.name for field in exported.fields(4)], "void may have the name of its column"
    twice = (Expression(101, (3,), "day", "x"), Expression(102, (1,), "bucket[16]", "x"))
    table = definition(
        expressions=twice, partition_specs=(PartitionSpec(1, (101, 102)),), sort_orders=(), default_sort_order_id=0
    )
    assert [field.name for field in ExportedDefinition.of(table, FormatVersion.V2).fields(1)] == ["x", "x_bucket"]


def test_an_identity_field_follows_the_name_of_its_column() -> None:
    renamed = Schema(
        *(NestedField(2, "airline", StringType()) if column.field_id == 2 else column for column in COLUMNS),
        schema_id=1,
    )
    evolved = definition(schemas=(SCHEMA, renamed), current_schema_id=1)
    assert ExportedDefinition.of(evolved, FormatVersion.V2).fields(1)[0].name == "airline"


def test_a_sort_order_ends_before_its_first_field_that_engines_cannot_read() -> None:
    orders = (
        SortOrder(1, (SortField(1), SortField(2, "lower"), SortField(8))),
        SortOrder(2, (SortField(2, "lower"),)),
        SortOrder(3, (SortField(3, "day", "desc", "nulls-last"), SortField(6))),
    )
    exported = ExportedDefinition.of(definition(sort_orders=orders, default_sort_order_id=2), FormatVersion.V2)
    found = exported.metadata()
    fields = {order["order-id"]: [field["source-id"] for field in order["fields"]] for order in found["sort-orders"]}
    assert fields == {0: [], 1: [1], 3: [3, 6]}
    assert found["default-sort-order-id"] == 0
    assert [exported.sort_order_id(order_id) for order_id in (None, 0, 1, 2)] == [None, 0, 1, None]
    order = parsed(definition(sort_orders=orders, default_sort_order_id=3), FormatVersion.V2).sort_order()
    assert [field.direction.value for field in order.fields] == ["desc", "asc"]


def test_types_that_v2_does_not_have_are_refused_with_the_columns_name() -> None:
    table = definition(schemas=(nanosecond_schema(),))
    with pytest.raises(Invalid, match=r"'exact' \(id 17\) of schema 0 is of type timestamp_ns") as caught:
        ExportedDefinition.of(table, FormatVersion.V2)
    assert caught.value.code == "export-unsupported"
    assert parsed(table, FormatVersion.V3).schema().find_type("exact") is not None


def test_a_default_that_readers_need_is_refused_in_v2_and_kept_in_v3() -> None:
    table = definition(schemas=(schema_with_defaults(initial=5),))
    with pytest.raises(Invalid, match="default value 5"):
        ExportedDefinition.of(table, FormatVersion.V2)
    field = parsed(table, FormatVersion.V3).schema().find_field("added")
    assert (field.initial_default, field.write_default) == (5, 7)


@BOTH
def test_the_default_of_a_struct_that_readers_need_is_refused_because_no_engine_reads_it(
    version: FormatVersion,
) -> None:
    struct = StructType(NestedField(18, "x", IntegerType(), initial_default=3, write_default=4))
    added = NestedField(17, "added", struct, initial_default={"18": 5}, write_default={})
    with_default = Schema(*COLUMNS, added, schema_id=0)
    with pytest.raises(Invalid, match=r"'added' \(id 17\).*add a column without one") as caught:
        ExportedDefinition.of(definition(schemas=(with_default,)), version)
    assert caught.value.code == "export-unsupported"


def test_defaults_of_structs_that_only_writers_or_dropped_columns_have_are_left_out() -> None:
    struct = StructType(NestedField(18, "x", IntegerType(), initial_default=3, write_default=4))
    dropped = NestedField(17, "dropped", struct, initial_default={"18": 5}, write_default={})
    kept = NestedField(19, "kept", StructType(NestedField(20, "x", IntegerType())), write_default={"20": 7})
    schemas = (Schema(*COLUMNS, dropped, schema_id=0), Schema(*COLUMNS, kept, schema_id=1))
    exported = ExportedDefinition.of(definition(schemas=schemas, current_schema_id=1), FormatVersion.V3)
    older, current = exported.metadata()["schemas"]
    assert [exported.can_state(schema_id) for schema_id in (0, 1)] == [False, True]
    assert "default" not in json.dumps(current)
    assert older["fields"][-1].keys() & {"initial-default", "write-default"} == set()
    [member] = older["fields"][-1]["type"]["fields"]
    assert (member["initial-default"], member["write-default"]) == (3, 4)


def test_a_default_that_only_writers_need_is_left_out_of_v2() -> None:
    table = definition(schemas=(schema_with_defaults(initial=None),))
    assert "write-default" not in json.dumps(ExportedDefinition.of(table, FormatVersion.V2).metadata())
    assert "write-default" in json.dumps(ExportedDefinition.of(table, FormatVersion.V3).metadata())


def test_a_table_without_orders_or_partitions_has_the_unsorted_order_and_ids_to_count_from() -> None:
    table = definition(
        partition_specs=(PartitionSpec(0),), default_spec_id=0, sort_orders=(), default_sort_order_id=0, expressions=()
    )
    found = parsed(table, FormatVersion.V3)
    assert found.last_partition_id == 999
    assert found.sort_order().order_id == 0


def test_the_digest_of_what_manifests_take_changes_with_types_and_not_with_properties_or_later_columns() -> None:
    exported = ExportedDefinition.of(definition(), FormatVersion.V2)
    same = ExportedDefinition.of(definition(properties={"other": "x"}), FormatVersion.V2)
    of_v3 = ExportedDefinition.of(definition(), FormatVersion.V3)
    assert exported.manifest_inputs(1) == same.manifest_inputs(1) != of_v3.manifest_inputs(1)
    assert exported.manifest_inputs(1) != exported.manifest_inputs(2)

    def after(*schemas: Schema) -> bytes:
        table = definition(schemas=(SCHEMA, *schemas), current_schema_id=schemas[-1].schema_id)
        return ExportedDefinition.of(table, FormatVersion.V2).manifest_inputs(1)

    more = Schema(*COLUMNS, NestedField(17, "more", IntegerType()), schema_id=1)
    wider = Schema(*COLUMNS, NestedField(17, "more", LongType()), schema_id=2)
    assert after(more) == exported.manifest_inputs(1), "no manifest that is there has the new column"
    assert after(more, wider) not in (after(more), after(wider)), "some have, with bounds of the narrower type"
    assert after(wider) == exported.manifest_inputs(1)


def test_exports_of_tables_that_never_changed_keep_the_names_that_they_have() -> None:
    digests = {
        FormatVersion.V2: ("7ca4440568a79902", "08969508c5cf8284", "f6468cff3204a6e1"),
        FormatVersion.V3: ("49b52b380a9b84d3", "1ca179a82dffe142", "e5c2172834c69e1f"),
    }
    for format_version, wanted in digests.items():
        exported = ExportedDefinition.of(DEFINITION, format_version)
        assert tuple(exported.manifest_inputs(spec_id).hex()[:16] for spec_id in range(3)) == wanted


def test_a_spec_that_the_table_never_had_is_named() -> None:
    with pytest.raises(Invalid, match="spec id 99"):
        ExportedDefinition.of(definition(), FormatVersion.V2).fields(99)
