"""A stream from files to the table `demo.flights`, as tests let it run, stop and run again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rootline.client.table_handle import TableHandle

COLUMNS = "id long, carrier string, delay double"
PATIENCE_S = 120


@dataclass
class Stream:
    """A stream from files to the table `demo.flights`: one file, one micro-batch."""

    spark: SparkSession
    warehouse: str
    place: Path
    files: int = 0

    @property
    def source(self) -> Path:
        return self.place / "source"

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint"

    def drop(self, *ids: int, delay: float | None = None) -> None:
        """One more file of the source."""
        self.source.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"id": id_, "carrier": "UA", "delay": delay}) for id_ in ids]
        (self.source / f"{self.files:04}.json").write_text("\n".join(lines) + "\n")
        self.files += 1

    def start(self, **options: Any) -> StreamingQuery:
        stream = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(self.source))
        writer = stream.writeStream.format("rootline").option("warehouse", self.warehouse).options(**options)
        started = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        return started.start("demo.flights")

    def run(self, **options: Any) -> None:
        """Everything that is there, to the end."""
        query = self.start(**options)
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """Take the checkpoint back to before Spark noted that its last batch was done."""
        commits = self.checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


def ids(table: TableHandle) -> list[int]:
    """The ids of all rows."""
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
