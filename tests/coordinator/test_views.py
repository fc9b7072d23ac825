"""Views under coordinators that stop, start again, race, and lose what they knew."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.protocol.commit import first_root_count
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.identifiers import CommitId, LogId, LogPosition
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import root_key
from rootline.schemas.parts.name import NameState
from rootline.schemas.view_metadata import ViewMetadata
from rootline.storage.metadata.root_reader import newest_root
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from tests.contracts.stores import STORES
from tests.coordinator.running_service import TABLE, Running, append_intent, create_intent, running

VIEW_UUID = uuid.UUID(int=10)
_PARAMETERS = [pytest.param(name, marks=pytest.mark.services if name == "s3" else ()) for name in STORES]


def view_intent(name: str, kind: IntentKind = IntentKind.CREATE_VIEW, sql: str = "SELECT 1", **more: Any) -> Intent:
    version = {"representations": [{"type": "sql", "sql": sql, "dialect": "spark"}]}
    body: dict[str, Any] = {"version": version}
    if kind is IntentKind.CREATE_VIEW:
        body |= {"view-uuid": str(VIEW_UUID), "location": "memory://lake/a/b"}
    text = None if kind is IntentKind.DROP_VIEW else json.dumps(body)
    return Intent(intent_id=name, table=TABLE, kind=kind, table_uuid=VIEW_UUID, definition=text, **more)


def story() -> list[Intent]:
    """A view is made and replaced twice; each intent has a writer and a number."""
    kinds = [IntentKind.CREATE_VIEW, IntentKind.REPLACE_VIEW, IntentKind.REPLACE_VIEW]
    return [
        view_intent(f"i{at}", kind, f"SELECT {at}", writer_id="w", writer_sequence=at) for at, kind in enumerate(kinds)
    ]


async def view_in(store: ObjectStore) -> ViewMetadata:
    root = await newest_root(store, TABLE)
    assert root is not None
    assert root.header.name.view is not None
    return ViewMetadata.from_json(root.header.name.view)


async def kinds_of(run: Running, *intents: Intent) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in await run.commit(*intents)]


async def test_a_coordinator_that_starts_again_goes_on_with_the_view() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    for at, intent in enumerate(story()):
        async with running(store, log) as run:
            assert await kinds_of(run, intent) == ["committed"]
            assert (await view_in(store)).current_version_id == at + 1
    async with running(store, log) as run:
        assert await kinds_of(run, append_intent("late")) == ["name-is-view"]
        assert await kinds_of(run, view_intent("gone", IntentKind.DROP_VIEW)) == ["committed"]
    async with running(store, log) as run:
        assert await kinds_of(run, create_intent(TABLE)) == ["committed"]


async def test_what_is_delivered_again_is_a_duplicate_and_changes_nothing() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    async with running(store, log) as run:
        assert await kinds_of(run, *story()) == ["committed"] * 3
        assert await kinds_of(run, *story()) == ["duplicate"] * 3
    async with running(store, log) as run:
        assert await kinds_of(run, *reversed(story())) == ["duplicate"] * 3
    assert [entry.version_id for entry in (await view_in(store)).version_log] == [1, 2, 3]


async def test_a_log_that_was_lost_and_is_written_again_changes_nothing() -> None:
    store = MemoryObjectStore()
    async with running(store) as run:
        assert await kinds_of(run, *story()) == ["committed"] * 3
    before = await view_in(store)
    async with running(store, MemoryIntentLog()) as run:
        assert await kinds_of(run, *story()) == ["duplicate"] * 3
    assert await view_in(store) == before


@pytest.fixture(params=_PARAMETERS)
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made = STORES[request.param](request, tmp_path)
    yield made
    await made.close()


async def test_whether_a_name_is_a_table_or_a_view_is_decided_by_one_put(any_store: ObjectStore) -> None:
    async def put(at: int) -> NameState | None:
        """A coordinator that has seen no root, and has one intent."""
        intent = create_intent(TABLE) if at % 2 else view_intent(f"v{at}", sql=f"SELECT {at}")
        record = Record(LogPosition(LogId(f"embedded/{uuid.UUID(int=at)}"), 0, 0), intent, 500, 1_000)
        stamp = Stamp(CommitId(f"{at:032x}"), f"coordinator-{at}", 1_000 + at)
        applied = apply_batch(None, TABLE, [record], FetchedObjects(), stamp)
        assert isinstance(applied, Applied)
        reply = await any_store.put_if_absent(root_key(TABLE, applied.state.header.version), applied.body)
        return applied.state.header.name.state if reply.answer is PutStatus.CREATED else None

    won = [state for state in await asyncio.gather(*(put(at) for at in range(32))) if state is not None]
    root = await newest_root(any_store, TABLE)
    assert root is not None
    assert won == [root.header.name.state]


def test_records_of_another_partition_do_not_share_the_first_root_of_a_view() -> None:
    """Another coordinator may have answered them already, that there is no view: the root would say otherwise."""

    def at(partition: int, offset: int, intent: Intent) -> Record:
        return Record(LogPosition(LogId("embedded/test"), partition, offset), intent, 100)

    records = [
        at(1, 0, append_intent("early")),
        at(0, 0, view_intent("made")),
        at(0, 1, view_intent("again", IntentKind.REPLACE_VIEW)),
        at(1, 1, view_intent("elsewhere", IntentKind.REPLACE_VIEW)),
    ]
    assert first_root_count(records) == 3
