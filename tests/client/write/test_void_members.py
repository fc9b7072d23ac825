"""A spec whose member became `void` when its column was dropped: the table is written to all the same."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import write_files
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.definition_rules import check_definition
from tests.storage.stored_tables import StoredTable, uuids

BEFORE = pa.schema([pa.field("id", pa.int64()), pa.field("carrier", pa.string())])
ROWS = pa.table({"id": list(range(10))})


def _without_carrier(*partition_by: str) -> TableDefinition:
    built = build_definition(BEFORE, partition_by=partition_by, table_uuid=uuid.UUID(int=3))
    now = Schema(built.schema.fields[0], schema_id=1)
    definition = replace(built, schemas=(built.schema, now), current_schema_id=1)
    check_definition(definition)
    return definition


@pytest.mark.parametrize("partition_by", [("void(carrier)",), ("void(carrier)", "bucket(2, id)"), ("void(id)",)])
def test_rows_are_written_although_the_column_of_a_void_member_is_gone(partition_by: tuple[str, ...]) -> None:
    definition = _without_carrier(*partition_by)
    files = write_files(ROWS, definition, uuids())
    assert len(files) == len(partition_by)
    assert sum(file.data_file.record_count for file in files) == 10
    void = definition.partition_specs[0].expr_ids[0]
    for file in files:
        assert file.data_file.content_stats is not None
        stats, _ = EntryCodec.of_definition(definition).statistics.decode(file.data_file.content_stats)
        assert (stats[void].lower_bound, stats[void].upper_bound) == (None, None)


def test_what_was_written_under_a_void_member_is_read_and_filtered() -> None:
    table = StoredTable(_without_carrier("void(carrier)", "bucket(2, id)"))
    table.entries = list(table.write(ROWS))
    table.commit()
    assert sorted(table.scan().column("id").to_pylist()) == list(range(10))
    assert table.scan("id = 7").column("id").to_pylist() == [7]


def test_a_member_of_another_transform_over_a_dropped_column_is_refused_with_its_name() -> None:
    with pytest.raises(Invalid, match="partition member 3 uses column id 2, which was dropped"):
        write_files(ROWS, _without_carrier("truncate(1, carrier)"), uuids())
