"""`rootline pause` and `resume` over a real broker: what coordinators find that run, and those that start later."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters import log_state
from rootline.adapters.kafka import pauses
from rootline.adapters.kafka.clients import make_consumer
from rootline.adapters.kafka.frontiers import read_frontiers
from rootline.adapters.kafka.pauses import KafkaPauses
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.log_state import PauseQuestion
from rootline.coordinator.protocol.machine_state import Phase
from rootline.ports.intent_feed import ALL_TABLES
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import TableName
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.small_intents import TABLE

pytestmark = pytest.mark.services
PATIENCE_S = 240.0


@pytest.fixture
def log(kafka_service: KafkaService, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> SharedLog:
    found = SharedLog(tmp_path / "lake", kafka_service.with_topics(partitions=1))
    found.folder.mkdir()
    in_environment(found.settings, monkeypatch)
    return found


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end


def test_a_pause_holds_for_coordinators_that_run_and_start_and_a_resumed_table_goes_on(
    log: SharedLog, run: Run
) -> None:
    with log.open() as lake:
        with log.coordinated() as phases:
            lake.create_table("a.free", {"id": "int"}, timeout_s=PATIENCE_S)
            held = lake.create_table(TABLE, {"id": "int"}, timeout_s=PATIENCE_S)
            assert run("pause", TABLE, "--why", "wrong source", *log.words).code == 0
            identity = topic_identity(log.settings, log.settings.intents_topic).log
            recorded = asyncio.run(read_frontiers(log.settings, identity))
            assert [(pause.table, pause.why) for pause in recorded.pauses] == [(TABLE, "wrong source")]

            until(lambda: phases().get(TableName(TABLE)) is Phase.PAUSED)
            with pytest.raises(OutcomeUnknown):
                held.append({"id": [1]}, timeout_s=2.0)
        rows = held.scan().to_arrow().num_rows
        assert rows == 0
        with log.coordinated():  # another one, which starts with the pause in force
            lake.table("a.free").append({"id": [1]}, timeout_s=PATIENCE_S)
            assert held.scan().to_arrow().num_rows == rows
            assert run("resume", TABLE, *log.words).code == 0
            held.append({"id": [2]}, timeout_s=PATIENCE_S)  # it is behind the one that waited
            assert held.scan().to_arrow().num_rows == rows + 2
    assert run("check", TABLE, *log.words).code == 0


def test_a_follower_sees_what_begins_and_ends_and_other_groups_do_not(log: SharedLog, run: Run) -> None:
    async def followed() -> list[set[str]]:
        follower = KafkaPauses(log.settings)
        other = KafkaPauses(log.settings.model_copy(update={"group_id": "another-group"}))
        seen = []
        for words in (("pause", "--all"), ("resume", "--all"), ("pause", "--all")):
            await asyncio.to_thread(run, *words, *log.words)
            seen.append({str(pause.table) for pause in await follower.pauses()})
            assert await other.pauses() == ()
        await follower.close()
        await other.close()
        return seen

    assert asyncio.run(followed()) == [{ALL_TABLES}, set(), {ALL_TABLES}]


def test_a_repeated_question_sees_what_begins_and_ends_through_one_consumer(
    log: SharedLog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def counted(*given: Any, **named: Any) -> object:
        made.append(make_consumer(*given, **named))
        return made[-1]

    monkeypatch.setattr(pauses, "make_consumer", counted)
    monkeypatch.setattr(log_state, "_PATIENCE_S", PATIENCE_S)  # a busy machine takes longer

    async def asked() -> list[tuple[str | None, int]]:
        seen = []
        async with contextlib.aclosing(PauseQuestion(str(log.folder), log.settings.url, TableName(TABLE))) as question:
            for words in (("pause", "--all"), ("resume", "--all"), ("pause", "--all")):
                await asyncio.to_thread(run, *words, *log.words)
                made.clear()  # those of the command
                pause = await question.pause()
                seen.append((None if pause is None else pause.table, len(made)))
        return seen

    assert asyncio.run(asked()) == [(ALL_TABLES, 1), (None, 0), (ALL_TABLES, 0)]
