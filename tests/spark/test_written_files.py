"""What Spark's writer left in a folder, as an intent names it; without Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.lake import Lake
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import OwnKind, own_kind, spark_folder
from rootline.spark.options import parse_options
from rootline.spark.parquet_append import rows_told
from rootline.spark.parquet_files import written_files
from rootline.storage.rows.arrow_types import arrow_schema_of

CONNECT: Any = SimpleNamespace()  # a session of Spark Connect does not say how many cores there are


def test_files_that_spark_names_alike_get_names_of_their_own_by_which_a_sweep_knows_them(
    lake: Lake, folder: Path
) -> None:
    table = lake.create_table("demo.flights", pa.schema([("id", pa.int64())]), partition_by=["id"])
    definition, place = table.definition(), spark_folder(uuid.UUID(int=1))
    options = parse_options({"path": "demo.flights", "warehouse": str(folder)}, {})
    path = folder / "demo" / "flights" / place
    for number in range(2):
        group = path / f"partition_group={number}"
        group.mkdir(parents=True)
        rows = pa.table({"id": pa.array([number], pa.int64())}, arrow_schema_of(definition.schema))
        pq.write_table(rows, group / "part-00000-5.c000.snappy.parquet")

    written = written_files(CONNECT, options, definition, place, str(path))
    locations = [file.location for file in written.files]
    assert (written.row_count, len(locations)) == (2, 2)
    assert {own_kind(location) for location in locations} == {OwnKind.DATA_FILE}
    assert len({Path(location).name for location in locations}) == 2
    table.add_files(list(written.files))
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [0, 1]


class Silent:
    """An observation whose event Spark dropped: it waits for ever."""

    def __init__(self) -> None:
        self.end = Event()

    @property
    def get(self) -> dict[str, Any]:
        self.end.wait()
        return {"rows": 1}


def test_an_append_does_not_wait_for_ever_for_a_count_that_spark_dropped() -> None:
    silent: Any = Silent()
    with pytest.raises(Invalid, match=r"did not report its number of rows within 0\.01 s") as caught:
        rows_told(silent, 0.01, "demo.flights")
    assert caught.value.code == "rows-invalid"
    silent.end.set()
    assert rows_told(silent, 600, "demo.flights") == 1
