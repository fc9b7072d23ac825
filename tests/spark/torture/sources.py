"""The sources of the streams, and what DuckDB finds in them.

Owns: files of rows that are only appended, files of rows that replace others, what merges were to do, the comparison
with the tables. Does not own: the streams and merges themselves (`job`). Invariants: a file appears whole; a later file
has a later date, because Spark reads files in the order of their dates; a key is in a file once.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.client.lake import Lake
from tests.spark.torture.job import COUNTERS, MERGED, MERGED_KEYS, MERGED_ROWS, ROWS_OF_LEVEL

NUMBERS: Final = "torture.numbers"
GROWN: Final = "torture.grown"
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
MERGED_SCHEMA: Final = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("times", pa.int64())])
TABLES: Final = (NUMBERS, GROWN, LATEST, COUNTERS, MERGED)
_KEYS: Final = 40
_ROWS: Final = 20
_FIRST_DATE_S: Final = 1_700_000_000


@dataclass
class Source:
    """A folder of JSON files for a table. `stream`: its number. Rows for `LATEST` replace others by their key."""

    folder: Path
    table: str
    stream: int
    dice: random.Random
    files: int = 0

    def drop(self) -> None:
        """One more file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.files * _ROWS
        if self.table == LATEST:
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


def differences(lake: Lake, sources: Sequence[Source], counted: int, merged: Mapping[int, int]) -> list[str]:
    """How the tables differ from what is in the sources.

    `counted`: what each counter is to be. `merged`: how many merges each driver did, by its number.
    """
    database = duckdb.connect()
    found: list[str] = []
    for table, query in _wanted(sources, counted, merged).items():
        columns = [str(row[0]) for row in database.execute(f"describe {query}").fetchall()]
        rows = lake.table(table).scan().to_arrow()
        if set(columns) != set(rows.column_names):
            found.append(f"{table}: its columns are {rows.column_names}, and not {columns}")
            continue
        database.register("there", rows.select(columns))
        for word, difference in (
            ("lost", f"({query}) except all select * from there"),
            ("too many", f"select * from there except all ({query})"),
        ):
            wrong = database.execute(f"select * from ({difference}) order by all").fetchall()
            if wrong:
                found.append(f"{table}: {len(wrong)} rows {word}, such as {wrong[:5]}")
    return found


def _wanted(sources: Sequence[Source], counted: int, merged: Mapping[int, int]) -> dict[str, str]:
    """What is to be in each table that has a source."""
    files = {
        table: [str(source.folder / "*.json") for source in sources if source.table == table and source.files]
        for table in (NUMBERS, GROWN, LATEST)
    }
    last = max((source.files * _ROWS - 1 for source in sources if source.table == GROWN), default=0)
    grown = "".join(
        f", case when number // {ROWS_OF_LEVEL} > {at} then number + {at} end as g{at}"
        for at in range(last // ROWS_OF_LEVEL)
    )
    appended = (
        "select stream::bigint as stream, number::bigint as number, doomed{} from read_json({!r}) where not doomed"
    )
    wanted = {
        NUMBERS: appended.format("", files[NUMBERS]),
        GROWN: appended.format(grown, files[GROWN]),
        LATEST: f"select key::bigint as key, max(number) as number from read_json({files[LATEST]!r}) group by 1",
    }
    return {
        **{table: query for table, query in wanted.items() if files[table]},
        COUNTERS: f"select unnest(range({len(COUNTER_IDS)}))::bigint as id, {counted}::bigint as n",
        **({MERGED: " union all ".join(_merged(*of_driver) for of_driver in merged.items())} if merged else {}),
    }


def _merged(driver: int, merges: int) -> str:
    """What a driver's merges left: of each key what came after the last merge that deleted it."""
    return f"""
        select key::bigint as key, max(value)::bigint as value, count(*)::bigint as times
        from (select *, coalesce(max(merge) filter (where is_end) over (partition by key), -1) as gone from (
            select m.range as merge, {1000 * driver} + (7 * m.range + row.range) % {MERGED_KEYS} as key,
                100 * m.range + row.range as value, (m.range + row.range) % 4 = 0 as is_end
            from range({merges}) as m, range({MERGED_ROWS}) as row))
        where merge > gone group by key"""
