"""Three coordinators under kill -9, hangs, rebalances and lost replies; 10 writers; nothing lost, nothing doubled.

The run prints its seed; `ROOTLINE_CHAOS_SEED` chooses one. `python -m tests.kafka.chaos` does it for longer, with more.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.kafka.chaos.world import Chaos, Services, run_chaos
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.services.toxiproxy import Toxiproxy

pytestmark = [pytest.mark.services, pytest.mark.slow]
SECONDS = 30.0


async def test_nothing_is_lost_doubled_or_contradicted_whatever_happens_to_three_coordinators(
    s3_service: S3Service, kafka_service: KafkaService, toxiproxy: Toxiproxy, tmp_path: Path
) -> None:
    seed = int(os.environ.get("ROOTLINE_CHAOS_SEED") or secrets.randbelow(10**9))
    chaos = Chaos(seed, SECONDS, writers=10, sees_all=True)
    summary = await run_chaos(Services(s3_service, kafka_service, toxiproxy), tmp_path, chaos, print)
    print(summary)
    assert summary.facts["committed"] > 100
    assert summary.facts["asked PUTs"] > 0, "no reply was lost: the run was too calm"
    assert summary.faults["offsets and records expire"] > 0, "no offset expired: the run was too short"
    assert summary.facts["expiries"] > 0, "no version expired beside the faults"
    assert summary.facts["drops"] > 0, "no table was dropped beside the faults"
    assert summary.facts["replaces"] > 0, "no table was replaced beside the faults"
