"""What everything that removes objects does, real or fake."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rootline.adapters.local_object_remover import LocalObjectRemover
from rootline.adapters.memory import MemoryObjectRemover, MemoryObjectStore
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey
from tests.contracts.stores import STORES

_PARAMETERS = [pytest.param(name, marks=pytest.mark.services if name == "s3" else ()) for name in STORES]


class Warehouse(NamedTuple):
    store: ObjectStore
    remover: ObjectRemover


@pytest.fixture(params=[item for item in _PARAMETERS if item.values != ("memory behind no faults",)])
async def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Warehouse]:
    made = _made(request, tmp_path)
    yield made
    await made.remover.close()
    await made.store.close()


def _made(request: pytest.FixtureRequest, folder: Path) -> Warehouse:
    if request.param == "s3":
        service, prefix = request.getfixturevalue("s3_service"), f"test-{uuid.uuid4().hex}"
        return Warehouse(service.store(prefix), service.remover(prefix))
    store = STORES[request.param](request, folder)
    if isinstance(store, MemoryObjectStore):
        return Warehouse(store, MemoryObjectRemover(store))
    return Warehouse(store, LocalObjectRemover(folder / "lake"))


async def put_all(store: ObjectStore, *keys: str) -> None:
    for start in range(0, len(keys), 32):
        some = keys[start : start + 32]
        replies = await asyncio.gather(*(store.put_if_absent(ObjectKey(text), text.encode()) for text in some))
        assert {reply.answer for reply in replies} == {PutStatus.CREATED}


async def inventory(remover: ObjectRemover, prefix: str) -> list[DatedObject]:
    return [item async for page in remover.inventory(prefix) for item in page]


async def test_an_inventory_has_every_object_with_its_length_in_the_order_of_keys(warehouse: Warehouse) -> None:
    await put_all(warehouse.store, "a/b/2", "a/b/10", "a/c", "a/b.x/1", "b/a")
    found = await inventory(warehouse.remover, "a/")
    assert [item.key for item in found] == sorted(["a/b/2", "a/b/10", "a/c", "a/b.x/1"])
    assert [item.length for item in found] == [len(item.key) for item in found]
    assert [item.key for item in found] == list((await warehouse.store.list("a/")).keys)
    assert await inventory(warehouse.remover, "z/") == []


async def test_dates_do_not_go_back(warehouse: Warehouse) -> None:
    for name in ("x/3", "x/1", "x/2"):
        await put_all(warehouse.store, name)
    dates = {item.key: item.last_modified_ms for item in await inventory(warehouse.remover, "x/")}
    assert dates[ObjectKey("x/3")] <= dates[ObjectKey("x/1")] <= dates[ObjectKey("x/2")]


async def test_what_is_removed_is_gone_and_nothing_else(warehouse: Warehouse) -> None:
    await put_all(warehouse.store, "a/b/1", "a/b/2", "a/b/3", "a/c/1")
    await warehouse.remover.remove([ObjectKey("a/b/1"), ObjectKey("a/c/1"), ObjectKey("a/b/3")])
    assert (await warehouse.store.list("a/")).keys == (ObjectKey("a/b/2"),) or list(
        (await warehouse.store.list("a/")).keys
    ) == ["a/b/2"]
    assert await warehouse.store.get(ObjectKey("a/b/1")) is None


async def test_an_encoded_name_is_not_the_name_that_it_encodes(warehouse: Warehouse) -> None:
    names = ["a/x%3F%23=100%25/1", "a/x%253F/1", "a/y/1", "a/%79/1"]
    await put_all(warehouse.store, *names)
    await warehouse.remover.remove([ObjectKey(names[0]), ObjectKey(names[3])])
    assert [item.key for item in await inventory(warehouse.remover, "a/")] == names[1:3]


async def test_removing_again_or_what_was_never_there_is_no_error(warehouse: Warehouse) -> None:
    await put_all(warehouse.store, "a/b/1")
    for _ in range(2):
        await warehouse.remover.remove([ObjectKey("a/b/1"), ObjectKey("a/b/none"), ObjectKey("none/at/all")])
    await warehouse.remover.remove([])
    assert await inventory(warehouse.remover, "a/") == []


async def test_more_than_a_page_is_listed_and_removed(warehouse: Warehouse) -> None:
    names = [f"many/{number:05}" for number in range(1_100)]
    await put_all(warehouse.store, *names)
    assert [item.key for item in await inventory(warehouse.remover, "many/")] == names
    await warehouse.remover.remove([ObjectKey(name) for name in names[1:]])
    assert [item.key for item in await inventory(warehouse.remover, "many/")] == names[:1]


@pytest.mark.parametrize("key", ["../a", "s3://bucket/a", "/etc/passwd", "a/.rootline/b", "a//b", ""])
async def test_no_key_leads_out_of_the_warehouse(warehouse: Warehouse, key: str) -> None:
    await put_all(warehouse.store, "a/b")
    with pytest.raises(Invalid):
        await warehouse.remover.remove([ObjectKey("a/b"), ObjectKey(key)])
    assert await warehouse.store.get(ObjectKey("a/b")) is not None


async def test_a_name_that_was_removed_can_be_made_again(warehouse: Warehouse) -> None:
    await put_all(warehouse.store, "a/b")
    await warehouse.remover.remove([ObjectKey("a/b")])
    await put_all(warehouse.store, "a/b")


async def test_a_folder_is_removed_from_only_while_no_one_commits_to_it(tmp_path: Path) -> None:
    store = STORES["local folder"](None, tmp_path)  # type: ignore[arg-type]
    remover = LocalObjectRemover(tmp_path / "lake")
    await put_all(store, "a/b/1", "a/b/2")
    folder = os.open(tmp_path / "lake" / "a" / "b", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    removing = asyncio.create_task(remover.remove([ObjectKey("a/b/1")]))
    assert [item.key for item in await inventory(LocalObjectRemover(tmp_path / "lake"), "a/")] == ["a/b/1", "a/b/2"]
    assert not removing.done()
    fcntl.flock(folder, fcntl.LOCK_UN)
    await removing
    os.close(folder)
    assert [item.key for item in await inventory(remover, "a/")] == ["a/b/2"]
    await remover.close()
    await store.close()


async def test_names_go_only_while_the_lock_of_their_folder_is_held_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit looks at the first name of the folder under a shared lock, and relies on it until it has its own."""
    store = STORES["local folder"](None, tmp_path)  # type: ignore[arg-type]
    await put_all(store, "a/b/1", "a/b/2", "a/c/1")
    could_commit: list[str] = []
    unlink = os.unlink

    def watched(name: str, *, dir_fd: int) -> None:
        other = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            could_commit.append(name)
        os.close(other)
        unlink(name, dir_fd=dir_fd)

    remover = LocalObjectRemover(tmp_path / "lake")
    monkeypatch.setattr(os, "unlink", watched)
    await remover.remove([ObjectKey("a/b/1"), ObjectKey("a/b/2"), ObjectKey("a/c/1")])
    assert await inventory(remover, "a/") == []
    assert could_commit == []
    await remover.close()
    await store.close()


async def test_a_write_by_spark_leaves_no_folder_once_its_last_file_is_removed(tmp_path: Path) -> None:
    store = STORES["local folder"](None, tmp_path)  # type: ignore[arg-type]
    name, data = "part-00000-5.c000.parquet", tmp_path / "lake" / "demo" / "flights" / "data"
    job, kept = (f"demo/flights/data/spark-write={uuid.UUID(int=at)}" for at in (1, 2))
    dead = [f"{job}/_temporary/0/{attempt}/partition_group=1/{name}" for attempt in ("task_1", "_temporary/attempt_2")]
    other = "demo/flights/data/day=1/2.parquet"
    await put_all(store, *dead, f"{kept}/a/1.parquet", f"{kept}/b/2.parquet", other)
    (tmp_path / "lake" / job / "_temporary/0/_temporary/attempt_3").mkdir()  # it wrote nothing
    remover = LocalObjectRemover(tmp_path / "lake")
    await remover.remove([ObjectKey(key) for key in (*dead, f"{kept}/a/1.parquet", other)])
    assert sorted(str(path.relative_to(data)) for path in data.rglob("*")) == sorted(
        ["day=1", *(f"spark-write={uuid.UUID(int=2)}{more}" for more in ("", "/b", "/b/2.parquet"))]
    )
    await remover.close()
    await store.close()


async def test_an_inventory_of_a_folder_follows_no_link_out_of_it(tmp_path: Path) -> None:
    store = STORES["local folder"](None, tmp_path)  # type: ignore[arg-type]
    await put_all(store, "a/b/1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "2").write_bytes(b"of someone else")
    (tmp_path / "lake" / "a" / "b" / "folder").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "lake" / "a" / "b" / "file").symlink_to(elsewhere / "2")
    remover = LocalObjectRemover(tmp_path / "lake")
    found = await inventory(remover, "a/")
    assert [item.key for item in found] == ["a/b/1", "a/b/file", "a/b/folder"], "the links, and nothing behind them"
    await remover.remove([item.key for item in found])
    assert (elsewhere / "2").read_bytes() == b"of someone else"
    await remover.close()
    await store.close()


async def test_a_folder_that_may_not_be_changed_says_what_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = STORES["local folder"](None, tmp_path)  # type: ignore[arg-type]
    await put_all(store, "a/b/1")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", denied)  # the tests may run as root, whom nothing stops
    remover = LocalObjectRemover(tmp_path / "lake")
    with pytest.raises(Unavailable, match="give the user of the worker the right"):
        await remover.remove([ObjectKey("a/b/1")])
    await remover.close()
    await store.close()
