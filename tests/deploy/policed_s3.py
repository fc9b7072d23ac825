"""A lake in an S3 server that enforces deploy/policies: a key for each role, and one policy of the bucket.

Owns: the server, its keys, and a lake whose parts each have the key of their role. Does not own: the policies.
Invariants: the server is the caller's own; the policy comes from the command that docs/deploy.md shows.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import S3ObjectRemover, S3ObjectStore, s3_client
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.session import Session
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from tests.services.s3_service import S3Service, running_s3
from tests.support.opened_sessions import nothing_known

ROLES = ("catalog", "coordinator", "expiry", "reader", "worker", "writer")
PREFIX = "tables"
OTHER = "other/secret"


@dataclass(frozen=True)
class PolicedS3:
    """The server; `service` has the key that may do everything."""

    service: S3Service

    @property
    def warehouse(self) -> str:
        return f"s3://{self.service.bucket}/{PREFIX}"

    def of(self, role: str) -> S3Service:
        """The server as a process with this role's key knows it."""
        return replace(self.service, access_key_id=role, secret_access_key=f"secret of {role}", folder=None)

    def store(self, role: str) -> S3ObjectStore:
        return self.of(role).store(PREFIX)

    def remover(self, role: str) -> S3ObjectRemover:
        return self.of(role).remover(PREFIX)

    def environment(self, role: str) -> dict[str, str]:
        """What the command line reads."""
        return {"ROOTLINE_WAREHOUSE": self.warehouse, **self.of(role).environment()}


@dataclass(frozen=True)
class RolesLake:
    """The address of a lake: the coordinator and the client on one loop, each with its own key."""

    s3: PolicedS3
    name: str = "policed"

    async def open(self) -> Session:
        store, coordinators, log = self.s3.store("writer"), self.s3.store("coordinator"), MemoryIntentLog()
        service = CoordinatorService(
            store=coordinators,
            log=EmbeddedFeed(log),
            settings=CoordinatorSettings(probe_rounds=1),
            environment=SystemEnvironment(),
        )
        running = asyncio.create_task(service.run())

        async def close() -> None:
            service.request_stop()
            await running
            await store.close()
            await coordinators.close()

        return Session(store, log, SystemEnvironment(), close, nothing_known)


def filled(house: Path, *words: str) -> dict[str, Any]:
    """What deploy/policies/fill.py prints."""
    command = [sys.executable, str(house / "deploy" / "policies" / "fill.py"), *words]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    policy: dict[str, Any] = json.loads(printed)
    return policy


@contextmanager
def running_policed_s3(folder: Path, house: Path) -> Iterator[PolicedS3]:
    """The server, its data in `folder`."""
    keys = {
        role: {"access": role, "secret": f"secret of {role}", "role": "user", "userID": 0, "groupID": 0, "projectID": 0}
        for role in ROLES
    }
    (folder / "keys").mkdir()
    (folder / "keys" / "users.json").write_text(json.dumps({"accessAccounts": keys}))
    with running_s3(folder, keys=folder / "keys") as service:
        assert service.folder is not None
        policy = filled(house, f"s3://{service.bucket}/{PREFIX}", *(f"{role}={role}" for role in ROLES))

        async def set_policy() -> None:
            async with s3_client(service.settings()) as client:
                await client.put_bucket_policy(Bucket=service.bucket, Policy=json.dumps(policy))
                await client.put_object(Bucket=service.bucket, Key=OTHER, Body=b"of another lake")

        asyncio.run(set_policy())
        yield PolicedS3(service)
