"""Back over changes of the definition: the content of then, under a definition that the table may go on with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import ContentType, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, Intent, IntentKind, VersionReference
from rootline.schemas.table_definition import PartitionSpec, SortField, SortOrder, TableDefinition
from rootline.tree.draft import version_difference
from rootline.tree.evolution.changes import DefinitionChanges, schema_changes
from rootline.tree.evolution.evolution_rules import placed_fields
from rootline.tree.evolution.next_definition import restored_definition
from rootline.tree.state.table_state import TableState
from tests.tree.tables import Lake, append, as_existing, create, data_file, intent, remove, removed

START = TableDefinition(
    table_uuid=uuid.UUID(int=7),
    schemas=(
        Schema(
            NestedField(1, "id", IntegerType(), required=True),
            NestedField(2, "price", FloatType(), required=False),
            NestedField(3, "at", StructType(NestedField(4, "x", IntegerType(), required=True)), required=False),
            NestedField(5, "tags", ListType(6, StringType(), element_required=True), required=False),
            NestedField(
                7,
                "by",
                MapType(8, StringType(), 9, StructType(NestedField(10, "n", IntegerType(), required=False))),
                required=False,
            ),
            schema_id=0,
            identifier_field_ids=[1],
        ),
    ),
    current_schema_id=0,
    expressions=(),
    partition_specs=(PartitionSpec(0),),
    default_spec_id=0,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=10,
    properties={},
)
_WIDER: Mapping[type[IcebergType], PrimitiveType] = {IntegerType: LongType(), FloatType: DoubleType()}
_BOUNDS: Mapping[type[IcebergType], Callable[[int], str | float]] = {
    IntegerType: lambda value: value % 2**31,
    StringType: str,
    FloatType: float,
    DoubleType: float,
}


def restore(version: int, name: str = "") -> Intent:
    return intent(IntentKind.RESTORE, f"restore-{version}-{name}", ref=VersionReference(version=version))


def statistics(state: TableState) -> dict[str, dict[int, FieldStatistics]]:
    files = (live.entry for live in state.live.entries() if live.entry.content_type is ContentType.DATA)
    return {entry.location: dict(entry.content_stats) for entry in files}


def shape(schema: Schema) -> list[tuple[int, str, int]]:
    """Which fields there are, what they are called, and where they are."""
    return [(field_id, placed.name, placed.parent) for field_id, placed in placed_fields(schema).items()]


def file_under(definition: TableDefinition, name: str, value: int, **more: object) -> Intent:
    """An append of one file with statistics of every column, encoded under `definition`."""
    codec = EntryCodec.of_definition(definition).statistics
    bounds = {}
    for tracked in definition.tracked_fields:
        bound = _BOUNDS.get(type(tracked.type), int)(value)
        bounds[tracked.tracked_id] = FieldStatistics(bound, bound, True)
    return append(
        name, data_file(name, rows=2, content_stats=codec.encode(bounds), stats_schema=codec.fingerprint), **more
    )


def committed(lake: Lake, *intents: Intent) -> None:
    verdicts = lake.put(*intents)
    assert [verdict.message for verdict in verdicts] == [None] * len(intents)
    read = decode_root(lake.bodies[-1], name="root")
    assert read.codec == EntryCodec.of_definition(lake.head.definition)
    rebuilt = TableState.of(read, lake.head.definition, {name: lake.leaves[name] for name in lake.head.leaves})
    assert statistics(rebuilt) == statistics(lake.head)


def started(definition: TableDefinition = START) -> Lake:
    lake = Lake()
    committed(lake, create(text=definition.to_json().decode()))
    return lake


def alter(lake: Lake, name: str, schema: Schema) -> Intent:
    changes = DefinitionChanges(lake.head.header.definition.digest, tuple(schema_changes(schema)))
    return intent(IntentKind.ALTER, name, definition=changes.to_json())


def flush(lake: Lake, name: str) -> Intent:
    """The root's rows go into a leaf, as the flush job would write it."""
    entries = [as_existing(entry) for entry in lake.root_entries()]
    encoded = encode_leaf(
        entries, lake.head.definition, leaf_uuid=uuid.UUID(int=len(lake.leaves) + 1), content=LeafContent.DATA
    )
    lake.leaves[encoded.location] = decode_leaf(encoded.body, location=encoded.location)
    manifest = AddedManifest(
        location=encoded.location,
        content_type=ContentType.DATA_MANIFEST,
        file_size_in_bytes=len(encoded.body),
        record_count=len(entries),
        partition_spec_id=0,
    )
    return lake.flush(name, manifest)


def changed(definition: TableDefinition, rng: Random) -> Schema | None:
    """A schema that is one random step away: a column comes, goes, changes its name, place or type, may be null."""
    fields = list(definition.schema.fields)
    new_id = definition.last_column_id + 1
    step, at = rng.randrange(7), rng.randrange(len(fields))
    old = fields[at]
    if step == 0:
        of = rng.choice([IntegerType(), FloatType(), StructType(NestedField(new_id + 1, "y", IntegerType()))])
        fields.insert(at, NestedField(new_id, f"c{new_id}", of, required=False))
    elif step == 1 and len(fields) > 1:
        del fields[at]
    elif step == 2:
        fields[at] = old.model_copy(update={"name": f"{old.name[:9]}{new_id}{rng.randrange(99)}"})
    elif step == 3:
        fields.insert(rng.randrange(len(fields)), fields.pop(at))
    elif step == 4 and type(old.field_type) in _WIDER:
        fields[at] = old.model_copy(update={"field_type": _WIDER[type(old.field_type)]})
    elif step == 5:
        fields[at] = old.model_copy(update={"required": False})
    elif isinstance(old.field_type, StructType):
        more = NestedField(new_id, f"m{new_id}", IntegerType(), required=False)
        fields[at] = old.model_copy(update={"field_type": StructType(*old.field_type.fields, more)})
    else:
        return None
    there = {field.field_id for field in fields if field.required}
    return Schema(*fields, schema_id=0, identifier_field_ids=there & set(definition.schema.identifier_field_ids))


@pytest.mark.parametrize("many", [version_difference.MANY, 1])
@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_any_chain_of_changes_and_restores_gives_the_content_and_the_columns_of_then(many: int, seed: int) -> None:
    rng, lake = Random(seed), started()
    known: list[TableDefinition] = [lake.head.definition]
    restored_to: dict[int, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(version_difference, "MANY", many)
        for number in range(rng.randrange(4, 16)):
            roll, before, name = rng.random(), lake.head.definition, f"i{number}"
            if roll < 0.35:
                writers = rng.choice(known)  # who may not have heard of any change since
                committed(lake, file_under(writers, name, number, schema_id=writers.current_schema_id))
            elif roll < 0.45 and statistics(lake.head):
                committed(lake, remove(name, removed(rng.choice(sorted(statistics(lake.head))))))
            elif roll < 0.55 and lake.root_entries():
                committed(lake, flush(lake, name))
            elif roll < 0.8:
                schema = changed(before, rng)
                if schema is not None:
                    committed(lake, alter(lake, name, schema))
            else:
                version = rng.randrange(len(lake.states))
                then = lake.states[version]
                committed(lake, restore(version, name))
                assert statistics(lake.head).keys() == statistics(then).keys()
                for location, stats in statistics(then).items():
                    assert statistics(lake.head)[location] == stats
                assert shape(lake.head.definition.schema) == shape(then.definition.schema)
                restored_to[len(lake.states) - 1] = version
            after = lake.head.definition
            assert after.last_column_id >= before.last_column_id
            assert after.schemas[: len(before.schemas)] == before.schemas
            known.append(after)


def test_the_very_schema_of_then_is_current_again_when_columns_came_went_and_moved() -> None:
    lake = started()
    committed(lake, file_under(START, "a", 1))
    more = Schema(
        NestedField(11, "gate", StringType(), required=False),
        NestedField(1, "key", IntegerType(), required=True),
        schema_id=0,
        identifier_field_ids=[1],
    )
    committed(lake, alter(lake, "alter", more))
    committed(lake, file_under(lake.head.definition, "b", 2))
    committed(lake, restore(1))
    after = lake.head.definition
    assert (after.current_schema_id, len(after.schemas), after.last_column_id) == (0, 2, 11)
    assert sorted(statistics(lake.head)) == ["data/a.parquet"]
    committed(lake, restore(3))
    assert lake.head.definition.current_schema_id == 1
    assert sorted(statistics(lake.head)) == ["data/a.parquet", "data/b.parquet"]
    third = Schema(*more.fields, NestedField(12, "new", LongType(), required=False), schema_id=0)
    committed(lake, alter(lake, "again", third))
    assert lake.head.definition.last_column_id == 12


def test_a_wider_type_and_what_may_be_null_stay_for_writers_who_have_not_heard_of_the_restore() -> None:
    lake = started()
    committed(lake, file_under(START, "a", 1))
    wide = [
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "amount", DoubleType(), required=False),
        *START.schema.fields[2:],
    ]
    committed(lake, alter(lake, "alter", Schema(*wide, schema_id=0)))
    second = lake.head.definition
    committed(lake, restore(1))
    schema = lake.head.definition.schema
    assert [field.name for field in schema.fields] == [field.name for field in START.schema.fields]
    assert (schema.find_type("id"), schema.find_type("price")) == (LongType(), DoubleType())
    assert schema.identifier_field_ids == []
    assert not schema.find_field("id").required
    committed(lake, file_under(second, "late", 2**40, schema_id=second.current_schema_id))
    assert statistics(lake.head)["data/late.parquet"][1] == FieldStatistics(2**40, 2**40, True)


def test_a_dropped_column_comes_back_as_one_that_may_be_null() -> None:
    required = NestedField(11, "must", LongType(), required=True, initial_default=1, write_default=1)
    first = replace(START, schemas=(Schema(*START.schema.fields, required, schema_id=0),), last_column_id=11)
    lake = started(first)
    committed(lake, file_under(first, "a", 1))
    committed(lake, alter(lake, "alter", Schema(*START.schema.fields[:1], schema_id=0)))
    committed(lake, restore(1))
    schema = lake.head.definition.schema
    assert shape(schema) == shape(first.schema)
    assert not schema.find_field("must").required
    assert schema.find_field("must").initial_default == 1
    assert schema.find_field("at.x").required, "where the struct is, its member is"
    assert schema.find_field("by.key").required


def test_properties_stay_as_they_are_now() -> None:
    lake = started()
    committed(lake, file_under(START, "a", 1))
    owned = intent(
        IntentKind.ALTER,
        "owned",
        definition='{"changes":[{"action":"set-properties","updates":{"owner":"me"}}]}',
    )
    committed(lake, owned)
    before = lake.head.header.definition
    committed(lake, restore(1))
    assert lake.head.definition.properties == {"owner": "me"}
    assert lake.head.header.definition == before
    assert "rootline.definition" not in lake.head.header.snapshot.summary


def test_a_restore_among_other_intents_of_its_batch_is_as_if_it_had_come_alone() -> None:
    one, many = started(), started()
    third = Schema(*START.schema.fields, NestedField(11, "gate", StringType(), required=False), schema_id=0)
    for lake in (one, many):
        committed(lake, file_under(START, "a", 1))
        committed(lake, alter(lake, "alter", third))
        committed(lake, file_under(lake.head.definition, "b", 2))
    second = one.head.definition
    steps = [
        file_under(second, "c", 3),
        restore(1),
        file_under(second, "d", 4),
        restore(3, "on"),
        file_under(START, "e", 5),
    ]
    committed(one, *steps)
    for step in steps:
        committed(many, step)
    assert statistics(one.head) == statistics(many.head)
    assert one.head.definition == many.head.definition
    assert sorted(statistics(one.head)) == ["data/a.parquet", "data/b.parquet", "data/e.parquet"]


def test_a_table_that_has_the_definition_of_then_stays_as_it_is() -> None:
    assert restored_definition(START, START) is START


def test_the_default_spec_and_order_of_then_are_the_defaults_again() -> None:
    columns = (*START.schema.fields, NestedField(11, "day", IntegerType(), required=False))
    now = replace(
        START,
        schemas=(*START.schemas, Schema(*columns, schema_id=1, identifier_field_ids=[1])),
        current_schema_id=1,
        partition_specs=(*START.partition_specs, PartitionSpec(1, (11,))),
        default_spec_id=1,
        sort_orders=(*START.sort_orders, SortOrder(1, (SortField(11),))),
        default_sort_order_id=1,
        last_column_id=11,
    )
    after = restored_definition(now, START)
    assert (after.default_spec_id, after.default_sort_order_id, after.current_schema_id) == (0, 0, 0)
    assert (after.partition_specs, after.sort_orders) == (now.partition_specs, now.sort_orders)
    again = restored_definition(after, now)
    assert (again.default_spec_id, again.default_sort_order_id, again.current_schema_id) == (1, 1, 1)
    removed_since = replace(now, partition_specs=now.partition_specs[1:])
    with pytest.raises(Invalid, match="partitioned by it"):
        restored_definition(removed_since, START)
