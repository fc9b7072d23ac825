"""PyIceberg appends through the REST catalog, alone and at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.catalog.pyiceberg_catalog import catalog_at
from tests.catalog.pyiceberg_catalog import rows as sorted_rows
from tests.rest.writing_catalog import WritingCatalog

COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_name"))
FORMAT = {"format-version": "2"}
"""The newest that PyIceberg 0.12 writes."""
PROCESSES = 8
EACH = 5
_PATIENCE_S = 120


@pytest.fixture
def client(catalog: WritingCatalog) -> Iterator[RestCatalog]:
    with catalog_at(catalog.url, "own") as found:
        yield found


def named(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name {each}" for each in ids]})


def test_rows_get_the_ids_that_they_would_get_from_a_native_writer(
    catalog: WritingCatalog, client: RestCatalog
) -> None:
    table = client.create_table("demo.plain", COLUMNS, properties=FORMAT)
    native = catalog.lake.table("demo.plain")
    table.append(named(1, 2, 3))
    native.append(named(4).to_pydict())
    table.append(named(5))
    ids = native.scan(columns=["id", "_row_id"]).to_arrow()
    assert {row["id"]: row["_row_id"] for row in ids.to_pylist()} == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}


def test_rows_of_a_partitioned_table_are_planned_by_their_partition(
    catalog: WritingCatalog, client: RestCatalog
) -> None:
    table = client.create_table("demo.parted", COLUMNS, partition_spec=BY_NAME, properties=FORMAT)
    table.append(named(*range(4)))
    native = catalog.lake.table("demo.parted")
    assert sorted_rows(native.scan().to_arrow()) == named(*range(4)).to_pylist()
    assert (len(native.scan().plan()), len(native.scan("name = 'name 3'").plan())) == (4, 1)


def test_a_staged_table_is_created_with_its_first_rows_as_one_version(
    catalog: WritingCatalog, client: RestCatalog
) -> None:
    with client.create_table_transaction(
        "demo.filled", COLUMNS, partition_spec=BY_NAME, properties=FORMAT
    ) as transaction:
        transaction.append(named(1, 2))
        assert "demo.filled" not in catalog.lake.list_tables()
    native = catalog.lake.table("demo.filled")
    assert len(native.history()) == 1
    assert sorted_rows(native.scan().to_arrow()) == named(1, 2).to_pylist()
    assert sorted_rows(client.load_table("demo.filled").scan().to_arrow()) == named(1, 2).to_pylist()


def test_an_upsert_that_only_adds_rows_appends_and_one_that_changes_rows_is_refused(
    catalog: WritingCatalog, client: RestCatalog
) -> None:
    table = client.create_table("demo.upserted", COLUMNS, properties=FORMAT)
    table.append(named(1, 2))
    table.upsert(named(3), join_cols=["id"])
    native = catalog.lake.table("demo.upserted")
    before = native.head().totals
    changed = pa.table({"id": pa.array([2], pa.int64()), "name": ["other"]})
    with pytest.raises(BadRequestError, match=r"demo\.upserted: .*does not take"):
        table.upsert(changed, join_cols=["id"])
    assert native.head().totals == before
    assert sorted_rows(native.scan().to_arrow()) == named(1, 2, 3).to_pylist()


@pytest.mark.slow
def test_processes_that_append_at_once_need_no_retry_and_every_row_is_there_once(
    catalog: WritingCatalog, client: RestCatalog
) -> None:
    without_retries = {**FORMAT, "commit.retry.num-retries": "0"}
    client.create_table("demo.busy", Schema(COLUMNS.fields[0]), properties=without_retries)
    with ExitStack() as around:
        writers = [
            around.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.rest.appending_client",
                        catalog.url,
                        "demo.busy",
                        str(number * EACH),
                        str(EACH),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(PROCESSES)
        ]
        for writer in writers:
            around.callback(writer.kill)
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            _, errors = writer.communicate(timeout=_PATIENCE_S)
            assert writer.returncode == 0, errors[-2_000:]
    table = catalog.lake.table("demo.busy")
    found = table.scan(columns=["id", "_row_id"]).to_arrow()
    assert sorted(found.column("id").to_pylist()) == list(range(PROCESSES * EACH))
    assert sorted(found.column("_row_id").to_pylist()) == list(range(PROCESSES * EACH))
