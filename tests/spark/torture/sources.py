"""The sources of the streams, and what DuckDB finds in them.

Owns: files of rows that are only appended, files of rows that replace others, the comparison with the tables.
Does not own: the streams. Invariants: a file appears whole; a later file has a later date, because Spark reads files in
the order of their dates; a key is in a file once.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.client.lake import Lake
from tests.spark.torture.job import COUNTERS

NUMBERS: Final = "torture.numbers"
NUMBERS_SCHEMA: Final = pa.schema([("stream", pa.int64()), ("number", pa.int64()), ("doomed", pa.bool_())])
NUMBERS_COLUMNS: Final = "stream long, number long, doomed boolean"
DOOMED: Final = "doomed = true"
LATEST: Final = "torture.latest"
LATEST_SCHEMA: Final = Schema(
    NestedField(1, "key", LongType(), required=True), NestedField(2, "number", LongType()), identifier_field_ids=[1]
)
LATEST_COLUMNS: Final = "key long, number long"
COUNTERS_SCHEMA: Final = pa.schema([("id", pa.int64()), ("n", pa.int64())])
COUNTER_IDS: Final = range(10)
_KEYS: Final = 40
_ROWS: Final = 20
_FIRST_DATE_S: Final = 1_700_000_000


@dataclass
class Source:
    """A folder of JSON files. `stream`: its number; `None`: its rows replace others by their key."""

    folder: Path
    stream: int | None
    dice: random.Random
    files: int = 0

    def drop(self) -> None:
        """One more file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.files * _ROWS
        if self.stream is None:
            keys = self.dice.sample(range(_KEYS), _ROWS // 2)
            rows: list[dict[str, Any]] = [{"key": key, "number": first + at} for at, key in enumerate(keys)]
        else:
            numbers = range(first, first + _ROWS)
            rows = [{"stream": self.stream, "number": number, "doomed": number % 5 == 0} for number in numbers]
        hidden = self.folder / f".{self.files}"
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        date_s = _FIRST_DATE_S + self.files
        os.utime(hidden, (date_s, date_s))
        hidden.rename(self.folder / f"{self.files:06}.json")
        self.files += 1


def differences(lake: Lake, sources: Sequence[Source], counted: int) -> list[str]:
    """How the tables differ from what is in the sources; each counter is to be `counted`."""
    appended = [str(source.folder / "*.json") for source in sources if source.stream is not None and source.files]
    replacing = [str(source.folder / "*.json") for source in sources if source.stream is None and source.files]
    wanted = {
        NUMBERS: f"select stream::bigint, number::bigint, doomed from read_json({appended!r}) where not doomed",
        LATEST: f"select key::bigint, max(number)::bigint from read_json({replacing!r}) group by key",
        COUNTERS: f"select unnest(range({len(COUNTER_IDS)}))::bigint, {counted}::bigint",
    }
    database = duckdb.connect()
    found: list[str] = []
    for table, query in wanted.items():
        database.register("there", lake.table(table).scan().to_arrow())
        for word, difference in (
            ("lost", f"{query} except all select * from there"),
            ("too many", f"select * from there except all ({query})"),
        ):
            rows = database.execute(f"select * from ({difference}) order by all").fetchall()
            if rows:
                found.append(f"{table}: {len(rows)} rows {word}, such as {rows[:3]}")
    return found
