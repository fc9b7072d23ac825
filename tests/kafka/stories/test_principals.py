"""Signed records on a real broker: who has a key writes what it may, and everyone else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.coordinator.test_principals import POLICY, SECRET
from tests.kafka.coordinating import coordinating, sharing
from tests.kafka.reading import records_on

pytestmark = pytest.mark.services


async def test_who_has_a_key_writes_what_it_may_and_a_record_of_others_is_refused(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    (tmp_path / "ingest.key").write_text(SECRET)
    (tmp_path / "upkeep.key").write_text(SECRET[::-1])
    policy = tmp_path / "principals.toml"
    policy.write_text(POLICY)
    signing = settings.model_copy(
        update={"signing_key_id": "ingest", "signing_key_file": tmp_path / "ingest.key"},
    )
    create, one, two = (
        intent.model_copy(update={"writer_id": "w", "writer_sequence": number})
        for number, intent in enumerate((create_intent(TABLE), append_intent("one"), append_intent("two")))
    )
    elsewhere = one.model_copy(update={"table": "secret.t"})
    async with (
        sharing(signing) as signed,
        sharing(settings, signed.store) as unsigned,
        coordinating(settings, signed.store, principals_file=policy),
    ):
        assert [verdict.kind for verdict in await signed.commit(create, one)] == 2 * [VerdictKind.COMMITTED]
        assert [verdict.code for verdict in await unsigned.commit(two)] == ["signature-missing"]
        assert [verdict.code for verdict in await signed.commit(elsewhere)] == ["not-permitted"]
        taken = [found for found in records_on(settings, settings.intents_topic) if found.key == TABLE.encode()]
        raw, own = taken[1], tuple(taken[1].headers.items())
        publisher = KafkaPublisher(settings, lambda: settings.intent_bytes_max)
        try:  # whoever may write to the topic sends the signed record again: as it is, and with an older claim
            changed = (("rootline-oldest-file-ms", b"1"), *own)
            places = await publisher.publish(
                [Outgoing(settings.intents_topic, raw.key, raw.value, headers) for headers in (own, changed)]
            )
        finally:
            await publisher.close()
        log = await signed.writer._sink.identity()
        told = await signed.verdicts([LogPosition(log, *place) for place in places])
        assert [verdict.kind for verdict in told] == 2 * [VerdictKind.DUPLICATE]  # nothing is in the table twice
        assert [verdict.kind for verdict in await signed.commit(two)] == [VerdictKind.COMMITTED]
        assert await signed.live_files() == ["data/one.parquet", "data/two.parquet"]
