"""What every object store does, real or fake."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.ports.object_store import LongObject, ObjectStore, Predecessor, PutStatus, StoredObject
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.stored_objects import get_up_to, parts_of
from tests.contracts.stores import STORES

_PARAMETERS = [pytest.param(name, marks=pytest.mark.services if name == "s3" else ()) for name in STORES]


@pytest.fixture(params=_PARAMETERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made = STORES[request.param](request, tmp_path)
    yield made
    await made.close()


def key(text: str) -> ObjectKey:
    return ObjectKey(text)


async def put_all(store: ObjectStore, *keys: str) -> None:
    for start in range(0, len(keys), 32):
        replies = await asyncio.gather(*(store.put_if_absent(key(text), b"x") for text in keys[start : start + 32]))
        assert {reply.answer for reply in replies} == {PutStatus.CREATED}


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_an_object_is_read_back_as_it_was_written(store: ObjectStore, size: int) -> None:
    body = os.urandom(size)

    reply = await store.put_if_absent(key("a/b/object"), body)
    found = await store.get(key("a/b/object"))

    assert reply.answer is PutStatus.CREATED
    assert found is not None
    assert (found.key, found.body) == ("a/b/object", body)


async def test_an_object_that_was_never_written_is_none(store: ObjectStore) -> None:
    await put_all(store, "a/b")

    assert await store.get(key("a/c")) is None
    assert await store.get(key("z/z/z")) is None


async def test_an_object_has_one_date_and_one_that_was_never_written_has_none(store: ObjectStore) -> None:
    key = ObjectKey("demo/flights/data/dated.parquet")
    assert await store.stored_ms(key) is None
    assert await store.stored_ms(ObjectKey("demo/flights/data")) is None
    await store.put_if_absent(key, b"x")
    stored_ms = await store.stored_ms(key)
    assert stored_ms is not None
    found = await store.get(key)
    assert found is not None
    assert found.last_modified_ms in (None, stored_ms)
    await store.put_if_absent(key, b"y")
    assert await store.stored_ms(key) == stored_ms


async def test_a_part_of_an_object_and_its_length_are_those_of_the_whole(store: ObjectStore) -> None:
    parts, body = parts_of(store), os.urandom(100_000)
    await store.put_if_absent(key("a/b/object"), body)
    await store.put_if_absent(key("a/b/empty"), b"")

    assert [await parts.length_of(key(name)) for name in ("a/b/object", "a/b/empty", "a/b/none")] == [100_000, 0, None]
    for start, length in ((0, 1), (0, 100_000), (99_990, 100), (50_000, 7)):
        assert await parts.part_of(key("a/b/object"), start, length) == body[start : start + length]
    assert await parts.part_of(key("a/b/object"), 100_000, 5) == b""
    assert await parts.part_of(key("a/b/empty"), 0, 5) == b""
    assert await parts.part_of(key("a/b/none"), 0, 5) is None


async def test_an_object_is_read_up_to_a_size_and_not_beyond(store: ObjectStore) -> None:
    await store.put_if_absent(key("a/b/object"), bytes(100_000))
    assert await get_up_to(store, key("a/b/none"), 5) is None
    whole = await get_up_to(store, key("a/b/object"), 100_000)
    assert isinstance(whole, StoredObject)
    assert whole.body == bytes(100_000)
    for _ in range(30):  # more than connections are kept
        assert await get_up_to(store, key("a/b/object"), 99_999) == LongObject(100_000)
    assert await store.get(key("a/b/object")) is not None


async def test_a_second_put_is_refused_and_changes_nothing(store: ObjectStore) -> None:
    await store.put_if_absent(key("a/b"), b"first")

    again = await store.put_if_absent(key("a/b"), b"second")

    assert again.answer is PutStatus.EXISTS
    found = await store.get(key("a/b"))
    assert found is not None
    assert found.body == b"first"


async def test_of_many_writers_at_once_one_wins_and_its_object_is_there(store: ObjectStore) -> None:
    bodies = [f"writer {number}".encode() * 500 for number in range(32)]

    replies = await asyncio.gather(*(store.put_if_absent(key("race/object"), body) for body in bodies))

    winners = [body for body, reply in zip(bodies, replies, strict=True) if reply.answer is PutStatus.CREATED]
    found = await store.get(key("race/object"))
    assert found is not None
    assert winners == [found.body]


async def test_a_cancelled_put_leaves_the_whole_object_or_none(store: ObjectStore) -> None:
    body = os.urandom(500_000)
    put = asyncio.ensure_future(store.put_if_absent(key("a/cancelled"), body))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)

    found = await store.get(key("a/cancelled"))

    assert found is None or found.body == body


async def test_a_listing_yields_the_keys_under_a_prefix_in_ascending_order(store: ObjectStore) -> None:
    await put_all(store, "t/b", "t/a/2", "t/a-b/1", "t/a/10", "u/x", "tt/y", "t/0")

    assert list((await store.list("t/")).keys) == ["t/0", "t/a-b/1", "t/a/10", "t/a/2", "t/b"]
    assert list((await store.list("")).keys) == ["t/0", "t/a-b/1", "t/a/10", "t/a/2", "t/b", "tt/y", "u/x"]
    assert list((await store.list("nothing/here/")).keys) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_a_listing_with_a_limit_is_the_beginning_of_the_whole(store: ObjectStore, limit: int) -> None:
    await put_all(store, "t/b", "t/a/2", "t/a-b/1", "t/a/10", "t/c")

    every = list((await store.list("t/")).keys)

    assert list((await store.list("t/", limit=limit)).keys) == every[:limit]


async def test_a_listing_goes_on_past_a_thousand_keys(store: ObjectStore) -> None:
    names = [f"many/{number:05}" for number in range(1_010)]
    await put_all(store, *names)

    assert list((await store.list("many/")).keys) == names
    assert list((await store.list("many/", limit=1_005)).keys) == names[:1_005]


async def test_folders_are_named_one_level_deep_and_in_order(store: ObjectStore) -> None:
    await put_all(store, "sales/orders/x/1", "sales/orders/y", "sales-old/a/b", "demo/flights/z", "top")

    assert list(await store.folders("")) == ["demo/", "sales-old/", "sales/"]
    assert list(await store.folders("sales/")) == ["sales/orders/"]
    assert list(await store.folders("nowhere/")) == []


@pytest.mark.parametrize(
    "name",
    [
        "data/a b+c=d&e%20f%2Fg.parquet",
        "data/x%3F%23=100%25/100%",
        "data/größe/日本.parquet",
        "data/.hidden",
        "a~!@#$^()",
    ],
)
async def test_unusual_keys_come_back_as_they_were(store: ObjectStore, name: str) -> None:
    await put_all(store, name)

    found = await store.get(key(name))

    assert found is not None
    assert list((await store.list("")).keys) == [name]


@pytest.mark.parametrize(
    "bad",
    ["", "a/", "a//b", "../a", "a/../b", "a/./b", ".", "a\x00b", "a\nb", "a\\b", ".rootline/log.sqlite",
     "a/.rootline-x.tmp", "a" * 300, "a/" * 600 + "a"],
)  # fmt: skip
async def test_keys_that_leave_the_warehouse_or_are_reserved_are_refused(store: ObjectStore, bad: str) -> None:
    with pytest.raises(Invalid) as put:
        await store.put_if_absent(key(bad), b"")
    with pytest.raises(Invalid) as get:
        await store.get(key(bad))

    assert (put.value.code, get.value.code) == ("location-invalid", "location-invalid")


@pytest.mark.parametrize("bad", ["a", "/", "../", "a/../", "a//"])
async def test_prefixes_that_are_no_folders_are_refused(store: ObjectStore, bad: str) -> None:
    with pytest.raises(Invalid):
        await store.list(bad)
    with pytest.raises(Invalid):
        await store.folders(bad)


async def test_a_store_dates_its_answers_or_checks_the_predecessor(store: ObjectStore) -> None:
    await put_all(store, "t/metadata/roots/7", "t/metadata/roots/5", "t/metadata/roots/.other/1")
    late = key("t/metadata/roots/6")

    reply = await store.put_if_absent(late, b"late", after=Predecessor(key("t/metadata/roots/7")))

    if reply.store_ms is None:
        assert reply.answer is PutStatus.STALE
        assert await store.get(late) is None
    else:
        assert reply.answer is PutStatus.CREATED
        found = await store.get(late)
        assert found is not None
        assert found.store_ms is not None
        assert found.last_modified_ms is not None
        assert reply.store_ms <= found.store_ms
        assert (await store.list("t/")).store_ms is not None


async def test_the_right_predecessor_lets_the_next_object_in(store: ObjectStore) -> None:
    first = await store.put_if_absent(key("t/roots/9"), b"0", after=Predecessor(None))
    second = await store.put_if_absent(key("t/roots/8"), b"1", after=Predecessor(key("t/roots/9")))
    third = await store.put_if_absent(key("t/roots/7"), b"2", after=Predecessor(key("t/roots/8")))
    again = await store.put_if_absent(key("t/roots/7"), b"3", after=Predecessor(key("t/roots/8")))

    answers = [reply.answer for reply in (first, second, third, again)]
    assert answers == [PutStatus.CREATED, PutStatus.CREATED, PutStatus.CREATED, PutStatus.EXISTS]


async def test_a_store_may_be_closed_twice(store: ObjectStore) -> None:
    await put_all(store, "a/b")

    await store.close()
    await store.close()
