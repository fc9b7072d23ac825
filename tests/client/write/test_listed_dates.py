"""Many files that others uploaded: the client finds out how old they are where the table asks, and only there."""

from __future__ import annotations

import pytest

from rootline.client.new_files import oldest_listed
from rootline.client.session import Session
from rootline.schemas.errors import Invalid
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
