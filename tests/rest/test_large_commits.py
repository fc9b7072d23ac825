"""Commits of clients with a thousand files, and many commits at once: all are answered, and a few are read at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rootline.client.new_files import LEAF_FILES_DEFAULT
from rootline.rest import appends, client_files, writing
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.rest.hand_made import ADDED, HandMade, fresh_id
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, writing_catalog

FILES = LEAF_FILES_DEFAULT + 24
MANIFESTS = 8
CLIENTS = 64
READ_AT_ONCE = 5


class Running:
    """Counts calls that run at the same time. `most`: of any moment."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0
        self._guard = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._guard:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._guard:
                self.now -= 1


@pytest.mark.slow
def test_a_thousand_files_in_one_commit_are_listed_in_leaves_and_read_by_everyone(
    catalog: WritingCatalog, client: HandMade
) -> None:
    made = fresh_id()
    files = [client.file(2 * number, 2 * number + 1) for number in range(FILES)]
    manifests = [client.manifest(made, [(ADDED, file) for file in files[at::MANIFESTS]]) for at in range(MANIFESTS)]
    snapshot = client.snapshot(made, client.manifest_list(made, manifests), added_data_files=str(FILES))
    answer = catalog.commit(client.table, *client.request(snapshot))
    assert answer.status_code == 200, answer.text
    newest = answer.json()["metadata"]["snapshots"][-1]
    shown = {each["snapshot-id"]: each for each in answer.json()["metadata"]["snapshots"]}
    summary = shown[answer.json()["metadata"]["current-snapshot-id"]]["summary"]
    assert newest["snapshot-id"] in shown
    for word, count in (("added-data-files", FILES), ("added-records", 2 * FILES), ("total-data-files", FILES)):
        assert summary[word] == str(count)
    native = catalog.lake.table(client.table)
    assert list((client.folder / "metadata/leaves").iterdir()), "the intent names leaves, not files"
    assert len(native.scan().plan()) == FILES
    assert len(native.scan("id = 7").plan()) == 1
    rows = native.scan(columns=["id", "_row_id"]).to_arrow()
    assert sorted(rows.column("id").to_pylist()) == list(range(2 * FILES))
    assert sorted(rows.column("_row_id").to_pylist()) == list(range(2 * FILES))
    with catalog_at(catalog.url, "own") as theirs:
        found = theirs.load_table(client.table).scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == list(range(2 * FILES))
    assert catalog.commit(client.table, *client.request(snapshot)).status_code == 200, "the same request again"
    assert len(native.scan().plan()) == FILES


@pytest.mark.parametrize("are_large", [False, True])
def test_many_commits_at_once_are_all_answered_and_a_few_of_them_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_large: bool
) -> None:
    reading, decoding, fetching = Running(), Running(), Running()
    difference, decode, read = appends.difference, client_files.manifest_entries, client_files.ClientReads.entries

    async def counted_difference(*given: Any) -> Any:
        with reading.one():
            return await difference(*given)

    def counted_decode(*given: Any, **named: Any) -> Any:
        with decoding.one():
            return decode(*given, **named)

    async def counted_read(*given: Any) -> Any:
        with fetching.one():
            return await read(*given)

    monkeypatch.setattr(writing, "READ_AT_ONCE", READ_AT_ONCE)
    monkeypatch.setattr(appends, "difference", counted_difference)
    monkeypatch.setattr(client_files, "manifest_entries", counted_decode)
    monkeypatch.setattr(client_files.ClientReads, "entries", counted_read)
    if are_large:
        monkeypatch.setattr(client_files, "_SMALL_FILES", 0)
    statuses: list[int] = []
    with writing_catalog(tmp_path / "lake") as catalog:
        assert catalog.create("demo", name="busy", schema=SCHEMA).status_code == 200
        clients = [HandMade(catalog, "demo.busy") for _ in range(CLIENTS)]
        requests = [client.append(client.file(number)) for number, client in enumerate(clients)]
        together = threading.Barrier(CLIENTS)

        def send(request: tuple[list[Any], list[Any]]) -> None:
            together.wait()
            statuses.append(catalog.commit("demo.busy", *request).status_code)

        threads = [threading.Thread(target=send, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * CLIENTS
        assert clients[0].ids() == list(range(CLIENTS))
    assert reading.calls >= CLIENTS
    assert reading.most == READ_AT_ONCE
    assert decoding.most == 1
    assert fetching.most <= (1 if are_large else READ_AT_ONCE)
