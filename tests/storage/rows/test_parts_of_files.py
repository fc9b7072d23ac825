"""Files that are read in parts or from the disk: the same rows, fewer bytes, the same refusals."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.client.create_drop import build_definition
from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import count_rows, scan_batches, scan_portions, scan_table
from rootline.storage.rows.stored_rows import PartReads
from tests.storage.stored_tables import TABLE, StoredTable, flights_definition, replaced
from tests.storage.stored_tables import flights as flights_rows

IN_PARTS = PartReads(every_column_bytes=0, some_columns_bytes=0)
COLUMNS = 20


class PartsStore:
    """Passes reads on, and remembers which bytes of data files were read."""

    def __init__(self, table: StoredTable) -> None:
        self.inner = table.store
        self.ranges: list[tuple[int, int]] = []
        self.whole: list[str] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.whole.append(key)
        return await self.inner.get(key)

    async def length_of(self, key: ObjectKey) -> int | None:
        return await self.inner.length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        found = await self.inner.part_of(key, start, length)
        self.ranges.append((start, len(found or b"")))
        return found

    @property
    def bytes_read(self) -> int:
        return sum(length for _, length in self.ranges)


def wide_table(rows: int = 40_000, group_rows: int = 10_000) -> StoredTable:
    """One file of twenty columns and some row groups; `c0` counts up."""
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(COLUMNS)])
    table = StoredTable(build_definition(schema, table_uuid=uuid.UUID(int=3)))
    numbers = np.arange(rows)
    values = {f"c{at}": numbers * (7919 * at or 1) % (10**9 + at) for at in range(COLUMNS)}
    table.entries = [stored(table, pa.table(values, schema), group_rows)]
    table.commit()
    return table


def stored(table: StoredTable, rows: pa.Table, group_rows: int) -> ContentEntry:
    """A file of `rows` in row groups of `group_rows`, whose entry has no statistics."""
    given = rows.cast(arrow_schema_of(table.definition.schema))
    (entry,) = table.write(rows.slice(0, 1))
    sink = pa.BufferOutputStream()
    pq.write_table(
        given, sink, row_group_size=group_rows, compression="zstd", store_schema=False, write_page_checksum=True,
        use_dictionary=False,
    )  # fmt: skip
    return replaced(table, entry, sink.getvalue().to_pybytes(), given.num_rows)


def read(
    table: StoredTable,
    where: str | None = None,
    columns: list[str] | None = None,
    *,
    store: object | None = None,
    part_reads: PartReads = IN_PARTS,
) -> pa.Table:
    wanted = RowsWanted.of(table.definition, columns)

    async def rows() -> pa.Table:
        tasks = (await table.plan(where)).tasks()
        source = cast("ObjectStore", store or table.store)
        return await scan_table(source, TABLE, tasks, wanted, part_reads=part_reads)

    return asyncio.run(rows())


def long_table() -> StoredTable:
    """One file of 250,000 rows in row groups of 200,000."""
    rows = pa.table({"id": np.arange(250_000)})
    table = StoredTable(build_definition(rows.schema, table_uuid=uuid.UUID(int=3)))
    table.entries = [stored(table, rows, 200_000)]
    table.commit()
    return table


async def portions(table: StoredTable, limit: int | None = None) -> list[list[pa.RecordBatch]]:
    wanted = RowsWanted.of(table.definition)
    tasks = (await table.plan()).tasks()
    return [portion async for portion in scan_portions(table.store, TABLE, tasks, wanted, limit=limit)]


async def test_a_reader_on_another_thread_gets_many_batches_at_a_time() -> None:
    (portion,) = await portions(long_table())
    assert [batch.num_rows for batch in portion] == [65_536, 54_464, 65_536, 14_464, 50_000]
    assert pa.Table.from_batches(portion).column("id").to_pylist() == list(range(250_000))


@pytest.mark.parametrize("limit", [0, 1, 65_536, 65_537, 120_000, 120_001, 200_001, 249_999, 250_000, 250_001])
async def test_a_limit_may_end_at_any_row_of_a_batch(limit: int) -> None:
    batches = [batch for portion in await portions(long_table(), limit) for batch in portion]
    assert [value for batch in batches for value in batch.column("id").to_pylist()] == list(range(min(limit, 250_000)))
    assert all(batch.num_rows for batch in batches)


def test_of_one_column_of_twenty_at_most_a_tenth_of_the_bytes_is_read() -> None:
    table = wide_table()
    store = PartsStore(table)
    assert read(table, None, ["c7"], store=store) == table.scan(None, ["c7"])
    assert not store.whole
    size = table.entries[0].file_size_in_bytes or 0
    assert store.bytes_read - 64 * 1024 < size / 10
    assert store.bytes_read < size / 6


def test_neighbouring_columns_come_in_one_request() -> None:
    table = wide_table(rows=10_000)
    store = PartsStore(table)
    names = [f"c{at}" for at in range(3, 9)]
    assert read(table, None, names, store=store).num_rows == 10_000
    assert len(store.ranges) == 2  # the footer, and the six columns of the one row group


def test_row_groups_that_cannot_match_are_not_read() -> None:
    table = wide_table(rows=200_000, group_rows=50_000)
    store = PartsStore(table)
    where = "c0 >= 75000 and c0 < 75010"
    found = read(table, where, ["c0", "_pos"], store=store)
    assert found.to_pydict() == {"c0": list(range(75_000, 75_010)), "_pos": list(range(75_000, 75_010))}
    every = PartsStore(table)
    read(table, None, ["c0", "_pos"], store=every)
    assert store.bytes_read - 64 * 1024 < (every.bytes_read - 64 * 1024) / 3


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x != 1.0", [2, 3, 4, 5]),  # NaN differs from every number, whatever the bounds say
        ("x is nan", [2]),
        ("x is not nan", [1, 3, 4, 5]),
        ("x is null", [6, 7]),
        ("x = 0.0", [3]),
        ("x > 4", [5]),
        ("x in (1.0, 5.0)", [1, 5]),
        ("s = 'b'", [2]),
        ("s like 'ä%'", [5]),
        ("s > 'c'", [4, 5]),
        ("s is null", [6, 7]),
        ("d >= '2001-01-01'", [3, 4, 5, 6]),
        ("p > 9.5", [1, 5]),
        ("f < 2", [1, 3, 7]),
    ],
)
@pytest.mark.parametrize("group_rows", [1, 2, 3, 100])
def test_statistics_of_row_groups_never_lose_a_row(where: str, expected: list[int], group_rows: int) -> None:
    days = [f"200{number}-01-01" for number in (0, 0, 1, 1, 2, 3)]
    rows = pa.table(
        {
            "id": list(range(1, 8)),
            "x": [1.0, float("nan"), -0.0, 2.5, 5.0, None, None],
            "s": ["a", "b", "c", "d", "ä", None, None],
            "d": pa.array([*days, None]).cast(pa.date32()),
            "p": pa.array(["10.00", "9.00", "-20.00", "3.00", "99.99", None, "0.00"]).cast(pa.decimal128(9, 2)),
            "f": pa.array([1, 2, -3, 4, 5, float("nan"), 0], pa.float32()),
        }
    )
    table = StoredTable(build_definition(rows.schema, table_uuid=uuid.UUID(int=3)))
    table.entries = [stored(table, rows, group_rows)]
    table.commit()
    assert read(table, where, ["id"]).column(0).to_pylist() == expected
    wanted = RowsWanted.of(table.definition)

    async def counted() -> int:
        return await count_rows(table.store, TABLE, await table.plan(where), wanted)

    assert asyncio.run(counted()) == len(expected)


def test_positions_and_deletes_hold_where_row_groups_are_left_out() -> None:
    table = wide_table(rows=60_000, group_rows=10_000)
    table.entries.append(table.vector(table.entries[0], [0, 24_000, 49_999, 59_999]))
    table.commit()
    found = read(table, "c0 >= 49998", ["_pos", "c0"])
    assert found.column("c0").to_pylist() == [49_998, *range(50_000, 59_999)]
    assert found.column("_pos") == found.column("c0")
    assert read(table, "c0 = 24000", ["c0", "_deleted"]).to_pydict() == {"c0": [24_000], "_deleted": [True]}


def test_damage_in_a_file_read_in_parts_is_named_and_never_answered_from() -> None:
    table = StoredTable(flights_definition())
    table.entries = table.write(flights_rows(*range(1000)))
    table.commit()
    (file,) = table.entries
    key = key_of(TABLE, file.location)
    body = asyncio.run(table.store.get(key))
    assert body is not None
    whole = body.body
    for damaged in (whole[:-1], whole + b"x", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], whole[:100]):
        table.store.place(key, damaged)
        with pytest.raises(Corrupt, match=file.location) as caught:
            read(table)
        assert caught.value.code == "data-file-corrupt"
    table.store.discard(key)
    with pytest.raises(Corrupt, match=file.location) as caught:
        read(table)
    assert caught.value.code == "object-missing"


@pytest.mark.parametrize("bit", [4, 128])
async def test_a_footer_with_a_flipped_bit_is_an_error_or_right_in_parts_too(bit: int) -> None:
    table = StoredTable(
        build_definition(pa.schema([("id", pa.int64()), ("s", pa.string())]), table_uuid=uuid.UUID(int=3))
    )
    rows = pa.table({"id": range(9), "s": [str(at) for at in range(9)]})
    table.entries = [stored(table, rows, 3)]
    table.commit()
    key = key_of(TABLE, table.entries[0].location)
    found = await table.store.get(key)
    assert found is not None
    whole, wanted = found.body, RowsWanted.of(table.definition)
    plans = {where: list((await table.plan(where)).tasks()) for where in (None, "s != 'x'")}
    for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
        table.store.place(key, whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        for where, tasks in plans.items():
            with contextlib.suppress(Corrupt, Invalid):
                rows = (await scan_table(table.store, TABLE, tasks, wanted, part_reads=IN_PARTS)).num_rows
                assert rows == 9 or (where and rows == 0), at  # a column of another id is a column that the file lacks


def test_a_store_that_cuts_an_answer_off_is_asked_again() -> None:
    table = wide_table(rows=2_000)

    class CuttingOff(PartsStore):
        async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
            found = await super().part_of(key, start, length)
            return found[:-1] if found and len(self.ranges) % 2 else found

    assert read(table, None, ["c3"], store=CuttingOff(table)) == table.scan(None, ["c3"])


def test_files_of_a_folder_are_read_from_the_disk(tmp_path: Path) -> None:
    table = wide_table(rows=5_000, group_rows=2_000)
    (entry,) = table.entries
    key = key_of(TABLE, entry.location)
    found = asyncio.run(table.store.get(key))
    assert found is not None
    path = tmp_path / key
    path.parent.mkdir(parents=True)

    def scanned(body: bytes | None) -> pa.Table:
        path.unlink(missing_ok=True)
        if body is not None:
            path.write_bytes(body)

        async def rows() -> pa.Table:
            tasks, store = (await table.plan()).tasks(), LocalObjectStore(tmp_path)
            try:
                return await scan_table(store, TABLE, tasks, RowsWanted.of(table.definition, ["c1"]))
            finally:
                await store.close()

        return asyncio.run(rows())

    assert scanned(found.body) == table.scan(None, ["c1"])
    for body, code in ((None, "object-missing"), (found.body[:-1], "data-file-corrupt"), (b"", "data-file-corrupt")):
        with pytest.raises(RootlineError, match=entry.location) as caught:
            scanned(body)
        assert caught.value.code == code


async def test_a_stream_of_many_files_holds_only_a_few_of_them() -> None:
    table = StoredTable(flights_definition())
    table.entries = [table.write(flights_rows(number))[0] for number in range(12)]
    table.commit()
    store = PartsStore(table)
    wanted = RowsWanted.of(table.definition, ["id"])
    tasks = (await table.plan()).tasks()
    seen: list[int] = []
    async for batch in scan_batches(cast("ObjectStore", store), TABLE, tasks, wanted):
        seen += batch.column(0).to_pylist()
        assert len(set(store.whole)) <= len(seen) + 3
    assert seen == list(range(12))
