"""What a folder still has when the power fails at the worst moment."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.ports.object_store import Predecessor, PutStatus
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.stored_objects import store_object
from tests.support.power_cut import PowerCut

ROOT = ObjectKey("demo/flights/metadata/roots/999-0.avro")
LEAF = ObjectKey("demo/flights/metadata/leaves/a.parquet")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    (tmp_path / "disk").mkdir()
    return PowerCut(tmp_path / "disk", monkeypatch)


@pytest.fixture
async def store(disk: PowerCut) -> AsyncIterator[LocalObjectStore]:
    made = LocalObjectStore(disk.top / "new" / "lake")
    yield made
    await made.close()


def leave_unsynced(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")


async def left_after_a_cut(disk: PowerCut, key: ObjectKey) -> bytes | None:
    path = disk.left_in(disk.top.with_name("after-the-cut")) / "new" / "lake" / key
    return path.read_bytes() if path.is_file() else None


@pytest.mark.parametrize("key", [ROOT, LEAF])
async def test_what_was_answered_created_is_there_whole_after_a_power_cut(
    store: LocalObjectStore, disk: PowerCut, key: ObjectKey
) -> None:
    reply = await store.put_if_absent(key, b"body", after=Predecessor(None) if key == ROOT else None)

    assert reply.answer is PutStatus.CREATED
    assert await left_after_a_cut(disk, key) == b"body"


async def test_a_second_object_of_a_folder_is_as_durable_as_the_first(store: LocalObjectStore, disk: PowerCut) -> None:
    await store.put_if_absent(ROOT, b"first", after=Predecessor(None))
    second = ObjectKey("demo/flights/metadata/roots/998-1.avro")
    await store.put_if_absent(second, b"second", after=Predecessor(ROOT))

    assert await left_after_a_cut(disk, second) == b"second"


async def test_a_file_that_another_program_wrote_is_there_whole_after_a_power_cut_once_made_durable(
    store: LocalObjectStore, disk: PowerCut
) -> None:
    """As Spark's writer leaves it: in new folders, renamed, and synced by no one."""
    await store.put_if_absent(ROOT, b"root", after=Predecessor(None))
    files = [ObjectKey(f"demo/flights/data/0b/group={number}/part.parquet") for number in range(2)]
    for key in files:
        leave_unsynced(Path(store.place_of(key)))
    for key in files:
        await store.make_durable(key)
    left = disk.left_in(disk.top.with_name("after-the-cut")) / "new" / "lake"
    assert [(left / key).read_bytes() for key in files] == [b"rows", b"rows"]
    with pytest.raises(Invalid, match="file-missing"):
        await store.make_durable(ObjectKey("demo/flights/data/none.parquet"))


async def test_a_name_is_never_durable_before_its_whole_body_is(
    store: LocalObjectStore, disk: PowerCut, tmp_path: Path
) -> None:
    found: list[bytes] = []

    def look() -> None:
        after = disk.left_in(tmp_path / f"cut-{len(list(tmp_path.iterdir()))}")
        found.extend(path.read_bytes() for path in after.rglob("*.avro"))

    disk.before_sync = look
    await store.put_if_absent(ROOT, b"body", after=Predecessor(None))
    look()

    assert found == [b"body"], "seen once, after the folder's own sync, and whole"


async def test_a_body_is_synced_before_it_has_its_name(
    store: LocalObjectStore, disk: PowerCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may make a name durable by itself at any time, so the body must be durable before there is one."""
    link = os.link
    before: list[bytes] = []

    def watched(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        held = disk.durable_bytes(Path(f"new/lake/{ROOT}"))
        before.append(b"" if held is None else held)

    monkeypatch.setattr(os, "link", watched)
    await store.put_if_absent(ROOT, b"body", after=Predecessor(None))

    assert before == [b"body"]


async def test_a_root_that_was_read_is_there_after_a_power_cut_even_if_its_maker_never_synced_its_name(
    store: LocalObjectStore, disk: PowerCut
) -> None:
    await store.put_if_absent(ROOT, b"first", after=Predecessor(None))
    second = ObjectKey("demo/flights/metadata/roots/998-1.avro")
    disk.fails = {disk.top / "new" / "lake" / "demo/flights/metadata/roots"}
    reply = await store.put_if_absent(second, b"second", after=Predecessor(ROOT))
    disk.fails = set()
    assert reply.answer is PutStatus.NO_ANSWER

    reader = LocalObjectStore(disk.top / "new" / "lake")
    found = await reader.get(second)
    await reader.close()

    assert found is not None
    assert await left_after_a_cut(disk, second) == b"second"


async def test_an_object_that_is_found_stored_is_durable_even_if_its_maker_died_before_it_synced_the_name(
    store: LocalObjectStore, disk: PowerCut
) -> None:
    await store.put_if_absent(LEAF, b"body")
    other = ObjectKey("demo/flights/metadata/leaves/b.parquet")
    disk.fails = {disk.top / "new" / "lake" / "demo/flights/metadata/leaves"}
    assert (await store.put_if_absent(other, b"other")).answer is PutStatus.NO_ANSWER
    disk.fails = set()

    second = LocalObjectStore(disk.top / "new" / "lake")
    assert await store_object(second, other, b"other") == b"other"
    await second.close()

    assert await left_after_a_cut(disk, other) == b"other"


async def test_an_object_whose_name_could_not_be_synced_is_not_confirmed_by_reading_it_back(
    store: LocalObjectStore, disk: PowerCut
) -> None:
    await store.put_if_absent(LEAF, b"body")
    other = ObjectKey("demo/flights/metadata/leaves/b.parquet")
    disk.fails = {disk.top / "new" / "lake" / "demo/flights/metadata/leaves"}

    with pytest.raises(Unavailable, match="a planted failure"):
        await store_object(store, other, b"other")
    disk.fails = set()
    assert await store_object(store, other, b"other") == b"other"

    assert await left_after_a_cut(disk, other) == b"other"
