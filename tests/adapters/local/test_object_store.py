"""What a folder does beyond the contract: durability, locks, leftovers, full disks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.ports.object_store import Predecessor, PutStatus
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey

ROOTS = "demo/flights/metadata/roots"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalObjectStore]:
    made = LocalObjectStore(tmp_path)
    yield made
    await made.close()


def root(number: int) -> ObjectKey:
    return ObjectKey(f"{ROOTS}/{1000 - number:04}-{number}.avro")


def leftover(folder: Path, *, age_s: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".rootline-0123456789abcdef.tmp"
    path.write_bytes(b"half a ro")
    os.utime(path, (time.time() - age_s, time.time() - age_s))
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "link to a pipe"])
async def test_what_is_no_regular_file_is_no_object_and_blocks_no_thread(
    store: LocalObjectStore, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "ns/t/data/x"
    path.parent.mkdir(parents=True)
    pipe = put_in_place(path, kind)
    key, absolute = ObjectKey("ns/t/data/x"), ObjectKey(str(path))
    try:
        async with asyncio.timeout(20):  # for a store that waits; this one does not
            for name in (key, absolute):
                assert await store.get(name) is None
                assert await store.length_of(name) is None
                assert await store.part_of(name, 0, 10) is None
                assert await store.path_of(name) is None
            assert await store.stored_ms(key) is None
            with pytest.raises(Invalid) as refused:
                await store.make_durable(key)
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # frees a thread that waits at it
    assert refused.value.code == "file-missing"
    assert "is not a regular file" in refused.value.message


def put_in_place(path: Path, kind: str) -> Path:
    """Something that is no regular file; returns a pipe, which is `path` itself or perhaps behind it."""
    pipe = path if kind == "pipe" else path.with_name("pipe")
    os.mkfifo(pipe)
    match kind:
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.relpath(path))
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "link to a pipe":
            path.symlink_to(pipe)
    return pipe


async def test_a_put_leaves_nothing_but_the_object(store: LocalObjectStore, tmp_path: Path) -> None:
    await store.put_if_absent(root(0), b"body")
    await store.put_if_absent(root(0), b"other")

    assert [path.name for path in (tmp_path / ROOTS).iterdir()] == ["1000-0.avro"]


async def test_what_a_crash_left_is_no_object_and_no_head(store: LocalObjectStore, tmp_path: Path) -> None:
    leftover(tmp_path / ROOTS, age_s=10)

    reply = await store.put_if_absent(root(0), b"body", after=Predecessor(None))

    assert reply.answer is PutStatus.CREATED
    assert list((await store.list("")).keys) == [root(0)]


async def test_what_a_crash_left_is_removed_after_an_hour_and_not_before(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    young = leftover(tmp_path / "a", age_s=3_000)
    old = leftover(tmp_path / "b", age_s=4_000)

    await store.put_if_absent(ObjectKey("a/object"), b"")
    await store.put_if_absent(ObjectKey("b/object"), b"")

    assert young.exists()
    assert not old.exists()


async def test_a_put_waits_for_a_deletion_that_holds_the_folder(store: LocalObjectStore, tmp_path: Path) -> None:
    await store.put_if_absent(root(0), b"body")
    deleting = os.open(tmp_path / ROOTS, os.O_RDONLY)
    fcntl.flock(deleting, fcntl.LOCK_EX)
    put = asyncio.ensure_future(store.put_if_absent(root(1), b"body", after=Predecessor(root(0))))
    done, _ = await asyncio.wait([put], timeout=0.05)
    assert not done

    (tmp_path / root(0)).unlink()
    os.close(deleting)

    assert (await put).answer is PutStatus.STALE


async def test_puts_do_not_shut_each_other_out(store: LocalObjectStore, tmp_path: Path) -> None:
    await store.put_if_absent(root(0), b"body")
    other = os.open(tmp_path / ROOTS, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)

    reply = await store.put_if_absent(root(1), b"body", after=Predecessor(root(0)))

    os.close(other)
    assert reply.answer is PutStatus.CREATED


async def test_a_version_that_was_deleted_is_not_made_again(store: LocalObjectStore, tmp_path: Path) -> None:
    slow = LocalObjectStore(tmp_path)
    await slow.put_if_absent(root(0), b"body", after=Predecessor(None))
    for number in (1, 2, 3):
        await store.put_if_absent(root(number), b"body", after=Predecessor(root(number - 1)))
    (tmp_path / root(0)).unlink()
    (tmp_path / root(1)).unlink()

    reply = await slow.put_if_absent(root(1), b"late", after=Predecessor(root(0)))

    await slow.close()
    assert reply.answer is PutStatus.STALE
    assert await store.get(root(1)) is None


async def test_two_stores_on_one_folder_take_turns(store: LocalObjectStore, tmp_path: Path) -> None:
    other = LocalObjectStore(tmp_path)
    previous = None
    for number in range(20):
        turn = (store, other)[number % 2]
        reply = await turn.put_if_absent(root(number), b"body", after=Predecessor(previous))
        assert reply.answer is PutStatus.CREATED
        previous = root(number)
    await other.close()


async def test_looking_into_a_warehouse_that_does_not_exist_makes_nothing(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "some/typing/error")

    assert list((await store.list("")).keys) == []
    assert list(await store.folders("")) == []
    assert await store.get(root(0)) is None
    assert not (tmp_path / "some").exists()
    assert (await store.put_if_absent(root(0), b"now")).answer is PutStatus.CREATED
    await store.close()


async def test_a_folder_that_vanished_is_made_again(store: LocalObjectStore, tmp_path: Path) -> None:
    await store.put_if_absent(ObjectKey("a/b/one"), b"")
    (tmp_path / "a/b/one").unlink()
    (tmp_path / "a/b").rmdir()

    assert (await store.put_if_absent(ObjectKey("a/b/two"), b"")).answer is PutStatus.CREATED


async def test_a_file_in_the_way_of_a_folder_is_named(store: LocalObjectStore, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises(Unavailable, match="a/b"):
        await store.put_if_absent(ObjectKey("a/b"), b"")
    assert await store.get(ObjectKey("a/b")) is None


RACER = """
import asyncio, sys
from pathlib import Path
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.ports.object_store import PutStatus

async def main() -> None:
    store = LocalObjectStore(Path(sys.argv[1]))
    sys.stdin.readline()
    for number in range(100):
        reply = await store.put_if_absent(f"race/{number:03}", sys.argv[2].encode() * 1000)
        if reply.answer is PutStatus.CREATED:
            print(number)
    await store.close()

asyncio.run(main())
"""


def race(folder: Path, names: str) -> list[list[int]]:
    """The numbers of the objects that each process says it made."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(folder), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [[int(line) for line in racer.communicate(timeout=60)[0].split()] for racer in racers]


async def test_processes_that_race_have_one_winner_each_time(store: LocalObjectStore, tmp_path: Path) -> None:
    won = await asyncio.to_thread(race, tmp_path, "abc")

    assert sorted(number for numbers in won for number in numbers) == list(range(100))
    for name, numbers in zip("abc", won, strict=True):
        for number in numbers:
            found = await store.get(ObjectKey(f"race/{number:03}"))
            assert found is not None
            assert found.body == name.encode() * 1000


def test_a_disk_that_is_full_is_said_to_be_and_leaves_nothing(tmp_path: Path) -> None:
    # the system's limit on file sizes fails a write half way, as a full disk does
    script = """
import asyncio, resource, sys
from pathlib import Path
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.schemas.errors import Unavailable

async def main() -> None:
    store = LocalObjectStore(Path(sys.argv[1]))
    await store.put_if_absent("t/small", b"fits")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        await store.put_if_absent("t/large", b"x" * 200_000)
    except Unavailable as error:
        print(error.code, error.message)
    print(list((await store.list("")).keys), sorted(path.name for path in Path(sys.argv[1], "t").iterdir()))
    await store.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )

    refusal, left = done.stdout.splitlines()
    assert (
        refusal == f"store-unavailable {tmp_path}/t/large: File too large: raise the limit of file sizes (`ulimit -f`)"
    )
    assert left == "['t/small'] ['small']"


def test_a_writer_that_is_killed_leaves_whole_objects_only(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from rootline.adapters.local_object_store import LocalObjectStore

async def main() -> None:
    store = LocalObjectStore(Path(sys.argv[1]))
    number = 0
    while True:
        await store.put_if_absent(f"t/{number}", b"x" * 50_000)
        number += 1
        print(number, flush=True)

asyncio.run(main())
"""
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout as output:
        acknowledged = 0
        while acknowledged < 20:
            acknowledged = int(output.readline())
        writer.kill()
        acknowledged = max([acknowledged, *(int(line) for line in output.read().split("\n")[:-1])])
    writer.wait(timeout=30)

    async def look() -> list[int]:
        store = LocalObjectStore(tmp_path)
        keys = (await store.list("t/")).keys
        sizes = [len(found.body) for key in keys if (found := await store.get(key)) is not None]
        await store.close()
        return sizes

    sizes = asyncio.run(look())
    assert set(sizes) == {50_000}
    assert len(sizes) in (acknowledged, acknowledged + 1)
