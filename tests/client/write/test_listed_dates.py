"""Many files that others uploaded: the client finds out how old they are where the table asks, and only there."""

from __future__ import annotations

import pytest

from rootline.client.new_files import dated_files, oldest_listed
from rootline.client.session import Session
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.stored_objects import StoredFile
from rootline.tree.commit import arrival_rules
from tests.support.opened_sessions import nothing_known
from tests.workers.sweep_world import SweepWorld, tell


async def close() -> None:
    """Keep everything open."""


def session_of(world: SweepWorld) -> Session:
    return Session(world.store, world.log, world.environment, close, nothing_known)


async def uploaded(world: SweepWorld, *names: str) -> list[str]:
    return [(await world.upload(name)).location for name in names]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_rules, "ASKED_MAX", 2)


def test_a_table_that_is_swept_is_told_the_date_of_the_oldest() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("first")
        old = await uploaded(world, "old")
        first_ms = await world.store.stored_ms(f"demo/flights/{old[0]}")  # type: ignore[arg-type]
        await world.later(1)
        listed = old + await uploaded(world, "b", "c", "d")
        session = session_of(world)
        assert await oldest_listed(session, world.table, listed) is None, "the table has no horizon yet"
        await world.later(20)
        await world.sweep()
        assert (await world.head()).header.locations.horizon_ms
        assert await oldest_listed(session, world.table, listed) == first_ms
        assert await oldest_listed(session, world.table, listed[:2]) is None, "the coordinator asks for so few itself"
        with pytest.raises(Invalid, match="absent"):
            await oldest_listed(session, world.table, [*listed, "data/absent.parquet"])

    tell(story)


def test_what_the_session_uploaded_is_not_asked_for() -> None:
    async def story(world: SweepWorld) -> None:
        session = session_of(world)
        names = [f"data/{number}.parquet" for number in range(5)]
        for number, name in enumerate(names):
            session.uploads.note(world.table, name, 100 - number)
        assert await oldest_listed(session, world.table, names) == 96

    tell(story)


def test_an_intent_that_adds_files_of_others_claims_the_date_of_the_oldest() -> None:
    async def story(world: SweepWorld) -> None:
        old = await world.upload("old")
        old_ms = world.environment.now_ms()
        await world.later(1)
        young = await world.upload("young")
        session = session_of(world)
        found = await dated_files(session, world.table, [young.location, old.location, old.location])
        assert {location: file.length for location, file in found.items()} == {old.location: 3, young.location: 5}
        assert found[old.location].stored_ms == old_ms
        assert session.uploads.oldest_of([world.append_of(young, old)]) == old_ms

    tell(story)


@pytest.mark.parametrize("name", ["data/absent.parquet", "data/../other", "data/" + "n" * 300])
def test_a_file_that_is_not_in_the_store_is_named(name: str) -> None:
    async def story(world: SweepWorld) -> None:
        there = await world.upload("there")
        with pytest.raises(Invalid, match="does not exist"):
            await dated_files(session_of(world), world.table, [there.location, name])

    tell(story)


def test_a_file_outside_the_warehouse_has_a_length_and_no_date() -> None:
    async def story(world: SweepWorld) -> None:
        world.store.place(ObjectKey("s3://other/x.parquet"), b"four")
        session = session_of(world)
        found = await dated_files(session, world.table, ["s3://other/x.parquet"])
        assert found == {"s3://other/x.parquet": StoredFile(4, None)}

    tell(story)
