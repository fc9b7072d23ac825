"""Drivers that are killed, whatever they are at, leave every row in the tables exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.kafka_lake import KafkaLake
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.spark.torture.killing_source import Phase
from tests.spark.torture.tortured_lake import Torture, tortured

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]


def test_drivers_that_die_while_their_batches_are_committed_leave_the_tables_as_their_sources_say(
    kafka_service: KafkaService,
    s3_service: S3Service,
    tmp_path: Path,
    warm_workers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", warm_workers)
    address = KafkaLake(s3_service, kafka_service.with_topics(partitions=2))
    torture = Torture(0, 7, phases=(Phase.ZOMBIE, Phase.BEFORE_UPLOADS), files=(1, 2), master="local[2]")
    outcome = tortured(address, tmp_path, torture, print)
    assert (outcome.faults, outcome.deaths) == ([], {Phase.ZOMBIE: 1, Phase.BEFORE_UPLOADS: 1})
    assert outcome.changes >= 2
