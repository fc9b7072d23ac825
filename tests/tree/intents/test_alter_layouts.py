"""The kind `alter` with partition specs and sort orders: what is live stays, and writers under way go on."""

from __future__ import annotations

import dataclasses

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import SortField, SortOrder, TableDefinition
from rootline.tree.evolution.changes import (
    DefinitionChange,
    DefinitionChanges,
    PartitionField,
    SetDefaultSortOrder,
    SetDefaultSpec,
    order_changes,
    schema_changes,
    spec_changes,
)
from rootline.tree.state.table_state import TableState
from tests.tree.tables import (
    BY_BUCKET,
    BY_CARRIER,
    CARRIER,
    DEFINITION,
    DELAY,
    ID,
    Lake,
    append,
    data_file,
    equality_delete,
    intent,
    new_lake,
)

TRUNCATED = 5
BY_LETTER = spec_changes([PartitionField((CARRIER,), "truncate[1]", "letter")])


def alter(lake: Lake, intent_id: str, *changes: DefinitionChange) -> Intent:
    body = DefinitionChanges(lake.head.header.definition.digest, changes).to_json()
    return intent(IntentKind.ALTER, intent_id, definition=body)


def outcomes(lake: Lake, *intents: Intent) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in lake.put(*intents)]


def by_letter(definition: TableDefinition, name: str, letter: str | None, **more: object) -> Intent:
    """An append of one file of the new spec, whose statistics are encoded under `definition`."""
    codec = EntryCodec.of_definition(definition).statistics
    found = {ID: FieldStatistics(1, 2, True, 2, 0)}
    if letter is not None:
        found[TRUNCATED] = FieldStatistics(letter, None)
    spec_id = definition.default_spec_id
    return append(
        name,
        data_file(
            name,
            ids=[1, 2],
            partition_spec_id=spec_id,
            content_stats=codec.encode(found),
            stats_schema=codec.fingerprint,
            **more,
        ),
    )


def test_a_new_spec_changes_the_layout_and_every_row_keeps_its_statistics() -> None:
    lake = new_lake(*(append(f"f{number}") for number in range(30)))
    before = {place: dict(entry.content_stats) for place, entry in lake.live().items()}
    assert outcomes(lake, alter(lake, "spec", *BY_LETTER)) == ["committed"]
    assert lake.head.definition.default_spec_id == 3
    assert {place: dict(entry.content_stats) for place, entry in lake.live().items()} == before
    assert outcomes(lake, by_letter(lake.head.definition, "new", "U")) == ["committed"]
    for body, state in zip(lake.bodies, lake.states, strict=True):
        read = decode_root(body, name="root")
        assert read.codec == EntryCodec.of_definition(state.definition)
        rebuilt = TableState.of(read, state.definition, {})
        assert {place: row.tail for place, row in rebuilt.live.rows.items()} == {
            place: row.tail for place, row in state.live.rows.items()
        }


def test_writers_that_split_by_an_older_spec_are_accepted_in_the_same_batch_and_later() -> None:
    lake = new_lake(append("a"))
    assert outcomes(lake, alter(lake, "spec", *BY_LETTER), append("b"), append("c")) == ["committed"] * 3
    assert outcomes(lake, append("d", data_file("d", partition_spec_id=BY_BUCKET))) == ["committed"]
    specs = {place.location: entry.partition_spec_id for place, entry in lake.live().items()}
    assert specs == {f"data/{name}.parquet": BY_CARRIER for name in "abc"} | {"data/d.parquet": BY_BUCKET}
    delete = intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=(equality_delete("e", 1, "UA"),))
    assert outcomes(lake, delete) == ["committed"]


def test_a_file_of_the_new_spec_needs_its_partition_value_and_a_spec_that_is_there() -> None:
    lake = new_lake(append("a"))
    old = lake.head.definition
    later = dataclasses.replace(old, default_spec_id=9)
    assert outcomes(lake, by_letter(later, "none", None)) == ["spec-unknown"]
    outcomes(lake, alter(lake, "spec", *BY_LETTER))
    assert outcomes(lake, by_letter(lake.head.definition, "b", None)) == ["statistics-missing"]
    under_older_layout = dataclasses.replace(old, default_spec_id=3)
    assert outcomes(lake, by_letter(under_older_layout, "c", None)) == ["statistics-missing"]


def test_a_column_is_partitioned_by_identity_without_another_layout_of_statistics() -> None:
    lake = new_lake(append("a"))
    layout = lake.head.root.codec.layout
    fields = [PartitionField((DELAY,), "identity", "delay")]
    assert outcomes(lake, alter(lake, "spec", *spec_changes(fields))) == ["committed"]
    assert lake.head.root.codec.layout == layout
    assert not lake.head.definition.past_layouts
    nan = float("nan")
    codec = EntryCodec.of_definition(lake.head.definition).statistics
    encoded = codec.encode({DELAY: FieldStatistics(nan, nan, None, 1, 0, 1)})
    file = data_file("b", ids=[1], partition_spec_id=3, content_stats=encoded, stats_schema=codec.fingerprint)
    assert outcomes(lake, append("b", file), append("c")) == ["committed", "committed"]
    read = decode_root(lake.bodies[-1], name="root")
    bounds = [row.entry.content_stats[DELAY].lower_bound for row in read.rows if row.entry.partition_spec_id == 3]
    assert [bound != bound for bound in bounds] == [True]


def test_of_two_who_add_a_spec_for_one_definition_the_second_is_rejected() -> None:
    lake = new_lake(append("a"))
    first = alter(lake, "one", *BY_LETTER)
    second = alter(lake, "two", *spec_changes([PartitionField((CARRIER,), "truncate[2]", "two")]))
    assert outcomes(lake, first, second) == ["committed", "definition-changed"]


@pytest.mark.parametrize("changes", [BY_LETTER, order_changes([SortField(ID)])])
def test_what_gets_an_id_needs_a_digest_and_a_default_does_not(changes: tuple[DefinitionChange, ...]) -> None:
    lake = new_lake(append("a"))
    without = intent(IntentKind.ALTER, "x", definition=DefinitionChanges(None, changes).to_json())
    [verdict] = lake.put(without)
    assert (verdict.code, "replaces-definition" in (verdict.message or "")) == ("definition-invalid", True)
    default = DefinitionChanges(None, (SetDefaultSpec(BY_BUCKET), SetDefaultSortOrder(0)))
    assert outcomes(lake, intent(IntentKind.ALTER, "y", definition=default.to_json())) == ["committed"]
    assert lake.head.definition.default_spec_id == BY_BUCKET


def test_a_sort_order_changes_no_row_and_files_may_name_every_order_that_the_table_has() -> None:
    lake = new_lake(append("a"))
    layout = lake.head.root.codec.layout
    assert outcomes(lake, append("b", data_file("b", sort_order_id=1))) == ["intent-malformed"]
    steps = [alter(lake, "order", *order_changes([SortField(ID)])), append("c", data_file("c", sort_order_id=1))]
    assert outcomes(lake, *steps) == ["committed", "committed"]
    assert outcomes(lake, alter(lake, "other", *order_changes([SortField(DELAY, "identity", "desc")]))) == ["committed"]
    late, new, strange = (
        append(name, data_file(name, sort_order_id=number)) for name, number in zip("def", (1, 2, 3), strict=True)
    )
    assert outcomes(lake, late, new, strange) == ["committed", "committed", "intent-malformed"]
    assert lake.head.root.codec.layout == layout
    assert [order.order_id for order in lake.head.definition.sort_orders] == [0, 1, 2]
    assert lake.head.definition.sort_orders[0] == SortOrder(0)


def test_a_column_and_its_partition_field_come_in_one_alter() -> None:
    lake = new_lake(append("a"))
    more = Schema(*DEFINITION.schema.fields, NestedField(5, "gate", StringType(), required=False), schema_id=0)
    fields = [PartitionField((5,), "identity", "gate"), PartitionField((ID,), "bucket[2]", "half")]
    assert outcomes(lake, alter(lake, "both", *schema_changes(more), *spec_changes(fields)), append("b")) == [
        "committed",
        "committed",
    ]
    assert lake.head.definition.spec_by_id(3).expr_ids == (5, 6)
    assert lake.head.definition.last_column_id == 6


def test_partition_values_of_an_older_layout_are_kept_when_columns_come() -> None:
    lake = new_lake(append("a"))
    outcomes(lake, alter(lake, "spec", *BY_LETTER))
    first = lake.head.definition
    assert outcomes(lake, by_letter(first, "b", "U")) == ["committed"]
    more = Schema(*DEFINITION.schema.fields, NestedField(6, "gate", StringType(), required=False), schema_id=0)
    outcomes(lake, alter(lake, "column", *schema_changes(more)))
    assert outcomes(lake, by_letter(first, "c", "D"), append("d")) == ["committed", "committed"]
    values = {
        place.location: entry.content_stats[TRUNCATED].lower_bound
        for place, entry in lake.live().items()
        if entry.partition_spec_id == 3
    }
    assert values == {"data/b.parquet": "U", "data/c.parquet": "D"}
