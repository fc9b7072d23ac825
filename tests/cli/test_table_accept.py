"""`rootline table accept`: an operator decides to go on without roots that the store has lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.coordinator.protocol.machine_state import Phase
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import find_head
from rootline.testing.seeded_environment import SeededEnvironment
from tests.cli.conftest import Run
from tests.coordinator.running_service import TABLE, append_intent, running
from tests.coordinator.test_head_lost import publish, why_quarantined
from tests.support.loaded_tables import load_table

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
        assert "the log has published version 3 as committed: the roots between are lost" in checked.out
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


@pytest.mark.parametrize("burst", [1, 3, 12])
async def test_an_embedded_log_that_was_restored_and_written_to_loses_no_record_of_either_time(
    tmp_path: Path, run: Run, burst: int
) -> None:
    folder = tmp_path / "lake"

    async def told(*names: str) -> list[Verdict | None]:
        """Publish appends to a log that is opened for it, while nothing decides them."""
        log = SqliteIntentLog(folder / ".rootline")
        for name in names:
            await log.publish(TABLE.encode(), encode_intent(append_intent(name)))
        found = [
            await log.wait_verdict(LogPosition(await log.identity(), 0, offset), timeout_s=0)
            for offset in range(1, await log.end_offset())
        ]
        await log.close()
        return found

    async def life(*names: str) -> dict[str, Any]:
        """Create or append with a coordinator, and wait for its verdicts; what its tables say."""
        store, log = LocalObjectStore(folder), SqliteIntentLog(folder / ".rootline")
        async with running(store, log, SeededEnvironment(len(names))) as service:  # type: ignore[arg-type]
            for name in names:
                await (service.create() if name == "create" else service.commit(append_intent(name)))
            end = await log.end_offset()
            async with asyncio.timeout(20):
                while await log.first_undecided() < end and not any(  # noqa: ASYNC110 -- neither can wake us
                    phase is Phase.QUARANTINED for phase, _ in service.service.tables().values()
                ):
                    await asyncio.sleep(0)
            tables = {name: why for name, (_, why) in service.service.tables().items()}
        await log.close()
        await store.close()
        return tables

    async def command(*words: str) -> tuple[int, str]:
        result = await asyncio.to_thread(run, *words, "--warehouse", folder)
        return result.code, result.out + result.err

    await life("create", "old-0", "old-1")
    shutil.copytree(folder / ".rootline", tmp_path / "copy")
    await life("later-0", "later-1", "later-2")
    shutil.rmtree(folder / ".rootline")
    shutil.copytree(tmp_path / "copy", folder / ".rootline")
    names = [f"new-{number}" for number in range(burst)]
    before = await told(*names)

    assert "log-behind-root" in (await life())[TABLE]
    assert await told() == before, "no verdict of the lost time is told of a record of today"
    code, said = await command("check", TABLE)
    assert (code, "log-behind-root" in said) == (1, True)
    code, said = await command("status", TABLE, "--json")
    assert "log-behind-root" in said

    code, said = await command("table", "accept", TABLE)
    assert (code, "explain log-behind-root" in said, "nothing was changed" in said) == (1, True, True)
    assert await told() == before
    assert (await command("table", "accept", TABLE, "--yes"))[0] == 0
    assert (await life("after"))[TABLE] == ""
    verdicts = [verdict for verdict in (await told())[len(before) - burst :] if verdict is not None]
    assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED] * (burst + 1)
    store = LocalObjectStore(folder)
    state = await load_table(store, TABLE)
    await store.close()
    assert state is not None
    assert state.header.totals.data_files == 2 + 3 + burst + 1
    assert "log-behind-root" not in (await command("check", TABLE))[1]


def test_a_log_that_does_not_exist_or_is_not_embedded_is_refused(run: Run, tmp_path: Path) -> None:
    missing = run("table", "accept", TABLE, "--warehouse", tmp_path)
    assert (missing.code, "there is no log here" in missing.err) == (3, True)
    kafka = run("table", "accept", TABLE, "--warehouse", tmp_path, "--log", "kafka://localhost:1")
    assert (kafka.code, "`table accept` is for an embedded log" in kafka.err) == (2, True)


def test_on_kafka_the_way_to_go_on_is_named(run: Run) -> None:
    result = run("table", "accept", "a.b", "--log", "kafka://127.0.0.1:1", "--warehouse", "/nowhere")
    assert result.code != 0
    assert "start the coordinators again" in result.err
    assert "rootline quarantine lift a.b" in result.err
