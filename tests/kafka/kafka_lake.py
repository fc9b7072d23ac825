"""A lake whose warehouse is on S3 and whose log is on Kafka, for one test.

Owns: its addresses, as settings of this process and as the environment of others. Does not own: the services.
Invariants: a lake has a prefix and topics of its own, so tests never meet.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.lake import Lake
from rootline.client.session import Session
from tests.services.s3_service import S3Service
from tests.support.opened_sessions import nothing_known


@dataclass(frozen=True)
class KafkaLake:
    """Also the address of a lake, as `Lake` takes it."""

    s3: S3Service
    kafka: KafkaSettings
    prefix: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")

    @property
    def name(self) -> str:
        return self.warehouse

    @property
    def warehouse(self) -> str:
        return f"s3://{self.s3.bucket}/{self.prefix}"

    def store(self) -> S3ObjectStore:
        return self.s3.store(self.prefix)

    def through(self, *, s3_endpoint: str | None = None, kafka: KafkaSettings | None = None) -> KafkaLake:
        """The same lake by other ways."""
        return replace(self, s3=replace(self.s3, endpoint=s3_endpoint or self.s3.endpoint), kafka=kafka or self.kafka)

    def client(self) -> Lake:
        """A writer's connection of its own."""
        return Lake(self)

    async def open(self) -> Session:
        store, log = self.store(), KafkaWriterLog(self.kafka)

        async def close() -> None:
            await log.close()
            await store.close()

        return Session(store, log, SystemEnvironment(), close, nothing_known)

    def environment(self) -> Mapping[str, str]:
        """What the command line reads."""
        kafka = self.kafka.model_dump(exclude_none=True, exclude_defaults=True)
        secret = self.kafka.sasl_password
        if secret is not None:
            kafka["sasl_password"] = secret.get_secret_value()
        return {
            "ROOTLINE_WAREHOUSE": self.warehouse,
            "ROOTLINE_LOG": self.kafka.url,
            **self.s3.environment(),
            **{f"ROOTLINE_KAFKA__{name.upper()}": str(value) for name, value in kafka.items()},
        }
