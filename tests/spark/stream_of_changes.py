"""A stream's reader, driven as Spark drives it: batch by batch, every planned partition read by a pickled copy."""

from __future__ import annotations

import json
import pickle
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.types import StructType

from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.spark.change_stream import ChangeStreamReader
from rootline.spark.data_source import RootlineDataSource

Rows = list[dict[str, Any]]


@dataclass
class Query:
    """A query with a checkpoint: the offsets that it logged. `begun` anew, its reader knows nothing of before."""

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    offsets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = self.begun()

    def begun(self) -> ChangeStreamReader:
        """A reader of a driver that has just started."""
        source = RootlineDataSource({"path": "demo.rows", "warehouse": str(self.folder), **self.options})
        source = pickle.loads(pickle.dumps(source))  # as Spark does
        self.reader = cast("ChangeStreamReader", source.streamReader(cast("StructType", source.schema())))
        return self.reader

    def batch(self) -> Rows | None:
        """The next micro-batch; `None`: there is none."""
        if not self.offsets:
            self.offsets.append(json.dumps(self.reader.initialOffset()))
        end = json.dumps(self.reader.latestOffset(json.loads(self.offsets[-1]), self.reader.getDefaultReadLimit()))
        if end == self.offsets[-1]:
            return None
        self.offsets.append(end)
        rows = self.rows(-2, -1)
        self.reader.commit(json.loads(end))
        return rows

    def batches(self) -> list[Rows]:
        """All there are."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
        return found

    def rows(self, start: int, end: int) -> Rows:
        """The rows between two of the logged offsets."""
        begin, last = (json.loads(self.offsets[at]) for at in (start, end))
        found: Rows = []
        for partition in self.reader.partitions(begin, last):
            reader = pickle.loads(pickle.dumps(self.reader))
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                assert isinstance(batch, pa.RecordBatch)
                found += batch.to_pylist()
        return found


def ids(rows: Rows) -> list[int]:
    return sorted(row["id"] for row in rows)


def kinds(rows: Rows) -> list[tuple[str, int]]:
    """What happened to which row."""
    return sorted((row["_change_type"], row["id"]) for row in rows)


def upsert(lake: Lake, folder: Path, table: TableHandle, rows: pa.Table) -> None:
    """As a stream of updates does: equality deletes by `id`, and the rows, in one commit."""
    definition = table.definition()

    def stored(body: bytes, location: str) -> None:
        place = folder.joinpath(*table.name.split("."), *location.split("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)

    (brought,) = write_files(rows, definition, iter([uuid.uuid4()]))
    (gone,) = write_files(rows, definition, iter([uuid.uuid4()]))
    for written in (brought, gone):
        stored(written.body, written.data_file.location)
    intent = Intent(
        intent_id=str(uuid.uuid4()),
        table=table.name,
        kind=IntentKind.ROW_DELTA,
        schema_id=definition.current_schema_id,
        add_data_files=(brought.data_file,),
        add_equality_deletes=(
            EqualityDeleteFile(**gone.data_file.model_dump(exclude={"equality_ids"}), equality_ids=(1,)),
        ),
    )
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict(timeout_s=30)
    assert verdict.kind is VerdictKind.COMMITTED, verdict.message
