"""`mergeSchema`: rows of Spark bring columns that the table lacks, in the commit of their batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rootline import Invalid
from rootline.client.table_handle import TableHandle
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import MergedWrite, means_the_same
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import PATIENCE_S

pytestmark = pytest.mark.spark
MORE = "id long, carrier string, delay double, gate string, at struct<lat: double>"


def rows(table: TableHandle) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_batch_brings_its_columns_in_its_own_commit(
    spark: SparkSession, flights: TableHandle, save: Callable[..., None]
) -> None:
    save(spark.createDataFrame([(1, "UA", 0.5)], "id int, carrier string, delay float"))
    frame = spark.createDataFrame([(2, "AA", 1.5, "B1", (3.5,))], MORE)
    with pytest.raises(AnalysisException, match="gate"):
        save(frame)
    save(frame, mergeSchema="true")
    assert flights.head().version == 2
    assert rows(flights)[0] == {"id": 1, "carrier": "UA", "delay": 0.5, "gate": None, "at": None}
    assert rows(flights)[1] == {"id": 2, "carrier": "AA", "delay": 1.5, "gate": "B1", "at": {"lat": 3.5}}
    save(spark.createDataFrame([(3, "seat")], "id long, seat string"), mode="overwrite", mergeSchema="true")
    assert flights.head().version == 3
    assert rows(flights) == [{"id": 3, "carrier": None, "delay": None, "gate": None, "at": None, "seat": "seat"}]
    assert list(flights.check()) == []


def test_a_stream_brings_a_column_once_and_a_batch_that_is_replayed_lands_once(
    spark: SparkSession, flights: TableHandle, folder: Path, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def drop(number: int) -> None:
        line = json.dumps({"id": number, "carrier": "UA", "gate": f"g{number}"})
        (source / f"{number:04}.json").write_text(line + "\n")

    def run(**options: str) -> None:
        frame = spark.readStream.schema(MORE).option("maxFilesPerTrigger", 1).json(str(source))
        writer = frame.writeStream.format("rootline").option("warehouse", str(folder)).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start("demo.flights")
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()

    for number in range(3):
        drop(number)
    with pytest.raises(StreamingQueryException, match="gate"):
        run()
    run(mergeSchema="true")
    assert [row["gate"] for row in rows(flights)] == ["g0", "g1", "g2"]
    assert flights.head().version == 3
    with flights.alter() as change:
        change.add_column("seat", "string")
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda at: int(at.name)
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    drop(3)
    run(mergeSchema="true")
    assert [row["gate"] for row in rows(flights)] == ["g0", "g1", "g2", "g3"]
    assert len(flights.definition().schemas) == 3
    assert list(flights.check()) == []


def planned(table: TableHandle, columns: str) -> MergedWrite | None:
    definition, digest = table.definition().to_json(), table.head().definition.digest
    return MergedWrite.planned(table.name, StructType.fromDDL(columns), definition, digest)


def test_files_are_used_as_long_as_their_columns_mean_what_they_meant(
    spark: SparkSession, flights: TableHandle
) -> None:
    assert planned(flights, "id long, carrier string") is None
    merged = planned(flights, "id long, gate string")
    assert merged is not None
    with flights.alter() as change:
        change.add_column("gate", "string")
    with flights.alter() as change:
        change.add_column("seat", "string").update_column("carrier", doc="who flies")
    assert merged.on_head(_lake(flights), flights.name).changes is None
    with flights.alter() as change:
        change.rename_column("gate", "door")
    with pytest.raises(Invalid, match="run the write again") as refused:
        merged.on_head(_lake(flights), flights.name)
    assert refused.value.code == "definition-changed"


def test_files_are_not_used_when_another_column_has_their_columns_id(spark: SparkSession, flights: TableHandle) -> None:
    merged = planned(flights, "id long, gate string")
    assert merged is not None
    with flights.alter() as change:
        change.add_column("seat", "string")
    with pytest.raises(Invalid, match="run the write again"):
        merged.on_head(_lake(flights), flights.name)
    now = flights.definition()
    assert not means_the_same(TableDefinition.from_json(merged.definition), now)
    assert means_the_same(now, now)
    assert len(FLIGHTS) == 3


def _lake(table: TableHandle) -> Any:
    return table._lake
