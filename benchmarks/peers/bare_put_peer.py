"""The floor of a commit: one conditional PUT of a new object, with Rootline's own client library."""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiobotocore
from pydantic import SecretStr

from benchmarks.peers.protocol import Peer, Place, serve
from rootline.adapters.s3_object_store import s3_client
from rootline.adapters.settings import S3Settings

_BYTES = 100 * 1024
_BYTES_A_ROW = 50


class BarePut:
    """One connection; a file is 100 KiB, a row 50 bytes and is put into a folder."""

    version = str(aiobotocore.__version__)

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = AsyncExitStack()
        self._client: Any = None

    def open(self, place: Place) -> None:
        self._place = place
        self._folder = Path(place["folder"])
        if place["endpoint"]:
            settings = S3Settings(
                endpoint=place["endpoint"],
                access_key_id=place["access_key"],
                secret_access_key=SecretStr(place["secret_key"]),
            )
            self._client = self._loop.run_until_complete(self._closing.enter_async_context(s3_client(settings)))
            self.commit(range(1))  # connects

    def prepare(self, numbers: range) -> None:
        """Nothing."""

    def commit(self, numbers: range) -> None:
        key = f"{self._place['warehouse'].split('/', 3)[3]}/{uuid.uuid4().hex}"
        put = self._client.put_object(
            Bucket=self._place["bucket"], Key=key, Body=os.urandom(_BYTES * len(numbers)), IfNoneMatch="*"
        )
        self._loop.run_until_complete(put)

    def plan(self, between: tuple[int, int] | None) -> int:
        raise NotImplementedError

    def append(self, number: int, rows: int) -> None:
        """Write a file, sync it, link it under a name that must be free, and sync the folder."""
        new, name = self._folder / f"new-{os.getpid()}", self._folder / uuid.uuid4().hex
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, os.urandom(_BYTES_A_ROW * rows))
        os.fsync(descriptor)
        os.close(descriptor)
        os.link(new, name)
        new.unlink()
        descriptor = os.open(self._folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def upkeep(self) -> None:
        """Nothing."""

    def close(self) -> None:
        self._loop.run_until_complete(self._closing.aclose())


if __name__ == "__main__":
    peer: Peer = BarePut()
    serve(peer)
