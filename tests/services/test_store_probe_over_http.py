"""The probe over the wire: a real store passes, a lying one is refused, also by the coordinator at its start."""

from __future__ import annotations

import uuid

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.adapters.settings import S3Settings
from rootline.coordinator.app import CoordinatorService
from rootline.schemas.errors import Fenced
from rootline.storage.warehouse import probe_store
from rootline.testing.object_stores import Lie
from tests.services.lying_s3_server import lying_s3_server
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.services


def fresh_id() -> str:
    return uuid.uuid4().hex


def store_at(endpoint: str) -> S3ObjectStore:
    return S3ObjectStore(
        "bucket", "lake", S3Settings(endpoint=endpoint, access_key_id="key", secret_access_key="secret")
    )


async def test_a_real_store_passes_through_two_clients(s3_service: S3Service) -> None:
    one = s3_service.store("probed")
    two = s3_service.store("probed")

    await probe_store([one, two], fresh_id, rounds=3)

    await one.close()
    await two.close()


@pytest.mark.parametrize(
    ("lie", "fault"),
    [(Lie.IGNORES, "ignores If-None-Match"), (Lie.RACES, r"let \d+ of 32 writers win a race")],
)
async def test_a_lying_store_is_refused_and_named(lie: Lie, fault: str) -> None:
    with lying_s3_server(lie) as endpoint:
        store = store_at(endpoint)
        with pytest.raises(Fenced, match=f"s3://bucket/lake at {endpoint} cannot store tables: it {fault}"):
            await probe_store([store], fresh_id)
        await store.close()


@pytest.mark.parametrize("lie", list(Lie))
async def test_a_coordinator_does_not_start_on_a_lying_store(lie: Lie) -> None:
    with lying_s3_server(lie) as endpoint:
        store, log = store_at(endpoint), MemoryIntentLog()
        with pytest.raises(Fenced) as refusal:
            await CoordinatorService(store=store, log=EmbeddedFeed(log)).run()
        await store.close()

    assert refusal.value.code == "store-lies"


async def test_a_store_that_does_not_say_when_it_answers_is_refused() -> None:
    with lying_s3_server(Lie.IGNORES, is_dated=False) as endpoint:
        store = store_at(endpoint)
        with pytest.raises(Fenced, match="sends no Date"):
            await store.list("a/b/metadata/roots/", limit=1)
        await store.close()
