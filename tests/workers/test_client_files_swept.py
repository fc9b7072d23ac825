"""Files that clients of the REST catalog wrote are swept, their metadata after thirty days, in tables that say so."""

from __future__ import annotations

import uuid

import pytest

from rootline.rest.table_changes import new_definition
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.intent import DataFile, IntentKind
from rootline.schemas.object_keys import OwnKind, key_of, own_kind
from rootline.tree.evolution.changes import DefinitionChanges, SetProperties
from rootline.workers.jobs.job import JobOutcome
from tests.maintenance.table_builder import data_file
from tests.services.s3_service import S3Service
from tests.workers.sweep_world import SweepWorld, tell
from tests.workers.test_removal_on_s3 import told

ONE = str(uuid.UUID(int=0x0198_ABCD_2222_7333_8444_5555_6666_7777))
FILES = {
    "Spark, Flink and Kafka Connect": f"data/00000-7-{ONE}-00001.parquet",
    "Spark, partitioned": f"data/at_day=2026-11-01/name=a%2Fb/00003-7-{ONE}-0-00001.parquet",
    "Java, object storage": f"data/0110/1010/0011/10101010/at_day=2026-11-01/00000-7-{ONE}-00002.orc",
    "PyIceberg": f"data/00000-0-{ONE}.parquet",
    "PyIceberg, object storage": f"data/0101/0110/1001/10110010-00000-0-{ONE}.parquet",
    "Trino": f"data/20261101_120000_00007_abcde-{ONE}.parquet",
    "iceberg-go": f"data/00000-1-{ONE}-00001.parquet",
    "iceberg-rust": f"data/{ONE}-00000.parquet",
    "Java, deletes": f"data/00000-7-{ONE}-00001-deletes.puffin",
}
METADATA = {
    "a list": f"rest/metadata/snap-4611686018427387904-1-{ONE}.avro",
    "a manifest": f"rest/metadata/{ONE}-m0.avro",
    "Flink, a checkpoint": f"rest/metadata/{'0f' * 16}-cbc357ccb763df2852fee8c4fc7d55f2-00000-0-12-00001.avro",
    "Trino, statistics": f"rest/metadata/20261101_120000_00007_abcde-{ONE}.stats",
    "a table": f"rest/metadata/00001-{ONE}.metadata.json",
}
ASTRAY = {
    "iceberg-rust, a list": f"metadata/snap-4611686018427387904-0-{ONE}.avro",
    "DuckDB, a list": f"metadata/snap-4611686018427387904-{ONE}.avro",
    "a manifest": f"metadata/{ONE}-m0.avro",
}
"""Metadata of clients that ignore `write.metadata.path`."""
OF_CLIENTS = "rootline.sweep.client-files"


@pytest.mark.parametrize("location", FILES.values(), ids=FILES)
def test_a_data_file_of_a_client_is_swept_only_where_clients_write(location: str) -> None:
    assert own_kind(location) is None
    assert own_kind(location, of_clients=True) is OwnKind.CLIENT_FILE


@pytest.mark.parametrize("location", METADATA.values(), ids=METADATA)
def test_metadata_of_a_client_is_swept_everywhere(location: str) -> None:
    assert own_kind(location) is own_kind(location, of_clients=True) is OwnKind.CLIENT_METADATA


@pytest.mark.parametrize("location", ASTRAY.values(), ids=ASTRAY)
def test_metadata_in_the_folder_of_our_own_is_swept_where_clients_write(location: str) -> None:
    assert own_kind(location) is None
    assert own_kind(location, of_clients=True) is OwnKind.CLIENT_METADATA


@pytest.mark.parametrize(
    "location",
    [
        "data/part-0.parquet",
        f"data/{ONE}/part-0.parquet",
        f"data/{ONE.upper()}.parquet",
        f"data/00000-0-{ONE}.txt",
        f"data/00000-0-{ONE}",
        f"landing/00000-0-{ONE}.parquet",
        f"00000-0-{ONE}.parquet",
        f"rest/data/00000-0-{ONE}.parquet",
        f"rest/metadata/more/{ONE}-m0.avro",
        f"rest/{ONE}-m0.avro",
        f"metadata/00000-{ONE}.metadata.json",
        f"metadata/adopted/{ONE}-m0.avro",
        f"metadata/{ONE}.avro",
        "metadata/snap-1.avro",
        f"data//00000-0-{ONE}.parquet",
        f"data/00000-0-{ONE}.parquet\n",
    ],
)
def test_other_names_are_of_nobody(location: str) -> None:
    assert own_kind(location, of_clients=True) is None


def test_a_table_that_a_client_creates_is_swept_of_clients_files() -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    made = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    assert new_definition(uuid.UUID(int=7), made).properties[OF_CLIENTS] == "true"
    keeps = {"action": "set-properties", "updates": {OF_CLIENTS: "false"}}
    assert new_definition(uuid.UUID(int=7), [*made, keeps]).properties[OF_CLIENTS] == "false"


async def wrote(world: SweepWorld, *locations: str) -> None:
    for location in locations:
        await world.store.put_if_absent(key_of(world.table, location), location.encode())


def file_at(location: str) -> DataFile:
    return data_file(1).model_copy(update={"location": location})


async def swept_for(world: SweepWorld, days: float) -> None:
    """Let days pass, with a sweep now and then."""
    while days > 0:
        await world.later(min(days, 3))
        days -= 3
        await world.append(f"in use {world.environment.now_ms()}")
        await world.sweep()


async def left_over(world: SweepWorld, *locations: str) -> set[str]:
    return set(locations) & await world.keys()


async def clients_come_and_go(world: SweepWorld) -> None:
    """Files of a commit, of a client that died, and metadata of both."""
    await wrote(world, *FILES.values(), *METADATA.values())
    committed = [FILES["PyIceberg"], FILES["Java, object storage"]]
    await world.committed(world.append_of(*map(file_at, committed)))
    await swept_for(world, 7)
    assert await left_over(world, *FILES.values()) == set(FILES.values()), "a client may still commit these"
    await swept_for(world, 12)
    assert await left_over(world, *FILES.values()) == set(committed)
    assert await left_over(world, *METADATA.values()) == set(METADATA.values()), "Flink may still read these"
    await swept_for(world, 24)
    assert await left_over(world, *METADATA.values()) == set()
    assert await left_over(world, *FILES.values()) == set(committed)
    await world.remove_location(committed[0])
    await world.append("after that")
    await world.expire((await world.head()).header.version)
    world.forget_roots((await world.head()).header.version - 1)
    await swept_for(world, 6)
    assert await left_over(world, *FILES.values()) == {committed[1]}


def test_what_clients_left_goes_and_what_they_committed_stays() -> None:
    tell(clients_come_and_go, **{OF_CLIENTS: "true"})


def test_in_other_tables_only_metadata_of_clients_is_swept() -> None:
    async def story(world: SweepWorld) -> None:
        await wrote(world, *FILES.values(), *METADATA.values())
        await swept_for(world, 38)
        assert await left_over(world, *FILES.values()) == set(FILES.values())
        assert await left_over(world, *METADATA.values()) == set()

    tell(story)


def test_a_longer_age_of_orphans_holds_for_metadata_too() -> None:
    async def story(world: SweepWorld) -> None:
        await wrote(world, *METADATA.values())
        await swept_for(world, 38)
        assert await left_over(world, *METADATA.values()) == set(METADATA.values())
        await swept_for(world, 12)
        assert await left_over(world, *METADATA.values()) == set()

    tell(story, **{OF_CLIENTS: "true", "rootline.sweep.orphan-age-s": str(45 * 24 * 3600)})


def test_a_client_that_commits_after_days_is_refused_rather_than_left_without_its_files() -> None:
    async def story(world: SweepWorld) -> None:
        slow, slower = FILES["PyIceberg"], FILES["Trino"]
        await wrote(world, slower)
        await world.later(3)
        await wrote(world, slow)
        await world.append("a")
        for _ in range(2):
            await world.later(3.1)
            await world.append(f"b {world.environment.now_ms()}")
            await world.sweep()
        assert (await world.decide(world.append_of(file_at(slower)))).code in ("expired", "file-removed")
        assert (await world.decide(world.append_of(file_at(slow)))).code is None
        await swept_for(world, 12)
        assert await left_over(world, slow, slower) == {slow}

    tell(story, **{OF_CLIENTS: "true"})


def test_a_list_of_a_client_that_was_refused_stops_no_sweep_where_clients_write() -> None:
    async def story(world: SweepWorld) -> None:
        await wrote(world, *ASTRAY.values())
        await swept_for(world, 27)
        assert await left_over(world, *ASTRAY.values()) == set(ASTRAY.values())
        await swept_for(world, 9)
        assert await left_over(world, *ASTRAY.values()) == set()

    tell(story, **{OF_CLIENTS: "true"})


@pytest.mark.services
async def test_clients_files_come_and_go_on_s3(s3_service: S3Service) -> None:
    async with told(s3_service) as (world, _):
        old, kept = FILES["Java, object storage"], FILES["Spark, partitioned"]
        await wrote(world, old, kept, *METADATA.values())
        world.date()
        switched = DefinitionChanges(None, (SetProperties({OF_CLIENTS: "true"}),)).to_json()
        await world.committed(world.builder.intent(IntentKind.ALTER, definition=switched))
        await world.committed(world.append_of(file_at(kept)))
        for _ in range(5):
            world.date()
            await world.later(7.2)
            await world.append(f"more {world.environment.now_ms()}")
            await world.sweep()
        world.date()
        await world.later(2)
        assert (await world.sweep()).outcome in (JobOutcome.REMOVED, JobOutcome.COMMITTED)
        assert await left_over(world, old, kept, *METADATA.values()) == {kept}
        assert await world.store.get(ObjectKey(key_of(world.table, kept))) is not None
