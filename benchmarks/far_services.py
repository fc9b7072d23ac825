"""A store that is far away, and a log, as processes of their own; and the bare PUT, the yardstick of them all.

Owns: starting and stopping them, the delay, the bare PUT. Does not own: the services (`tests.services`).
Invariants: the bare PUT goes through the same proxy with the same client library, without `Expect`.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rootline.adapters.s3_object_store import s3_client
from tests.services.kafka_service import KafkaService, running_kafka
from tests.services.s3_service import S3Service, running_s3
from tests.services.toxiproxy import running_toxiproxy

ADDED_MS: Final = 60
BarePut = Callable[[int], Awaitable[float]]
"""Puts so many bytes under a fresh key, and returns how many seconds it took."""


@dataclass(frozen=True, slots=True)
class Far:
    """`store` answers `ADDED_MS` late, `near` is the same store without the delay; `folder` is for other processes."""

    store: S3Service
    near: S3Service
    kafka: KafkaService
    folder: Path

    def warehouse(self) -> str:
        """A fresh prefix of the bucket."""
        return f"s3://{self.store.bucket}/bench-{uuid.uuid4().hex[:12]}"


@contextmanager
def far_services() -> Iterator[Far]:
    """Store, proxy and broker, until the block ends."""
    with _store_in_folder() as (far, near, folder), running_kafka(_made(folder / "kafka")) as kafka:
        yield Far(far, near, kafka, folder)


@contextmanager
def far_store(added_ms: int = ADDED_MS) -> Iterator[S3Service]:
    """The store that answers late, without a broker."""
    with _store_in_folder(added_ms) as (far, _, _):
        yield far


@asynccontextmanager
async def bare_put(service: S3Service) -> AsyncIterator[BarePut]:
    """The yardstick, one connection."""
    async with s3_client(service.settings()) as client:

        async def put(size: int) -> float:
            body = os.urandom(size)
            key = f"bare/{uuid.uuid4().hex}"
            began_s = time.perf_counter()
            await client.put_object(Bucket=service.bucket, Key=key, Body=body, IfNoneMatch="*")
            return time.perf_counter() - began_s

        await put(1_000)  # connects
        yield put


@contextmanager
def _store_in_folder(added_ms: int = ADDED_MS) -> Iterator[tuple[S3Service, S3Service, Path]]:
    """The store with and without its delay, and a folder for everything."""
    with (
        tempfile.TemporaryDirectory(prefix="rootline-bench-", ignore_cleanup_errors=True) as name,
        running_s3(_made(Path(name) / "s3")) as near,
        running_toxiproxy(Path(name)) as toxiproxy,
        toxiproxy.proxy("far", near.address) as proxy,
    ):
        proxy.add("latency", stream="downstream", latency=added_ms)
        yield S3Service(proxy.endpoint, near.access_key_id, near.secret_access_key, near.bucket), near, Path(name)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
