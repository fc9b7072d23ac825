"""Deletes converted for an export leave the rows that a scan finds, are made once, and are what the formats ask for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.catalog.converted_deletes import FILES_AT_ONCE, ConvertedDeletes, files_to_merge
from rootline.catalog.export_keys import FormatVersion, KnownDeletes, folder_of, listed_prefix
from rootline.ports.object_store import ObjectStore, PutReply, PutStatus
from rootline.schemas.content_entry import ContentType, FileFormat, Status, VersionInfo
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, SnapshotId
from rootline.schemas.object_keys import key_of
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from tests.catalog.converting import (
    FORMATS,
    V2,
    V3,
    NoStore,
    absolute,
    body_of,
    converter,
    deleted_rows,
    stored_names,
)
from tests.storage.random_deletes import STEPS, RandomTable, random_table
from tests.storage.stored_deletes import at, equality_delete, position_delete
from tests.storage.stored_tables import TABLE, CountingStore, StoredTable, flights, flights_definition, ids_of
from tests.support.examples import examples

OWN = SnapshotId(1)
"""The snapshot that is exported."""


# the same rows


async def converted(made: RandomTable, format_version: FormatVersion) -> None:
    """Put converted deletes in the place of all that an export in this format does not hand on."""
    deletes, plan = converter(made.table, format_version), await made.table.plan()
    tasks = files_to_merge(plan, format_version)
    merged = {task.location for task in tasks}
    in_root = [entry for entry in made.in_root if entry.content_type is not ContentType.EQUALITY_DELETE]
    own = [entry for entry in in_root if entry.content_type is not ContentType.POSITION_DELETE]
    vectors = [entry for entry in in_root if entry.deletion_vector is not None and entry.referenced_file not in merged]
    new = [*await deletes.vectors(vectors), *await deletes.merged(tasks, OWN)]
    made.in_root = [*own, *(entry for entry in new if entry.deletion_vector is not None)]
    made.in_delete_leaf += [entry for entry in new if entry.deletion_vector is None]
    assert not any(entry.content_type is ContentType.EQUALITY_DELETE for entry in made.in_root)
    per_file = [entry.referenced_file for entry in new]
    assert len(per_file) == len(set(per_file))


@given(steps=STEPS, is_partitioned=st.booleans(), format_version=st.sampled_from([V2, V3]))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_converted_deletes_alone_leave_the_rows_that_a_dictionary_would_keep(
    steps: list[tuple[Any, ...]], is_partitioned: bool, format_version: FormatVersion
) -> None:
    made = random_table(steps, is_partitioned)
    made.commit()
    asyncio.run(converted(made, format_version))
    made.commit()
    found = made.table.scan(None, ["_file", "_pos"]).to_pylist()
    assert {(row["_file"], row["_pos"]) for row in found} == set(made.rows)
    plan = asyncio.run(made.table.plan())
    assert not any(task.deletes.equality for task in plan)
    if format_version is V3:
        assert all(len(task.vectors) <= 1 for task in plan)


# one data file, everything that deletes rows of it


@pytest.fixture
def table() -> StoredTable:
    """Rows 0 to 9 in partition UA: a vector of rows 0 and 1, position deletes of 1 and 2, equality deletes of id 9."""
    table = StoredTable(flights_definition("carrier"))
    (data,) = table.write(flights(*range(0, 20, 2)))
    data = at(data, 1)
    vector = at(table.vector(data, [0, 1]), 3)
    positions = position_delete(table, [(data.location, 1), (absolute(data.location), 2)], data, 2)
    equality = at(equality_delete(table, pa.table({"id": [18, 77]}), [1], 4, partition_of=data), 4)
    equality = replace(equality, version_info=VersionInfo(Status.ADDED, 99, 4, 4))
    table.entries = [data, vector, equality, table.adopted_leaf([positions])]
    table.sequence_number = 4
    table.commit()
    return table


@FORMATS
async def test_one_delete_stands_for_all_of_a_data_file(table: StoredTable, format_version: FormatVersion) -> None:
    tasks = files_to_merge(await table.plan(), format_version)
    [entry] = await converter(table, format_version).merged(tasks, OWN)
    data = table.entries[0]
    assert await deleted_rows(table, entry) == [0, 1, 2, 9]
    assert (entry.content_type, entry.record_count, entry.referenced_file) == (
        ContentType.POSITION_DELETE,
        4,
        data.location,
    )
    assert entry.version_info == VersionInfo(Status.EXISTING, 99, 4, 4)
    [entry] = await converter(table, format_version).merged(tasks, SnapshotId(99))
    assert entry.version_info == VersionInfo(Status.ADDED, 99, 4, 4), "in the snapshot that adds one of them"
    assert entry.partition_spec_id == data.partition_spec_id
    assert [(item.lower_bound, item.upper_bound) for item in entry.content_stats.values()] == [("UA", "UA")]
    assert entry.location.startswith(folder_of(format_version))
    assert entry.file_format is (FileFormat.PARQUET if format_version is V2 else FileFormat.PUFFIN)


async def test_a_vector_beside_position_deletes_is_merged_in_v3_only(table: StoredTable) -> None:
    data, vector, _, leaf = table.entries
    table.entries = [data, vector, leaf]
    table.commit()
    plan = await table.plan()
    assert files_to_merge(plan, V2) == []
    store = CountingStore(table)
    store.put_if_absent = table.store.put_if_absent  # type: ignore[attr-defined]
    [entry] = await converter(table, V3, store=store).merged(files_to_merge(plan, V3), OWN)
    assert await deleted_rows(table, entry) == [0, 1, 2]
    assert key_of(TABLE, data.location) not in store.read  # its rows decide nothing
    table.entries = [data, leaf]
    table.commit()
    assert files_to_merge(await table.plan(), V3) == []


@FORMATS
async def test_files_that_lose_no_row_get_none_and_are_not_looked_at_again(format_version: FormatVersion) -> None:
    table = StoredTable(flights_definition())
    (data,) = table.write(flights(*range(10)))
    table.entries = [at(data, 1), equality_delete(table, pa.table({"delay": [0.25]}), [3], 2)]
    table.commit()
    tasks = files_to_merge(await table.plan(), format_version)
    known = KnownDeletes(format_version)
    assert await converter(table, format_version, known).merged(tasks, OWN) == []
    assert len(tasks) == len(known) == 1
    for cold in (known, KnownDeletes.listed(format_version, await stored_names(table, format_version))):
        assert await converter(table, format_version, cold, NoStore()).merged(tasks, OWN) == []


@FORMATS
async def test_what_is_known_is_neither_read_nor_written(table: StoredTable, format_version: FormatVersion) -> None:
    tasks, vectors = files_to_merge(await table.plan(), format_version), [table.entries[1]]
    known = KnownDeletes(format_version)
    first = converter(table, format_version, known)
    made = (await first.merged(tasks, OWN), await first.vectors(vectors))
    listed = KnownDeletes.listed(format_version, (await table.store.list(listed_prefix(TABLE, format_version))).keys)
    for again in (known, listed):
        deletes = converter(table, format_version, again, NoStore())
        assert (await deletes.merged(tasks, OWN), await deletes.vectors(vectors)) == made


@FORMATS
async def test_two_exporters_write_the_same_objects(table: StoredTable, format_version: FormatVersion) -> None:
    tasks, vectors = files_to_merge(await table.plan(), format_version), [table.entries[1]]
    made = []
    for _ in range(2):
        deletes = converter(table, format_version)
        entries = [*await deletes.merged(tasks, OWN), *await deletes.vectors(vectors)]
        made.append([(entry, await body_of(table, entry)) for entry in entries])
        for entry in entries:
            table.store.discard(key_of(TABLE, entry.location))
    assert made[0] == made[1]


@FORMATS
async def test_every_input_and_the_base_are_in_the_name(table: StoredTable, format_version: FormatVersion) -> None:
    [task] = files_to_merge(await table.plan(), format_version)
    [entry] = await converter(table, format_version).merged([task], OWN)
    moved = ConvertedDeletes(
        table.store, TABLE, table.definition, format_version, "s3://new/{}".format, KnownDeletes(format_version)
    )
    [elsewhere] = await moved.merged([task], OWN)
    data, vector, equality, leaf = table.entries
    other = equality_delete(table, pa.table({"id": [16]}), [1], 5, partition_of=data)
    table.entries = [data, vector, equality, other, leaf]
    table.commit()
    [more] = await converter(table, format_version).merged(files_to_merge(await table.plan(), format_version), OWN)
    assert len({entry.location, elsewhere.location, more.location}) == 3
    assert await deleted_rows(table, more) == [0, 1, 2, 8, 9]
    assert more.version_info.sequence_number == 5


# the store


@FORMATS
async def test_a_put_that_is_not_answered_is_looked_up(table: StoredTable, format_version: FormatVersion) -> None:
    tasks = files_to_merge(await table.plan(), format_version)
    for fault, is_stored in ((Fault.LOST_REPLY, True), (Fault.LOST_REQUEST, False)):
        store: ObjectStore = FaultyObjectStore(table.store, scripted([fault]))
        deletes = converter(table, format_version, store=store)
        if is_stored:
            [entry] = await deletes.merged(tasks, OWN)
            table.store.discard(key_of(TABLE, entry.location))
        else:
            with pytest.raises(Unavailable):
                await deletes.merged(tasks, OWN)


async def test_only_a_few_data_files_are_held_at_once_and_each_delete_file_is_read_once() -> None:
    table = StoredTable(flights_definition())
    files = [at(table.write(flights(*range(10)))[0], 1) for _ in range(20)]
    equality = equality_delete(table, pa.table({"id": [3]}), [1], 2)
    table.entries = [*files, equality]
    table.commit()

    class Store(CountingStore):
        async def put_if_absent(self, key: ObjectKey, body: bytes) -> PutReply:
            assert (await table.store.put_if_absent(key, body)).answer is PutStatus.CREATED
            return PutReply(PutStatus.CREATED)

    store = Store(table)
    made = await converter(table, V3, store=store).merged(files_to_merge(await table.plan(), V3), OWN)
    assert [entry.referenced_file for entry in made] == [file.location for file in files]
    assert store.read.count(key_of(TABLE, equality.location)) == 1
    assert store.most_at_once <= FILES_AT_ONCE + 1


def test_the_converted_table_reads_the_same(table: StoredTable) -> None:
    before = ids_of(table.scan())
    assert before == [6, 8, 10, 12, 14, 16]


def test_foreign_objects_in_the_folder_are_passed_over() -> None:
    names = ["x.parquet", "a/b", f"{'0' * 32}.parquet", f"{'0' * 32}-01.parquet", f"{'g' * 32}-1-2.parquet", ""]
    assert len(KnownDeletes.listed(V2, names)) == 0
    twice = [f"ns/t/export/v2/deletes/{'a' * 32}-{size}-2.parquet" for size in (7, 5)]
    found = KnownDeletes.listed(V2, twice).find("a" * 32)
    assert found is not None
    assert found.numbers == (5, 2)
