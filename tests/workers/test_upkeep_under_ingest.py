"""Conversions and data compactions while several writers replace rows all the time, through a real lake on a folder."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from rootline.client.data_file_writer import WrittenFile, write_files, write_rewritten_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.tree.state.table_state import TableState
from rootline.workers.jobs.job import JobOutcome, JobReport
from rootline.workers.kinds import COMPACT_DATA, CONVERT, FLUSH, MaintenanceKind, Rights, maintain
from tests.support.loaded_tables import load_table

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("part", pa.string())])
TABLE = TableName("demo.upserts")
WRITERS, IDS, ROUNDS = 3, 4, 8
PATIENCE_S = 300.0
"""Writers go on for so long, at most, until a worker has committed beside them."""


def run(lake: Lake, kind: MaintenanceKind, *, dry_run: bool = False) -> JobReport:
    async def work(session: Session) -> JobReport:
        rights = Rights(write_rows=write_rewritten_files)
        return await maintain(
            session.store, session.log, session.environment, TABLE, kind, dry_run=dry_run, rights=rights
        )

    return lake.holder.run(work)


def state_of(lake: Lake) -> TableState:
    async def load(session: Session) -> TableState:
        found = await load_table(session.store, TABLE)
        assert found is not None
        return found

    return lake.holder.run(load)


def definition_of(lake: Lake) -> TableDefinition:
    return state_of(lake).definition


def rows(*pairs: tuple[int, int]) -> pa.Table:
    """Rows of (id, value), each in the partition of its id."""
    return pa.table(
        {
            "id": [one for one, _ in pairs],
            "value": [two for _, two in pairs],
            "part": [str(one % 2) for one, _ in pairs],
        },
        SCHEMA,
    )


def store_files(lake: Lake, files: Iterable[WrittenFile]) -> None:
    async def put(session: Session) -> None:
        for file in files:
            await session.store.put_if_absent(f"demo/upserts/{file.data_file.location}", file.body)  # type: ignore[arg-type]

    lake.holder.run(put)


def upsert(lake: Lake, definition: TableDefinition, one: int, value: int) -> None:
    """Replace the row with an id, whatever it is now, as a stream of changes does: by an equality delete."""
    fresh = iter(uuid.uuid4, None)
    added = write_files(rows((one, value)), definition, fresh)
    deleted = write_files(rows((one, 0)), definition, fresh)
    store_files(lake, [*added, *deleted])
    fields = [file.data_file.model_dump(exclude={"equality_ids"}) for file in deleted]
    intent = Intent(
        intent_id=str(uuid.uuid4()),
        table=TABLE,
        kind=IntentKind.ROW_DELTA,
        schema_id=definition.current_schema_id,
        add_data_files=tuple(file.data_file for file in added),
        add_equality_deletes=tuple(EqualityDeleteFile(**held, equality_ids=(1,)) for held in fields),
    )
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict(timeout_s=60)
    assert verdict.kind is VerdictKind.COMMITTED, verdict.message


def held(table: TableHandle) -> dict[int, int]:
    """Id → value; no id is there twice."""
    found = table.scan().to_arrow()
    pairs = list(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))
    assert len({one for one, _ in pairs}) == len(pairs), Counter(one for one, _ in pairs).most_common(3)
    return dict(pairs)


@pytest.fixture
def lake(tmp_path: Path) -> Iterable[Lake]:
    with connect(str(tmp_path)) as opened:
        yield opened


def findings(lake: Lake) -> list[str]:
    async def check(session: Session) -> list[str]:
        return [str(finding) async for finding in check_table(session.store, TABLE, data_files=DataFiles.FOOTERS)]

    return lake.holder.run(check)


def test_no_row_is_lost_and_none_comes_back_while_workers_convert_and_compact_under_constant_upserts(
    lake: Lake,
) -> None:
    table = lake.create_table(TABLE, SCHEMA, partition_by=["part"])
    definition = definition_of(lake)
    everything = range(WRITERS * IDS)
    table.append(rows(*((one, -1) for one in everything)))
    expected = dict.fromkeys(everything, -1)
    outcomes: Counter[tuple[str, JobOutcome]] = Counter()
    done = Event()

    latest_s = time.monotonic() + PATIENCE_S

    def has_upkeep() -> bool:
        return all(outcomes[kind.name, JobOutcome.COMMITTED] for kind in (CONVERT, COMPACT_DATA))

    def write(number: int) -> None:
        for turn in count():
            if turn >= ROUNDS and (has_upkeep() or time.monotonic() > latest_s):
                return
            one = number * IDS + turn % IDS
            upsert(lake, definition, one, turn)
            expected[one] = turn
            if turn % 4 == 3 and turn < ROUNDS:
                table.delete_where(f"id = {one}")
                upsert(lake, definition, one, turn + 100)
                expected[one] = turn + 100

    def work() -> None:
        worked_on = 0
        while not done.is_set():
            if (head := table.head().version) < worked_on + 4:  # as a worker, which looks now and then
                continue
            worked_on = head
            for kind in (CONVERT, COMPACT_DATA, FLUSH):
                outcomes[kind.name, run(lake, kind).outcome] += 1

    def read() -> int:
        looks = 0
        while not done.is_set():
            assert len(held(table)) >= len(everything) - WRITERS  # a writer may be between its delete and its upsert
            looks += 1
        return looks

    with ThreadPoolExecutor(WRITERS + 2) as pool:
        working, reading = pool.submit(work), pool.submit(read)
        writing = [pool.submit(write, number) for number in range(WRITERS)]
        try:
            for one in writing:
                one.result()
        finally:
            done.set()
        working.result()
        assert reading.result()
    assert held(table) == expected
    assert outcomes["convert", JobOutcome.COMMITTED]
    assert outcomes["compact-data", JobOutcome.COMMITTED]
    for kind in (CONVERT, COMPACT_DATA):
        while run(lake, kind).outcome is not JobOutcome.NOTHING_DUE:
            pass
    assert held(table) == expected
    totals = state_of(lake).header.totals
    assert (totals.equality_deletes, totals.vectors, totals.data_files) == (0, 0, 2)
    assert totals.rows == len(expected)
    assert findings(lake) == []


def test_rows_keep_their_ids_and_no_change_feed_shows_a_conversion_or_a_compaction(lake: Lake) -> None:
    table = lake.create_table(TABLE, SCHEMA)
    definition = definition_of(lake)
    for one in range(6):
        table.append(rows((one, one)))
    upsert(lake, definition, 3, 33)
    before = table.scan(columns=["id", "value", "_row_id"]).to_arrow().sort_by("id")
    version = table.head().version
    assert run(lake, CONVERT, dry_run=True).outcome is JobOutcome.PLANNED
    assert run(lake, CONVERT).outcome is JobOutcome.COMMITTED
    assert run(lake, COMPACT_DATA).outcome is JobOutcome.COMMITTED
    assert table.scan(columns=["id", "value", "_row_id"]).to_arrow().sort_by("id") == before
    assert not table.changes(from_version=version)
    state = state_of(lake)
    assert [place.content_type for place in state.live.rows] == [ContentType.DATA]
    assert state.header.totals.rows == 6
    assert findings(lake) == []


def test_deletes_that_are_too_large_are_left_and_a_table_can_turn_both_off(lake: Lake) -> None:
    table = lake.create_table(TABLE, SCHEMA, properties={"rootline.convert.files": "1"})
    definition = definition_of(lake)
    for one in range(2):
        table.append(rows((one, one), (one + 5, one)))
    upsert(lake, definition, 3, 33)
    assert run(lake, CONVERT).outcome is JobOutcome.NOTHING_DUE
    with table.alter() as change:
        change.set_properties({"rootline.convert.files": "2"})
    assert run(lake, CONVERT).outcome is JobOutcome.COMMITTED
    assert held(table) == {0: 0, 5: 0, 1: 1, 6: 1, 3: 33}


def test_thresholds_that_cannot_be_used_are_refused_before_there_is_a_table(lake: Lake) -> None:
    for name, value in {
        "rootline.convert.equality-deletes": "yes",
        "rootline.convert.deletes": "many",
        "rootline.convert.files": "1000000",
        "rootline.compact.data": "1",
        "rootline.compact.data-target-bytes": "-1",
        "rootline.compact.data-deleted-percent": "101",
    }.items():
        with pytest.raises(Invalid, match=name.replace(".", r"\.")):
            lake.create_table("demo.wrong", SCHEMA, properties={name: value})
