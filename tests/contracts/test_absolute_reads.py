"""What every object store does with absolute keys: the locations of files outside the warehouse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey
from tests.services.s3_service import S3Service

_NAMES = ["plain.parquet", "a b/c=1 2.parquet", "day=2020%2F01%2F01/x.parquet", "tag=%E2%82%AC/\u20ac.parquet"]
_STORES = ["memory", "local folder", pytest.param("s3", marks=pytest.mark.services)]


@dataclass
class Elsewhere:
    """A store, and how files come to be outside its warehouse. `forms`: what stands before a name in a location."""

    store: ObjectStore
    others: ObjectStore | None
    forms: tuple[str, ...]
    foreign: tuple[str, ...]

    async def put(self, name: str, body: bytes) -> None:
        if self.others is not None:
            await self.others.put_if_absent(ObjectKey(name), body)
        elif isinstance(self.store, MemoryObjectStore):
            for form in self.forms:
                self.store.place(ObjectKey(form + name), body)


@pytest.fixture(params=_STORES)
async def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Elsewhere]:
    made = _made(request, tmp_path)
    yield made
    await made.store.close()
    if made.others is not None:
        await made.others.close()


def _made(request: pytest.FixtureRequest, folder: Path) -> Elsewhere:
    if request.param == "memory":
        return Elsewhere(
            MemoryObjectStore(), None, ("s3://old/", "file:///old/", "/old/"), ("hdfs://host/x", "gs://b/x")
        )
    if request.param == "local folder":
        forms = tuple(f"{form}{folder}/old/" for form in ("", "file:", "file://", "file://localhost"))
        foreign = ("hdfs://host/x", "gs://b/x", "s3://bucket/x", "file://host/x", "file:x", "/a/../x", "/a\x00")
        return Elsewhere(LocalObjectStore(folder / "lake"), LocalObjectStore(folder / "old"), forms, foreign)
    service: S3Service = request.getfixturevalue("s3_service")
    others = service.store()
    forms = tuple(f"{scheme}://{service.bucket}/{others._prefix}" for scheme in ("s3", "s3a", "s3n"))
    return Elsewhere(service.store(), others, forms, ("hdfs://host/x", "gs://b/x", "/x", "file:///x", "s3://bucket"))


@pytest.mark.parametrize("name", _NAMES)
async def test_a_file_outside_the_warehouse_is_read_under_its_own_name(elsewhere: Elsewhere, name: str) -> None:
    await elsewhere.put(name, b"rows")

    for form in elsewhere.forms:
        key = ObjectKey(form + name)
        found = await elsewhere.store.get(key)
        assert found is not None, key
        assert (found.key, found.body) == (key, b"rows")


async def test_nothing_in_an_absolute_location_is_decoded(elsewhere: Elsewhere) -> None:
    await elsewhere.put("a b", b"rows")
    await elsewhere.put("a?b#c", b"other rows")

    for form in elsewhere.forms:
        assert await elsewhere.store.get(ObjectKey(f"{form}a%20b")) is None
        found = await elsewhere.store.get(ObjectKey(f"{form}a?b#c"))
        assert found is not None
        assert found.body == b"other rows"


async def test_a_file_outside_that_is_absent_is_none(elsewhere: Elsewhere) -> None:
    for form in elsewhere.forms:
        assert await elsewhere.store.get(ObjectKey(f"{form}nothing/here")) is None


async def test_files_outside_are_never_written_or_listed(elsewhere: Elsewhere) -> None:
    await elsewhere.put("x", b"rows")

    for form in elsewhere.forms:
        with pytest.raises(Invalid, match="object key"):
            await elsewhere.store.put_if_absent(ObjectKey(f"{form}x"), b"mine")
        with pytest.raises(Invalid):
            await elsewhere.store.list(form)
        with pytest.raises(Invalid):
            await elsewhere.store.folders(form)
    assert not (await elsewhere.store.list("")).keys


async def test_a_location_of_another_kind_of_store_is_refused_with_what_to_do(elsewhere: Elsewhere) -> None:
    for location in elsewhere.foreign:
        with pytest.raises(Invalid) as refused:
            await elsewhere.store.get(ObjectKey(location))
        assert refused.value.code == "file-unreadable"
        assert location.partition("\x00")[0] in refused.value.message


async def test_what_may_not_be_read_is_refused_and_not_waited_for(elsewhere: Elsewhere) -> None:
    await elsewhere.put("x", b"rows")
    for form in elsewhere.forms:
        if isinstance(elsewhere.store, S3ObjectStore):
            location = form.partition("://")[0] + "://no-such-bucket-of-anyone/x"
        elif isinstance(elsewhere.store, LocalObjectStore):
            location = form + "n" * 300
        else:
            continue
        with pytest.raises(Invalid) as refused:
            await elsewhere.store.get(ObjectKey(location))
        assert refused.value.code == "file-unreadable"
        assert location in refused.value.message


async def test_a_file_of_the_warehouse_itself_is_read_by_its_absolute_location_too(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "lake")
    await store.put_if_absent(ObjectKey("ns/t/data/x"), b"rows")

    found = await store.get(ObjectKey(f"file://{tmp_path}/lake/ns/t/data/x"))

    assert found is not None
    assert found.body == b"rows"
    await store.close()


async def test_devices_and_folders_are_no_files(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "lake")

    assert await store.get(ObjectKey("/dev/zero")) is None
    assert await store.get(ObjectKey(str(tmp_path))) is None
    await store.close()


async def test_with_a_limit_nothing_outside_it_is_read_however_it_is_spelled(tmp_path: Path) -> None:
    for name in ("old/x", "older/x", "secret"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"rows")
    store = LocalObjectStore(tmp_path / "lake", (f"file://{tmp_path}/old", "s3://bucket/other"))

    for form in ("", "file:", "file://", "FILE://localhost"):
        found = await store.get(ObjectKey(f"{form}{tmp_path}/old/x"))
        assert found is not None
        for outside in ("older/x", "secret", "old/../secret"):
            with pytest.raises(Invalid) as refused:
                await store.get(ObjectKey(f"{form}{tmp_path}/{outside}"))
            assert refused.value.code == "file-unreadable"
    await store.close()


def test_a_limit_must_be_an_absolute_location(tmp_path: Path) -> None:
    for prefix in ("old", "s3:bucket", "", "hdfs://host/x"):
        with pytest.raises(Invalid, match="ROOTLINE_ABSOLUTE_READS"):
            LocalObjectStore(tmp_path, (prefix,))


@pytest.mark.services
async def test_a_bucket_is_limited_as_a_folder_is(s3_service: S3Service) -> None:
    others = s3_service.store()
    await others.put_if_absent(ObjectKey("x"), b"rows")
    place = f"{s3_service.bucket}/{others._prefix}"
    open_one, closed = (
        S3ObjectStore(s3_service.bucket, "lake", s3_service.settings(), (limit,))
        for limit in (f"s3a://{place}", f"s3://{s3_service.bucket}/elsewhere")
    )

    found = await open_one.get(ObjectKey(f"s3://{place}x"))
    with pytest.raises(Invalid, match="ROOTLINE_ABSOLUTE_READS"):
        await closed.get(ObjectKey(f"s3://{place}x"))

    assert found is not None
    for store in (others, open_one, closed):
        await store.close()
