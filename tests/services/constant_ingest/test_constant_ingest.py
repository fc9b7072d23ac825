"""Half a minute of constant ingest: two lakes, one with all upkeep on; scans are judged, and both are checked.

`python -m tests.services.constant_ingest` does it for longer, with days that pass in the middle.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.constant_ingest.proof import Plan, proof
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

pytestmark = [pytest.mark.services, pytest.mark.slow]


async def test_every_scan_finds_what_its_version_holds_while_versions_expire_and_files_are_converted_and_compacted(
    s3_service: S3Service, kafka_service: KafkaService, tmp_path: Path
) -> None:
    plan = Plan(seconds=20, speed=60, writers=8, readers=2, think_s=0.5, leaps=0)
    with proof(s3_service, kafka_service, tmp_path, plan, print) as made:
        report = await made.run()
    assert report.failures == []
