"""A table with twenty columns of statistics, and intents that add files to it.

Owns: the shapes that benchmarks commit. Does not own: what is measured.
Invariants: the same number gives the same file; nothing here touches a store or a log.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

from rootline.client.create_drop import build_definition
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition

TABLE = TableName("bench.events")
COLUMNS = 20


def definition(number: int = 1) -> TableDefinition:
    """Eight longs, four doubles, four strings, four timestamps; `number` tells tables apart."""
    types = [pa.int64()] * 8 + [pa.float64()] * 4 + [pa.string()] * 4 + [pa.timestamp("us")] * 4
    schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(types)])
    return build_definition(
        schema, table_uuid=uuid.UUID(int=number), properties={"rootline.flush.data-files": "1000000"}
    )


def rows_of(number: int) -> int:
    """The rows of file `number`."""
    return 10_000 + number * 37 % 5_000


def statistics(number: int) -> dict[int, FieldStatistics]:
    """File `number`'s statistics: every column has every field that its type has."""
    counts: dict[str, Any] = {"value_count": rows_of(number), "null_value_count": number % 7, "tight_bounds": True}
    found: dict[int, FieldStatistics] = {}
    for column in range(1, COLUMNS + 1):
        low = number * 1_000 + column
        if column <= 8 or column > 16:
            found[column] = FieldStatistics(low, low + 999, **counts)
        elif column <= 12:
            found[column] = FieldStatistics(low / 8, (low + 999) / 8, nan_value_count=0, **counts)
        else:
            sizes: dict[str, Any] = {"avg_value_size_in_bytes": 12, "max_value_size_in_bytes": 40}
            found[column] = FieldStatistics(f"key-{low:012d}", f"key-{low + 999:012d}", **counts, **sizes)
    return found


def data_file(number: int, codec: StatisticsCodec) -> DataFile:
    """File `number`, its statistics encoded as our own writers encode them."""
    return DataFile(
        location=f"data/{uuid.UUID(int=number)}.parquet",
        record_count=rows_of(number),
        file_size_in_bytes=1_000_000 + number,
        content_stats=codec.encode(statistics(number)),
        stats_schema=codec.fingerprint,
    )


def create_record(table: TableDefinition, name: TableName = TABLE) -> bytes:
    """The intent that creates the table."""
    text = table.to_json().decode()
    return encode_intent(Intent(intent_id="create", table=name, kind=IntentKind.CREATE, definition=text))


def append_record(numbers: range, codec: StatisticsCodec, table: TableName = TABLE, writer: str = "bench") -> bytes:
    """An intent that adds files `numbers`; the first of them is the writer's sequence."""
    files = tuple(data_file(number, codec) for number in numbers)
    name = f"append-{numbers.start}"
    return encode_intent(
        Intent(
            intent_id=name,
            table=table,
            kind=IntentKind.APPEND,
            add_data_files=files,
            writer_id=writer,
            writer_sequence=numbers.start,
        )
    )
