"""Versions that expire while someone reads them: a clear answer, never other rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.time_travel import PointInTime, read_head, read_root_at
from rootline.client.version_history import read_changes, read_history
from rootline.ports.object_store import Listing, StoredObject
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.intent import IntentKind, VersionReference
from rootline.schemas.object_keys import root_key
from tests.support.loaded_tables import load_table
from tests.workers.test_expiry_job import Lake, told


class Interrupted(MemoryObjectStore):
    """The store of a lake, where something happens just before the first GET of one key."""

    def __init__(self, lake: Lake, key: ObjectKey, then: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._lake, self._key, self._then = lake, key, then
        self.happened = False

    async def get(self, key: ObjectKey) -> StoredObject | None:
        if key == self._key and not self.happened:
            self.happened = True
            await self._then()
        return await self._lake.store.get(key)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        return await self._lake.store.list(prefix, limit=limit)


def test_a_head_that_expires_between_its_listing_and_its_reading_is_looked_for_again() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(3)
        key = root_key(lake.table, (await lake.header()).version)

        async def expire() -> None:
            await lake.append(20)
            await lake.job(now=True).run(lake.table)
            lake.store.discard(key)

        store = Interrupted(lake, key, expire)
        newest = await read_head(store, lake.table)
        assert store.happened
        assert newest.header == await lake.header()
        again = Interrupted(lake, root_key(lake.table, newest.header.version), lambda: lake.append(1))
        state = await load_table(again, lake.table)
        assert state is not None
        assert state.header.version == newest.header.version  # it is still there: that is the version that was found

    told(story, Lake(dated=False))


def test_a_head_that_is_missing_is_damage_while_there_is_no_newer_one() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(3)
        lake.store.place(root_key(lake.table, Version(9)), b"x")
        store = Interrupted(lake, root_key(lake.table, Version(9)), lambda: _discard(lake))
        with pytest.raises(Corrupt, match="does not exist"):
            await read_head(store, lake.table)

    async def _discard(lake: Lake) -> None:
        lake.store.discard(root_key(lake.table, Version(3)))
        lake.store.discard(root_key(lake.table, Version(9)))

    told(story, Lake(dated=False))


@pytest.mark.parametrize("version", [12, 13])
def test_a_version_that_expires_under_its_reader_is_unknown_and_left_out_of_a_history(version: int) -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        key = root_key(lake.table, Version(version))
        known = await read_root_at(lake.store, lake.table, PointInTime(version=version))

        async def expire() -> None:
            await lake.append(20)
            await lake.job(now=True).run(lake.table)
            assert await lake.store.get(key) is None

        with pytest.raises(Invalid) as refused:
            await read_root_at(Interrupted(lake, key, expire), lake.table, PointInTime(version=version))
        assert (refused.value.code, "has expired" in refused.value.message) == ("version-unknown", True)
        moment = known.header.snapshot.timestamp_ms
        with pytest.raises(Invalid) as refused:
            await read_root_at(lake.store, lake.table, PointInTime(timestamp=moment))
        assert refused.value.code == "version-unknown"

    told(story, Lake(dated=False))


def test_a_moment_that_is_still_kept_is_found_although_older_versions_expire_meanwhile() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        known = await read_root_at(lake.store, lake.table, PointInTime(version=18))
        moment = PointInTime(timestamp=known.header.snapshot.timestamp_ms)

        async def expire() -> None:
            await lake.append(5)
            await lake.job(now=True).run(lake.table)
            assert await lake.store.get(root_key(lake.table, Version(10))) is None

        store = Interrupted(lake, root_key(lake.table, Version(10)), expire)
        assert (await read_root_at(store, lake.table, moment)).header.version == 18
        assert store.happened

    told(story, Lake(dated=False))


def test_a_tag_that_moves_while_its_version_expires_is_read_where_it_is_now() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        await lake.tag("release", 5)

        async def move_and_expire() -> None:
            moved = VersionReference(version=19, tag="release", seen_version=5)
            await lake.commit(lake.builder.intent(IntentKind.TAG, ref=moved))
            await lake.append(5)
            await lake.job(now=True).run(lake.table)
            assert await lake.store.get(root_key(lake.table, Version(5))) is None

        store = Interrupted(lake, root_key(lake.table, Version(5)), move_and_expire)
        assert (await read_root_at(store, lake.table, PointInTime(tag="release"))).header.version == 19
        assert store.happened

    told(story, Lake(dated=False))


def test_a_history_leaves_out_what_expires_while_it_is_read() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        before = (await lake.header()).version

        async def expire() -> None:
            await lake.append(20)
            await lake.job(now=True).run(lake.table)

        store = Interrupted(lake, root_key(lake.table, Version(before - 1)), expire)
        found = [header.version for header in await read_history(store, lake.table, 100)]
        assert found[0] == before
        assert before - 1 not in found
        assert before - 2 in found  # it had been asked for at the same time
        assert found == sorted(found, reverse=True)

    told(story, Lake(dated=False))


def test_changes_from_a_version_that_expires_meanwhile_are_refused_by_name() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)

        async def expire() -> None:
            await lake.append(20)
            await lake.job(now=True).run(lake.table)

        store = Interrupted(lake, root_key(lake.table, Version(9)), expire)
        with pytest.raises(Invalid) as refused:
            await read_changes(store, lake.table, 8, 12)
        assert refused.value.code == "version-unknown"

    told(story, Lake(dated=False))
