"""A commit is one object, however many files it adds."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.data_file import DataFile
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.demo.example_flights import objects_below
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.verdict import VerdictKind

FILES = 300
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def planes(lake: Lake) -> TableHandle:
    """An empty table without partitions."""
    return lake.create_table("demo.planes", ROWS.schema)


def files_below(folder: Path, table: TableHandle) -> list[DataFile]:
    """Files that lie in the table's folder, though no root names them yet."""
    data = folder / table_prefix(table.name) / "data"
    data.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink)
    body = sink.getvalue().to_pybytes()
    definition = table.definition()
    found = []
    for at in range(FILES):
        (data / f"part-{at}.parquet").write_bytes(body)
        found.append(DataFile.from_parquet(f"data/part-{at}.parquet", definition, source=body))
    return found


def publish(lake: Lake, table: TableHandle, files: Sequence[DataFile]) -> None:
    """Append the files with one intent of one's own making."""
    intent = Intent(intent_id=str(uuid.uuid4()), table=table.name, kind=IntentKind.APPEND, add_data_files=tuple(files))
    with lake.producer() as producer:
        assert producer.publish(intent).verdict(30).kind is VerdictKind.COMMITTED


@pytest.mark.parametrize("way", ["add_files", "producer"])
def test_hundreds_of_files_in_one_intent_make_one_object_of_metadata(
    lake: Lake, folder: Path, planes: TableHandle, way: str
) -> None:
    files = files_below(folder, planes)
    metadata = f"{table_prefix(planes.name)}metadata/"
    before, version = objects_below(lake, metadata), planes.head().version
    if way == "add_files":
        planes.add_files(files, timeout_s=30)
    else:
        publish(lake, planes, files)
    assert objects_below(lake, metadata) == before + 1
    assert planes.head().version == version + 1
    assert planes.scan().count() == FILES * ROWS.num_rows
    assert list(planes.check()) == []


def test_an_append_of_rows_in_hundreds_of_partitions_makes_one_object_of_metadata(lake: Lake) -> None:
    table = lake.create_table("demo.parts", ROWS.schema, partition_by=["id"])
    metadata = f"{table_prefix(table.name)}metadata/"
    before = objects_below(lake, metadata)
    table.append({"id": list(range(FILES))})
    assert len(table.scan().plan()) == FILES
    assert objects_below(lake, metadata) == before + 1
