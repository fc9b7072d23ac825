"""A Valkey that is killed, hung, poisoned, flushed or full costs ingest and upkeep nothing but time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.broken_redis.breakages import BREAKAGES
from tests.services.broken_redis.ingest import Plan, ingest_of
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.services.valkey_service import running_valkey

pytestmark = [pytest.mark.services, pytest.mark.slow]


async def test_ingest_and_upkeep_go_on_and_lose_nothing_however_valkey_is_broken(
    s3_service: S3Service, kafka_service: KafkaService, tmp_path: Path
) -> None:
    own = tmp_path / "valkey"
    own.mkdir()
    plan = Plan(seconds=0, writers=4, flush_files=3)
    with (
        running_valkey(own) as valkey,
        ingest_of(s3_service, kafka_service, valkey, tmp_path, plan, print) as ingest,
    ):
        phases = await ingest.run()
    assert {phase.name for phase in phases} == {"whole", *BREAKAGES}
