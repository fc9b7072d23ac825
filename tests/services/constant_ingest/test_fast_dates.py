"""The proxy that lets the dates of a real store run fast."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import ObjectKey
from tests.services.constant_ingest.fast_clock import LEAP_MS, FastClock
from tests.services.constant_ingest.fast_dates import FastDates, running_fast_dates
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.services


async def test_every_date_that_a_store_tells_is_the_fast_clocks_and_an_object_keeps_its_own(
    s3_service: S3Service, tmp_path: Path
) -> None:
    clock = FastClock.make(tmp_path / "clock", 60)
    server = await asyncio.start_server(FastDates(s3_service.address, clock).serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    fast = replace(s3_service, endpoint=f"http://{host}:{port}")
    store, remover = fast.store("fast-dates"), fast.remover("fast-dates")
    key, other = ObjectKey("a/part=0/b c&d.parquet"), ObjectKey("a/e")
    began_ms = clock.now_ms() // 1000 * 1000
    put = await store.put_if_absent(key, b"body")
    stored_ms = await store.stored_ms(key)
    assert put.store_ms is not None
    assert stored_ms is not None
    assert began_ms <= stored_ms <= put.store_ms <= clock.now_ms()
    clock.leap()
    again = await store.put_if_absent(key, b"another body")
    assert again.answer is PutStatus.EXISTS
    assert again.store_ms is not None
    assert again.store_ms >= put.store_ms + LEAP_MS - 1000
    await store.put_if_absent(other, b"")
    found = await store.get(key)
    assert found is not None
    assert (found.body, found.last_modified_ms) == (b"body", stored_ms)
    assert found.store_ms is not None
    assert found.store_ms >= put.store_ms + LEAP_MS - 1000
    listed = [item async for page in remover.inventory("a/") for item in page]
    assert {item.key: item.length for item in listed} == {key: 4, other: 0}
    dates = {item.key: item.last_modified_ms for item in listed}
    assert dates[key] == stored_ms
    assert dates[other] >= stored_ms + LEAP_MS - 1000
    await remover.remove([key])
    assert await store.stored_ms(key) is None
    await store.close()
    await remover.close()
    server.close()


async def test_an_object_that_was_stored_before_the_proxy_began_keeps_its_date(
    s3_service: S3Service, tmp_path: Path
) -> None:
    key, store = ObjectKey("a/b"), s3_service.store("fast-dates-before")
    await store.put_if_absent(key, b"body")
    stored_ms = await store.stored_ms(key)
    clock = FastClock.make(tmp_path / "clock", 60)
    clock.leap()
    with running_fast_dates(s3_service, clock, tmp_path / "proxy.log") as endpoint:
        fast = replace(s3_service, endpoint=endpoint)
        later, remover = fast.store("fast-dates-before"), fast.remover("fast-dates-before")
        assert await later.stored_ms(key) == stored_ms
        assert [item.last_modified_ms async for page in remover.inventory("a/") for item in page] == [stored_ms]
        await later.close()
        await remover.close()
    await store.close()
