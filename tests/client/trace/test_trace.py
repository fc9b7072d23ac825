"""Tracing where verdicts are lost, ledgers are in pages and files in leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_archive import SqliteLogArchive
from rootline.client.trace import Search, Trace, TracedTable
from rootline.client.trace_query import (
    ByFile,
    ByIntent,
    ByWriter,
    Part,
    Sighting,
    TraceQuery,
    Whereabouts,
    names_of,
    part_of,
)
from rootline.ports.intent_log import IntentLog
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import CommitId, Version, snapshot_id_of
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import root_key
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from rootline.tree.parts.header_limits import HeaderLimits
from tests.maintenance.table_builder import TableBuilder, data_file, location_of


class Lake:
    """A table that is committed to by hand, and a log whose verdicts are published by nobody."""

    def __init__(self, log: IntentLog, archive: SqliteLogArchive) -> None:
        self.log = log
        self.archive = archive
        self.builder = TableBuilder()

    async def published(self, intent: Intent) -> Record:
        position = await self.log.publish(intent.table.encode(), encode_intent(intent))
        return Record(position, intent, 1_000)

    async def trace(self, query: TraceQuery) -> list[Sighting]:
        async with aclosing(Trace(self.builder.store, self.archive, query, Search()).sightings()) as sightings:
            return [sighting async for sighting in sightings]

    async def table(self) -> TracedTable:
        found = await TracedTable.find(self.builder.store, self.builder.table)
        assert found is not None
        return found


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    log, archive = SqliteIntentLog(tmp_path), SqliteLogArchive(tmp_path)
    made = Lake(log, archive)
    await made.builder.create()
    yield made
    await archive.close()
    await log.close()


def written(builder: TableBuilder, number: int, writer: str | None = "w") -> Intent:
    return builder.intent(
        IntentKind.APPEND,
        add_data_files=(data_file(number),),
        writer_id=writer,
        writer_sequence=None if writer is None else number,
    )


async def apply_acknowledged(builder: TableBuilder, record: Record) -> None:
    """The next root, made by a coordinator that knows every verdict before it to be published."""
    acknowledged = {(record.position.log, 0): record.position.offset}
    stamp = Stamp(CommitId("0" * 32), "tests", builder.now_ms + 1_000)
    answer = apply_batch(builder.state, builder.table, [record], FetchedObjects(), stamp, acknowledged=acknowledged)
    assert isinstance(answer, Applied)
    await builder.store.put_if_absent(root_key(builder.table, answer.state.header.version), answer.body)
    builder._state = answer.state


async def test_between_a_root_and_its_verdict_the_root_answers(lake: Lake) -> None:
    record = await lake.published(written(lake.builder, 1))
    (pending,) = await lake.trace(ByIntent(record.intent.intent_id))
    (verdict,) = await lake.builder.apply_records([record])

    (found,) = await lake.trace(ByIntent(record.intent.intent_id))

    assert pending.state is Whereabouts.PENDING
    assert (found.state, found.source) == (Whereabouts.COMMITTED, "head")
    assert (found.version, found.snapshot_id, found.sequence_number) == (
        verdict.version,
        verdict.snapshot_id,
        verdict.sequence_number,
    )


async def test_when_the_verdict_is_kept_no_longer_the_ledger_tells_the_version(lake: Lake) -> None:
    first = await lake.published(written(lake.builder, 1))
    refused = await lake.published(lake.builder.removal(9).model_copy(update={"writer_id": "w", "writer_sequence": 7}))
    bare = await lake.published(written(lake.builder, 2, writer=None))
    await lake.builder.apply_records([first])
    await lake.builder.apply_records([refused, bare])
    await apply_acknowledged(lake.builder, await lake.published(written(lake.builder, 3)))

    (committed,) = await lake.trace(ByIntent(first.intent.intent_id))
    (rejected,) = await lake.trace(ByIntent(refused.intent.intent_id))
    (decided,) = await lake.trace(ByIntent(bare.intent.intent_id))

    assert (committed.state, committed.source, committed.version) == (Whereabouts.COMMITTED, "ledger", 1)
    assert (rejected.state, rejected.source, rejected.code) == (Whereabouts.REJECTED, "ledger", "file-not-live")
    assert rejected.dead_letter == f"0/{refused.position.offset}"
    assert (decided.state, decided.version) == (Whereabouts.DECIDED, None)


async def test_a_ledger_that_rests_in_pages_is_read(lake: Lake) -> None:
    lake.builder.limits = HeaderLimits(ledger_bytes=200)
    for number in range(12):
        await lake.builder.committed(written(lake.builder, number, writer=f"writer-{number}"))
    assert lake.builder.state.header.ledger.pages

    for number in (0, 5, 11):
        (found,) = await lake.trace(ByWriter(lake.builder.table, f"writer-{number}", number))
        assert (found.state, found.version) == (Whereabouts.COMMITTED, number + 1)
        assert found.snapshot_id == snapshot_id_of(lake.builder.table_uuid, Version(number + 1))
        assert found.committed_ms == 1_700_000_000_000 + 1_000 * (number + 2)


async def test_a_file_in_a_leaf_is_live_with_the_version_that_added_it(lake: Lake) -> None:
    await lake.builder.append(0)
    await lake.builder.append(1, 2)
    await lake.builder.flush()

    (found,) = await lake.trace(ByFile(location_of(1)))

    assert (found.state, found.version) == (Whereabouts.LIVE, 2)
    assert found.sequence_number == lake.builder.state.header.snapshot.sequence_number - 1


@pytest.mark.parametrize("lived_in", [None, Version(3), Version(5)])
async def test_the_version_that_removed_a_file_is_found_in_leaves_too(lake: Lake, lived_in: Version | None) -> None:
    await lake.builder.append(0, 1)
    await lake.builder.append(2)
    await lake.builder.flush()
    await lake.builder.append(3)
    await lake.builder.append(4)
    await lake.builder.remove(1)
    await lake.builder.append(5)
    await lake.builder.flush()
    table = await lake.table()

    assert await table.removed_in(frozenset({location_of(1)}), lived_in) == 6
    assert await table.moment_of(Version(6)) == 1_700_000_000_000 + 7_000


async def test_the_version_that_removed_a_file_is_found_far_back_when_one_is_known_that_had_it(lake: Lake) -> None:
    await lake.builder.append(0)
    await lake.builder.append(1)
    await lake.builder.remove(0)
    for number in range(100, 180):
        await lake.builder.append(number)
    table = await lake.table()

    assert await table.removed_in(frozenset({location_of(0)}), Version(1)) == 3
    assert await table.removed_in(frozenset({location_of(0)}), None) is None
    assert await table.removed_in(frozenset({"data/never.parquet"}), None) is None


@pytest.mark.parametrize(
    ("location", "others"),
    [
        ("data/a.parquet", set()),
        ("demo/flights/data/a.parquet", {"data/a.parquet"}),
        ("s3://bucket/x/demo/flights/data/a.parquet", {"data/a.parquet"}),
        ("/srv/lake/demo/flights/demo/flights/a.parquet", {"a.parquet"}),
        ("xdemo/flights/data/a.parquet", set()),
        ("demo/flights/", set()),
    ],
)
def test_a_file_is_known_by_its_key_and_its_url_too(location: str, others: set[str]) -> None:
    assert names_of(location, "demo.flights") == {location} | others


def test_what_an_intent_has_to_do_with_a_file() -> None:
    builder = TableBuilder()
    adds, removes = written(builder, 1), builder.intent(IntentKind.APPEND, add_data_files=(data_file(2),))

    assert part_of(ByFile(location_of(1)), adds) is Part.ADDS
    assert part_of(ByFile(location_of(1), builder.table), adds) is Part.ADDS
    assert part_of(ByFile(location_of(1)), removes) is None
    assert part_of(ByIntent(adds.intent_id), adds) is Part.IS_IT
    assert part_of(ByWriter(builder.table, "w", 1), adds) is Part.IS_IT
    assert part_of(ByWriter(builder.table, "w", 2), adds) is None
