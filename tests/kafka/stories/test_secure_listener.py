"""Through TLS and a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.kafka.topics import check_topics
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Unavailable
from tests.services.kafka_service import PASSWORD, KafkaService
from tests.support.decided import verdict_on

pytestmark = pytest.mark.services


async def test_writers_and_coordinators_log_in_over_tls_with_a_password_from_a_file(
    kafka_service: KafkaService, settings: KafkaSettings, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    secure = kafka_service.secure(settings, sasl_password=None, sasl_password_file=secret)
    writer, verdicts = KafkaWriterLog(secure), KafkaVerdictSink(secure)

    position = await writer.publish(b"k", b"v")
    await verdicts.publish_verdicts([verdict_on(position)], [])

    assert await writer.wait_verdict(position, timeout_s=30) == verdict_on(position)
    assert [problem.weight for problem in check_topics(secure)] == ["advised"] * 5
    await writer.close()
    await verdicts.close()


async def test_a_wrong_password_is_no_outage_of_the_writer_but_of_the_log(
    kafka_service: KafkaService, settings: KafkaSettings, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong")
    secure = kafka_service.secure(
        settings, sasl_password=None, sasl_password_file=secret, request_timeout_s=1, delivery_timeout_s=2
    )
    writer = KafkaWriterLog(secure)
    with pytest.raises(Unavailable) as failure:
        await writer.publish(b"k", b"v")
    await writer.close()

    assert failure.value.code == "log-unavailable"
