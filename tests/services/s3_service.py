"""An S3 store: versitygw with its posix back end, or the one that `ROOTLINE_TEST_S3` names.

Owns: the service and stores in it. Does not own: the adapter under test.
Invariants: every `store` has a prefix of its own, so tests never meet.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from rootline.adapters.s3_object_store import S3ObjectRemover, S3ObjectStore
from rootline.adapters.settings import S3Settings
from tests.services.go_tools import go_tool
from tests.services.service_process import HOST, ServiceProcess, free_port

_BUCKET = "rootline-tests"
_KEY = "rootline"
SECRET = "rootline-tests-only"
VERSITYGW = "v1.8.0"
_INSTEAD = ", or set ROOTLINE_TEST_S3=endpoint,key,secret,bucket to use a running store"


@dataclass(frozen=True)
class S3Service:
    """Where the store is, and what it lets in; `pid` and `folder` (of the bucket's objects) when it is ours."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    bucket: str
    pid: int | None = None
    folder: Path | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.endpoint)
        return parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]

    def environment(self) -> dict[str, str]:
        """The variables that tell another process of this store."""
        return {
            "ROOTLINE_S3__ENDPOINT": self.endpoint,
            "ROOTLINE_S3__ACCESS_KEY_ID": self.access_key_id,
            "ROOTLINE_S3__SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def settings(self, **changes: Any) -> S3Settings:
        """Settings for this store."""
        return S3Settings(
            **{
                "endpoint": self.endpoint,
                "access_key_id": self.access_key_id,
                "secret_access_key": SecretStr(self.secret_access_key),
                **changes,
            }
        )

    def store(self, prefix: str | None = None, **changes: Any) -> S3ObjectStore:
        """A warehouse; without `prefix`, a fresh one."""
        return S3ObjectStore(
            self.bucket, f"test-{uuid.uuid4().hex}" if prefix is None else prefix, self.settings(**changes)
        )

    def remover(self, prefix: str, **changes: Any) -> S3ObjectRemover:
        """What removes objects of the warehouse at `prefix`."""
        return S3ObjectRemover(self.bucket, prefix, self.settings(**changes))


@contextmanager
def running_s3(folder: Path, *, keys: Path | None = None, access_log: Path | None = None) -> Iterator[S3Service]:
    """A store, its data in `folder`. It is always one of our own with `keys`, a folder of the server's users, and with
    `access_log`, a file that gets a line for each request."""
    named = os.environ.get("ROOTLINE_TEST_S3")
    if named and keys is None and access_log is None:
        parts = named.split(",")
        if len(parts) != 4:
            pytest.fail("ROOTLINE_TEST_S3 is not of the form endpoint,key,secret,bucket", pytrace=False)
        yield S3Service(parts[0], parts[1], parts[2], parts[3])
        return
    binary = go_tool("versitygw", "github.com/versity/versitygw/cmd/versitygw", VERSITYGW, instead=_INSTEAD)
    data = folder / "data"
    (data / _BUCKET).mkdir(parents=True)
    sidecar = folder / "sidecar"
    sidecar.mkdir()
    port = free_port()
    process = ServiceProcess(
        [
            *(binary, "--port", f"{HOST}:{port}", "--quiet", "--keep-alive"),
            *(() if keys is None else ("--iam-dir", keys)),
            *(() if access_log is None else ("--access-log", access_log)),
            "posix",
            *(() if keys is None else ("--sidecar", sidecar)),  # a long policy does not fit ext4's attributes
            data,
        ],
        folder / "versitygw.log",
        {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": SECRET},
    )
    try:
        process.wait_ready(port)
        yield S3Service(f"http://{HOST}:{port}", _KEY, SECRET, _BUCKET, process.pid, data / _BUCKET)
    finally:
        process.stop()
