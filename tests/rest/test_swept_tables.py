"""Commits of clients to a table with a horizon, before which it takes no file: the store is asked for each file."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile

from rootline.client.new_files import commit_intent
from rootline.client.session import Session, WriterStamp
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedLocations
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind, StoredPage
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.object_keys import key_of
from rootline.tree.commit import arrival_rules
from rootline.tree.state.table_state import pending_page
from tests.rest.hand_made import HandMade
from tests.rest.writing_catalog import problem

DAY_S = 24 * 3600
HORIZON_DAYS = 20
OLD_DAYS = 30


@pytest.fixture
def swept(client: HandMade) -> HandMade:
    """A client of a table with a horizon that is `HORIZON_DAYS` old."""
    table, header = TableName(client.table), client.catalog.lake.table(client.table).head()
    horizon_ms = header.snapshot.timestamp_ms - 1000 * HORIZON_DAYS * DAY_S
    content = CondemnedLocations(horizon_ms, LocationHashes.of([location_hash("data/nothing.parquet")]))

    async def sweep(session: Session) -> None:
        page, pending = pending_page(CONDEMNED_PAGES, header.table_uuid, content)
        await session.store.put_if_absent(key_of(table, pending.location), pending.body)
        intent = Intent(
            intent_id=uuid.uuid4().hex,
            table=table,
            table_uuid=header.table_uuid,
            kind=IntentKind.SWEEP,
            made_from_version=header.version,
            read_sequence_number=header.snapshot.sequence_number,
            page=StoredPage(
                location=page.reference.location,
                digest=page.reference.digest,
                file_size_in_bytes=page.reference.size_in_bytes,
            ),
        )
        await commit_intent(session, WriterStamp(), intent, timeout_s=60)

    client.catalog.lake.holder.run(sweep)
    assert client.catalog.lake.table(client.table).head().locations.horizon_ms == horizon_ms
    return client.load()


def _path(file: DataFile) -> Path:
    return Path(file.file_path.removeprefix("file://"))


def _age(file: DataFile, days: float) -> DataFile:
    then = time.time() - days * DAY_S
    os.utime(_path(file), (then, then))
    return file


def _refusal(client: HandMade, *files: DataFile) -> str:
    """The words of the 400 for an append, after which the table has no rows."""
    status, message = problem(client.catalog.commit(client.table, *client.append(*files)))
    assert (status, client.ids()) == (400, [])
    return message


def test_an_append_states_the_date_of_its_oldest_file_so_no_coordinator_asks_the_store(
    swept: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival_rules, "ASKED_MAX", 0)
    answer = swept.catalog.commit(
        swept.table, *swept.append(swept.file(1), _age(swept.file(2), HORIZON_DAYS - 1), swept.file(3))
    )
    assert answer.status_code == 200, answer.text
    assert swept.ids() == [1, 2, 3]


def test_a_file_that_is_older_than_the_horizon_is_refused_because_a_sweep_may_delete_it(swept: HandMade) -> None:
    assert "[expired]" in _refusal(swept, swept.file(1), _age(swept.file(2), OLD_DAYS))


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_of_another_length_than_its_entry_states_is_refused(swept: HandMade, more: int) -> None:
    file = swept.file(1)
    size = _path(file).stat().st_size
    lie = swept.file(1, path=file.file_path, file_size_in_bytes=size + more)
    assert f"has {size} bytes, its entry states {size + more}" in _refusal(swept, lie)


def test_a_file_that_is_not_there_is_refused(swept: HandMade) -> None:
    file = swept.file(1)
    _path(file).unlink()
    assert "[file-missing]" in _refusal(swept, swept.file(2), file)
