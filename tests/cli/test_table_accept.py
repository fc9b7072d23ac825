"""`rootline table accept`: an operator decides to go on without roots that the store has lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rootline.adapters.local.object_store import LocalObjectStore
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.schemas.log_position import LogPosition
from rootline.storage.metadata.head_finder import find_head
from rootline.testing.seeded_environment import SeededEnvironment
from tests.cli.conftest import Run
from tests.coordinator.running_service import TABLE, running
from tests.coordinator.test_head_lost import publish, why_quarantined

LOST_ALL = 4


@pytest.mark.parametrize("lost", [1, LOST_ALL])
async def test_an_operator_accepts_the_loss_and_the_table_goes_on_from_what_is_left(
    tmp_path: Path, run: Run, lost: int
) -> None:
    folder = tmp_path / "lake"

    async def life(*names: str) -> tuple[int | None, list[str]]:
        """Create or append, with a log that is opened for it; the head afterwards, and what is quarantined."""
        store, log = LocalObjectStore(folder), SqliteIntentLog(folder / ".rootline")
        reasons: list[str] = []
        async with running(store, log, SeededEnvironment(len(names))) as service:  # type: ignore[arg-type]
            for name in names:
                if name == "create":
                    await service.create()
                else:
                    await publish(service, name)
                    position = LogPosition(await log.identity(), 0, await log.end_offset() - 1)
                    if await log.wait_verdict(position, timeout_s=1) is None:
                        reasons.append(await why_quarantined(service))
        head = await find_head(store, TABLE)
        await log.close()
        await store.close()
        return None if head is None else head.version, reasons

    def accept(*words: str) -> tuple[int, str]:
        result = run("table", "accept", TABLE, "--warehouse", folder, *words)
        return result.code, result.out + result.err

    assert await life("create", "f-0", "f-1", "f-2") == (3, [])
    assert await asyncio.to_thread(accept) == (0, "there is nothing to accept: no version of a.b is known to be lost\n")
    for path in sorted((folder / "a/b/metadata/roots").iterdir())[:lost]:
        path.unlink()
    if lost < LOST_ALL:
        checked = await asyncio.to_thread(run, "check", TABLE, "--warehouse", folder)
        assert checked.code == 1
        assert "the log has told version 3 committed: the roots between are lost" in checked.out
    head, [why] = await life("later")
    assert "head-lost" in why

    code, said = await asyncio.to_thread(accept)
    assert code == 1
    assert "version 3 was confirmed" in said
    assert (await life("another"))[1], "nothing was accepted yet"
    code, said = await asyncio.to_thread(accept, "--yes")
    assert code == 0

    if lost == LOST_ALL:
        assert head is None
        assert await life("create") == (0, [])
    else:
        after, reasons = await life("more")
        assert head == 2
        assert reasons == []
        assert after is not None
        assert after > head


def test_a_log_that_does_not_exist_or_is_not_embedded_is_refused(run: Run, tmp_path: Path) -> None:
    missing = run("table", "accept", TABLE, "--warehouse", tmp_path)
    assert (missing.code, "there is no log here" in missing.err) == (3, True)
    kafka = run("table", "accept", TABLE, "--warehouse", tmp_path, "--log", "kafka://localhost:1")
    assert (kafka.code, "this is for an embedded log" in kafka.err) == (2, True)


def test_on_kafka_the_way_to_go_on_is_named(run: Run) -> None:
    result = run("table", "accept", "a.b", "--log", "kafka://127.0.0.1:1", "--warehouse", "/nowhere")
    assert result.code != 0
    assert "start the coordinators again" in result.err
    assert "rootline quarantine lift a.b" in result.err
