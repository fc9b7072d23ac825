"""Deletes converted for an export leave the rows that a scan finds, are made once, and are what the formats ask for."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from rootline.catalog.converted_deletes import FILES_AT_ONCE, ConvertedDeletes, files_to_merge
from rootline.catalog.format_version import FormatVersion
from rootline.catalog.known_deletes import KnownDeletes, folder_of, listed_prefix
from rootline.catalog.position_delete_file import encode_position_deletes
from rootline.ports.object_store import ObjectStore, PutAnswer, PutReply
from rootline.schemas.content_entry import ContentEntry, ContentType, DeletionVector, FileFormat, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from rootline.schemas.puffin_codec import VectorBlob, decode_puffin, encode_puffin, spread_puffin
from rootline.storage.delete_file_reader import read_positions
from rootline.storage.vector_reader import vector_in
from rootline.testing.faulty_object_store import Fault, FaultyObjectStore, scripted
from tests.storage.random_deletes import STEPS, RandomTable, random_table
from tests.storage.stored_deletes import at, equality_delete, position_delete
from tests.storage.stored_tables import TABLE, CountingStore, StoredTable, flights, flights_definition, ids_of

V2, V3 = FormatVersion.V2, FormatVersion.V3
BASE = "s3://bucket/wh/test/rows/"
FORMATS = pytest.mark.parametrize("format_version", [V2, V3])


def absolute(location: str) -> str:
    return BASE + location


def converter(
    table: StoredTable, format_version: FormatVersion, known: KnownDeletes | None = None, store: Any = None
) -> ConvertedDeletes:
    return ConvertedDeletes(
        table.store if store is None else store,
        TABLE,
        table.definition,
        format_version,
        absolute,
        KnownDeletes(format_version) if known is None else known,
    )


async def stored_names(table: StoredTable, format_version: FormatVersion) -> list[str]:
    keys = (await table.store.list(listed_prefix(TABLE, format_version))).keys
    return [key.rpartition("/")[2] for key in keys]


async def body_of(table: StoredTable, entry: ContentEntry) -> bytes:
    found = await table.store.get(key_of(TABLE, entry.location))
    assert found is not None
    return found.body


async def deleted_rows(table: StoredTable, entry: ContentEntry) -> list[int]:
    """Of the one data file that a converted delete is of, as our readers read it."""
    body = await body_of(table, entry)
    assert len(body) == entry.file_size_in_bytes
    if entry.deletion_vector is not None:
        return list(vector_in(body, entry))
    found = read_positions(body, entry)
    assert list(found) == [absolute(entry.referenced_file or "")]
    return list(found[absolute(entry.referenced_file or "")])


# the same rows


async def converted(made: RandomTable, format_version: FormatVersion) -> None:
    """Put converted deletes in the place of all that an export in this format does not hand on."""
    deletes, plan = converter(made.table, format_version), await made.table.plan()
    tasks = files_to_merge(plan, format_version)
    merged = {task.location for task in tasks}
    in_root = [entry for entry in made.in_root if entry.content_type is not ContentType.EQUALITY_DELETE]
    own = [entry for entry in in_root if entry.content_type is not ContentType.POSITION_DELETE]
    vectors = [entry for entry in in_root if entry.deletion_vector is not None and entry.referenced_file not in merged]
    new = [*await deletes.vectors(vectors), *await deletes.merged(tasks)]
    made.in_root = [*own, *(entry for entry in new if entry.deletion_vector is not None)]
    made.in_delete_leaf += [entry for entry in new if entry.deletion_vector is None]
    assert not any(entry.content_type is ContentType.EQUALITY_DELETE for entry in made.in_root)
    per_file = [entry.referenced_file for entry in new]
    assert len(per_file) == len(set(per_file))


@given(steps=STEPS, is_partitioned=st.booleans(), format_version=st.sampled_from([V2, V3]))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
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
    [entry] = await converter(table, format_version).merged(tasks)
    data = table.entries[0]
    assert await deleted_rows(table, entry) == [0, 1, 2, 9]
    assert (entry.content_type, entry.record_count, entry.referenced_file) == (
        ContentType.POSITION_DELETE,
        4,
        data.location,
    )
    assert entry.version_info == VersionInfo(Status.EXISTING, 99, 4, 4)
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
    [entry] = await converter(table, V3, store=store).merged(files_to_merge(plan, V3))
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
    assert await converter(table, format_version, known).merged(tasks) == []
    assert len(tasks) == len(known) == 1
    for cold in (known, KnownDeletes.listed(format_version, await stored_names(table, format_version))):
        assert await converter(table, format_version, cold, NoStore()).merged(tasks) == []


@FORMATS
async def test_what_is_known_is_neither_read_nor_written(table: StoredTable, format_version: FormatVersion) -> None:
    tasks, vectors = files_to_merge(await table.plan(), format_version), [table.entries[1]]
    known = KnownDeletes(format_version)
    first = converter(table, format_version, known)
    made = (await first.merged(tasks), await first.vectors(vectors))
    listed = KnownDeletes.listed(format_version, (await table.store.list(listed_prefix(TABLE, format_version))).keys)
    for again in (known, listed):
        deletes = converter(table, format_version, again, NoStore())
        assert (await deletes.merged(tasks), await deletes.vectors(vectors)) == made


@FORMATS
async def test_two_exporters_write_the_same_objects(table: StoredTable, format_version: FormatVersion) -> None:
    tasks, vectors = files_to_merge(await table.plan(), format_version), [table.entries[1]]
    made = []
    for _ in range(2):
        deletes = converter(table, format_version)
        entries = [*await deletes.merged(tasks), *await deletes.vectors(vectors)]
        made.append([(entry, await body_of(table, entry)) for entry in entries])
        for entry in entries:
            table.store.discard(key_of(TABLE, entry.location))
    assert made[0] == made[1]


@FORMATS
async def test_every_input_and_the_base_are_in_the_name(table: StoredTable, format_version: FormatVersion) -> None:
    [task] = files_to_merge(await table.plan(), format_version)
    [entry] = await converter(table, format_version).merged([task])
    moved = ConvertedDeletes(
        table.store, TABLE, table.definition, format_version, "s3://new/{}".format, KnownDeletes(format_version)
    )
    [elsewhere] = await moved.merged([task])
    data, vector, equality, leaf = table.entries
    other = equality_delete(table, pa.table({"id": [16]}), [1], 5, partition_of=data)
    table.entries = [data, vector, equality, other, leaf]
    table.commit()
    [more] = await converter(table, format_version).merged(files_to_merge(await table.plan(), format_version))
    assert len({entry.location, elsewhere.location, more.location}) == 3
    assert await deleted_rows(table, more) == [0, 1, 2, 8, 9]
    assert more.version_info.sequence_number == 5


# vectors


async def test_v2_makes_a_position_delete_file_of_each_vector_and_keeps_its_numbers_and_partition() -> None:
    table = StoredTable(flights_definition("carrier"))
    files = [at(entry, 2) for entry in table.write(flights(*range(20)))]
    vectors = [at(table.vector(file, [n, 9]), 3 + n) for n, file in enumerate(files)]
    found = await converter(table, V2).vectors([files[0], *vectors])
    assert found[0] is files[0]
    for entry, vector, rows in zip(found[1:], vectors, ([0, 9], [1, 9]), strict=True):
        assert await deleted_rows(table, entry) == rows
        assert (
            replace(
                entry,
                location=vector.location,
                file_format=FileFormat.PUFFIN,
                file_size_in_bytes=vector.file_size_in_bytes,
                deletion_vector=vector.deletion_vector,
            )
            == vector
        )
        assert (entry.file_format, entry.deletion_vector, len(entry.content_stats)) == (FileFormat.PARQUET, None, 1)


async def test_a_position_delete_file_is_as_the_specification_says(table: StoredTable) -> None:
    [entry] = await converter(table, V2).vectors([table.entries[1]])
    file = pq.ParquetFile(pa.BufferReader(await body_of(table, entry)))
    columns = [file.schema.column(at) for at in range(2)]
    assert [(column.name, column.max_definition_level) for column in columns] == [("file_path", 0), ("pos", 0)]
    ids = [field.metadata[b"PARQUET:field_id"] for field in file.schema_arrow]
    assert ids == [b"2147483546", b"2147483545"]
    statistics = file.metadata.row_group(0).column(0).statistics
    assert statistics.min == statistics.max == absolute(table.entries[0].location)
    assert file.read().to_pydict() == {"file_path": [absolute(table.entries[0].location)] * 2, "pos": [0, 1]}


def test_position_delete_files_of_many_rows_stay_sorted_across_row_groups() -> None:
    rows = BitMap64(random.Random(6).sample(range(2**40), 5_000))
    rows |= BitMap64(range(2**41, 2**41 + 1_100_000))
    body = encode_position_deletes("s3://b/" + "long" * 300, rows)
    assert pq.read_schema(pa.BufferReader(body)).field("file_path").type == pa.string()
    file = pq.ParquetFile(pa.BufferReader(body), read_dictionary=["file_path"])
    assert file.metadata.num_row_groups == 2
    found = file.read()
    assert found.column("pos").to_pylist() == list(rows)
    paths = {path for chunk in found.column("file_path").chunks for path in chunk.dictionary.to_pylist()}
    assert paths == {"s3://b/" + "long" * 300}
    assert file.metadata.row_group(1).column(0).statistics.max == "s3://b/" + "long" * 300


async def test_v3_copies_a_whole_puffin_file_once_with_absolute_names_and_gaps() -> None:
    table = StoredTable(flights_definition())
    [one], [other] = table.write(flights(*range(10))), table.write(flights(*range(10)))
    puffin = encode_puffin([VectorBlob(one.location, BitMap64([1])), VectorBlob(other.location, BitMap64([2, 3]))])
    location = "metadata/vectors/both.puffin"
    table.store.place(key_of(TABLE, location), puffin.body)
    vectors = [
        replace(
            table.vector(file, rows),
            location=location,
            file_size_in_bytes=len(puffin.body),
            deletion_vector=replace(
                table.vector(file, rows).deletion_vector, offset=place.offset, size_in_bytes=place.size
            ),
        )
        for file, rows, place in zip((one, other), ([1], [2, 3]), puffin.places, strict=True)
    ]
    found = await converter(table, V3).vectors(vectors)
    assert len({entry.location for entry in found}) == len(await stored_names(table, V3)) == 1
    body = await body_of(table, found[0])
    blobs = decode_puffin(body, name=found[0].location)
    assert [(blob.referenced_data_file, list(blob.vector)) for blob in blobs] == [
        (absolute(one.location), [1]),
        (absolute(other.location), [2, 3]),
    ]
    assert [await deleted_rows(table, entry) for entry in found] == [[1], [2, 3]]
    first, second = (entry.deletion_vector for entry in found)
    assert first == vectors[0].deletion_vector
    assert second is not None
    assert (second.offset or 0) > puffin.places[1].offset
    assert [blob.place.offset for blob in blobs] == [4, second.offset]


async def test_v3_leaves_the_first_vector_of_an_adopted_file_where_it_is_and_copies_the_others(
    table: StoredTable,
) -> None:
    names = ["s3://old/data/x.parquet", "s3://old/data/y.parquet"]
    puffin = encode_puffin([VectorBlob(name, BitMap64([at])) for at, name in enumerate(names)])
    table.store.place(ObjectKey("s3://old/data/v.puffin"), puffin.body)
    first, second = (
        replace(
            table.entries[1],
            location="s3://old/data/v.puffin",
            referenced_file=name,
            record_count=1,
            file_size_in_bytes=len(puffin.body),
            deletion_vector=DeletionVector(place.offset, place.size),
        )
        for name, place in zip(names, puffin.places, strict=True)
    )
    own = replace(table.entries[1], referenced_file=names[0])
    found = await converter(table, V3).vectors([first, second, own])
    assert [found[0], found[2]] == [first, own]
    assert await deleted_rows(table, found[1]) == [1]
    blobs = decode_puffin(await body_of(table, found[1]), name=found[1].location)
    assert [blob.referenced_data_file for blob in blobs] == names


async def test_names_by_an_url_of_the_table_itself_become_those_that_engines_see(table: StoredTable) -> None:
    vector = table.entries[1]
    body = await body_of(table, vector)
    resized = spread_puffin(body, "file:///elsewhere/test/rows/{}".format, name="v.puffin")
    table.store.place(key_of(TABLE, vector.location), resized)
    [entry] = await converter(table, V3).vectors([replace(vector, file_size_in_bytes=len(resized))])
    [blob] = decode_puffin(await body_of(table, entry), name=entry.location)
    assert blob.referenced_data_file == absolute(table.entries[0].location)


@FORMATS
async def test_a_damaged_vector_is_never_converted(table: StoredTable, format_version: FormatVersion) -> None:
    vector = table.entries[1]
    body = bytearray(await body_of(table, vector))
    body[12] ^= 1
    table.store.place(key_of(TABLE, vector.location), bytes(body))
    with pytest.raises(Corrupt, match="CRC"):
        await converter(table, format_version).vectors([vector])
    with pytest.raises(Corrupt):
        await converter(table, format_version).merged(files_to_merge(await table.plan(), format_version))
    assert await stored_names(table, format_version) == []


# the store


class NoStore:
    """Fails the test that asks it."""

    async def get(self, key: ObjectKey) -> None:
        raise AssertionError(f"{key} was read")

    async def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        raise AssertionError(f"{key} was written")


@FORMATS
async def test_a_put_that_is_not_answered_is_looked_up(table: StoredTable, format_version: FormatVersion) -> None:
    tasks = files_to_merge(await table.plan(), format_version)
    for fault, is_stored in ((Fault.LOST_REPLY, True), (Fault.LOST_REQUEST, False)):
        store: ObjectStore = FaultyObjectStore(table.store, scripted([fault]))
        deletes = converter(table, format_version, store=store)
        if is_stored:
            [entry] = await deletes.merged(tasks)
            table.store.discard(key_of(TABLE, entry.location))
        else:
            with pytest.raises(Unavailable):
                await deletes.merged(tasks)


async def test_only_a_few_data_files_are_held_at_once_and_each_delete_file_is_read_once() -> None:
    table = StoredTable(flights_definition())
    files = [at(table.write(flights(*range(10)))[0], 1) for _ in range(20)]
    equality = equality_delete(table, pa.table({"id": [3]}), [1], 2)
    table.entries = [*files, equality]
    table.commit()

    class Store(CountingStore):
        async def put_if_absent(self, key: ObjectKey, body: bytes) -> PutReply:
            assert (await table.store.put_if_absent(key, body)).answer is PutAnswer.CREATED
            return PutReply(PutAnswer.CREATED)

    store = Store(table)
    made = await converter(table, V3, store=store).merged(files_to_merge(await table.plan(), V3))
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
