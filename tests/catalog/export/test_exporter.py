"""What an export asks of the store, what it leaves there, and what happens when something goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from rootline.adapters.open import open_store
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.export_memory import FINISHED_MAX, Moment
from rootline.catalog.exporter import RECENT_S, ExportCost, ExportedTable, TableExporter
from rootline.connect import connect
from rootline.ports.object_store import ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.testing.object_stores import PUT_FAULTS, Fault, FaultyObjectStore, Operation
from tests.catalog.exported_lake import (
    SCHEMA,
    TABLE,
    V2,
    V3,
    ExportedLake,
    delete_by_id,
    ids_of,
    metadata_of,
    rows,
    sorted_rows,
)

FILES = "demo/flights"


def told(error: pytest.ExceptionInfo[RootlineError]) -> tuple[str, str]:
    return error.value.code, error.value.message


@pytest.fixture
def grown(exported: ExportedLake) -> ExportedLake:
    """Two leaves, a delete leaf, and rows in the root; versions 0 to 6."""
    for first in (0, 20):
        exported.table.append(rows(*range(first, first + 20)))
        exported.flush()
    exported.table.delete_where("id = 3 or id = 24")
    exported.flush()
    return exported


def test_a_version_that_is_known_takes_one_listing(grown: ExportedLake) -> None:
    first = grown.export()
    again = grown.export()
    assert again.cost == ExportCost(lists=1)
    assert (again.metadata, again.metadata_location) == (first.metadata, first.metadata_location)
    assert grown.export(version=first.version).cost == ExportCost()


def test_a_version_that_is_stored_takes_one_get(grown: ExportedLake) -> None:
    first = grown.export()
    other = grown.fresh()
    asked = grown.export(version=first.version, exporter=other)
    assert asked.cost == ExportCost(lists=1, gets=1)  # whether it is still the head's
    again = grown.export(exporter=grown.fresh())
    assert again.cost == ExportCost(lists=1, gets=1)
    assert again.metadata == first.metadata
    assert again.snapshot_timestamp_ms == grown.table.head().snapshot.timestamp_ms


def test_a_small_commit_is_exported_without_opening_a_leaf(grown: ExportedLake) -> None:
    grown.export()
    grown.table.append(rows(300))
    cost = grown.export().cost
    assert (cost.lists, cost.gets, cost.puts) == (1, 2, 3)  # metadata.json asked for, root; manifest, list, metadata
    assert not [key for key in grown.read if "/leaves/" in key]


def test_the_roots_since_the_newest_export_are_read_without_another_listing(grown: ExportedLake) -> None:
    grown.export()
    for number in range(300, 303):
        grown.table.append(rows(number))
    cost = grown.export().cost
    assert (cost.lists, cost.gets, cost.puts) == (1, 4, 7)  # metadata.json asked for, three roots; manifests and lists


def test_a_version_that_a_verdict_named_is_exported_without_a_listing(grown: ExportedLake) -> None:
    first = grown.export()
    grown.table.append(rows(300))
    head = Version(grown.head)

    def after_commit(exporter: TableExporter) -> ExportedTable:
        return asyncio.run(exporter.export(TABLE, V3, committed=head))

    found = after_commit(grown.exporter)
    assert (found.version, found.cost.lists, found.cost.puts) == (head, 0, 3)
    older = asyncio.run(grown.exporter.export(TABLE, V3, committed=first.version))
    assert (older.version, older.cost) == (head, ExportCost()), "a newer one that is known is as good"
    cold = after_commit(grown.fresh())
    assert (cold.version, cold.cost.lists) == (head, 1), "an exporter that has seen no head lists the roots"


def test_a_caller_who_needs_the_newest_version_gets_it_beside_one_who_does_not(grown: ExportedLake) -> None:
    async def at_once() -> list[ExportedTable]:
        running = asyncio.ensure_future(grown.exporter.export(TABLE, V3))
        await asyncio.sleep(0)
        first, second = (asyncio.ensure_future(grown.exporter.export(TABLE, V3, committed=at)) for at in (head, None))
        await asyncio.to_thread(grown.table.append, rows(300))
        return list(await asyncio.gather(running, first, second))

    grown.export()
    head = Version(grown.head)
    _, first, second = asyncio.run(at_once())
    assert first.version == second.version


def test_a_root_of_an_export_is_recent_for_two_seconds(grown: ExportedLake) -> None:
    now = Moment.now()
    exporter = TableExporter(grown.store(), grown.base_url, clock=lambda: now)
    assert exporter.recent_root(TABLE) is None
    asyncio.run(exporter.export(TABLE, V3))
    found = exporter.recent_root(TABLE)
    assert found is not None
    assert found.header.version == grown.head
    now = replace(now, monotonic_s=now.monotonic_s + RECENT_S + 0.1)
    assert exporter.recent_root(TABLE) is None


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_list_that_a_crash_left_without_its_manifest_is_completed(
    grown: ExportedLake, format_version: FormatVersion
) -> None:
    grown.export(format_version, exporter=grown.fresh())
    whole = grown.files()
    for key in whole:
        if "/manifests/" in key or key.endswith(".metadata.json"):
            (grown.folder / key).unlink()
    found = grown.export(format_version)
    assert grown.files() == whole
    assert ids_of(StaticTable.from_metadata(found.metadata_location).scan().to_arrow()) == ids_of(
        grown.table.scan().to_arrow()
    )


def test_another_process_goes_on_from_what_is_stored(grown: ExportedLake) -> None:
    grown.export()
    grown.table.append(rows(300))
    cost = grown.export(exporter=grown.fresh()).cost
    assert (cost.lists, cost.puts) == (2, 3)  # head, newest export
    assert cost.gets == 5  # metadata.json asked for, root, definition, newest metadata.json and its manifest list
    assert not [key for key in grown.read if "/leaves/" in key]


def test_what_a_commit_kills_in_a_leaf_costs_that_leaf(grown: ExportedLake) -> None:
    grown.export()
    grown.table.overwrite(rows(1000), where="id < 7")
    found = grown.export()
    read = [key for key in grown.read if "/leaves/" in key]
    assert len(read) <= 2  # the data leaf that has them, and the delete leaf of vectors that went with them
    assert sorted_rows(StaticTable.from_metadata(found.metadata_location).scan().to_arrow()) == sorted_rows(
        grown.table.scan().to_arrow()
    )


@pytest.mark.parametrize("format_version", [V2, V3])
def test_nothing_that_is_stored_is_written_again(grown: ExportedLake, format_version: FormatVersion) -> None:
    written: list[str] = []
    for step in range(4):
        grown.export(format_version)
        written += grown.written
        grown.table.append(rows(*range(400 + 10 * step, 403 + 10 * step)))
        if step == 1:
            grown.table.delete_where("id = 10")
        if step == 2:
            grown.flush()
    assert len(written) == len(set(written))


@pytest.mark.parametrize("format_version", [V2, V3])
def test_two_exporters_write_the_same_bytes(grown: ExportedLake, format_version: FormatVersion, tmp_path: Path) -> None:
    one = grown.export(format_version, exporter=grown.fresh())
    first = grown.files()
    shutil.move(grown.folder / FILES / "export", tmp_path / "before")
    for version in range(grown.head + 1):  # another way to the same version
        other = grown.export(format_version, version)
    assert other.metadata == one.metadata
    second = grown.files()
    assert {key: second[key] for key in first} == first


def test_exporters_side_by_side_agree(grown: ExportedLake) -> None:
    async def both() -> list[ExportedTable]:
        return await asyncio.gather(*(grown.fresh().export(TABLE, V3) for _ in range(3)))

    found = asyncio.run(both())
    assert len({each.metadata for each in found}) == 1
    read = StaticTable.from_metadata(found[0].metadata_location).scan().to_arrow()
    assert sorted_rows(read) == sorted_rows(grown.table.scan().to_arrow())


class SlowStore(FaultyObjectStore):
    """Answers after a while, and notes how many requests of each kind ran at the same time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, lambda _, __: None)
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.keys: list[str] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        async with self._noted("root" if "/roots/" in key else "get"):
            return await super().get(key)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        self.keys.append(key)
        async with self._noted("list" if "/lists/" in key else "put"):
            return await super().put_if_absent(key, body, after=after)

    @contextlib.asynccontextmanager
    async def _noted(self, what: str) -> AsyncIterator[None]:
        self.running[what] += 1
        self.most[what] = max(self.most[what], self.running[what])
        for _ in range(20):  # long enough for all that wait for nothing else
            await asyncio.sleep(0)
        yield
        self.running[what] -= 1


@pytest.mark.parametrize("format_version", [V2, V3])
def test_versions_that_were_not_exported_yet_are_made_side_by_side(
    tmp_path: Path, format_version: FormatVersion
) -> None:
    with connect(tmp_path / "lake") as lake:
        made = ExportedLake(tmp_path / "lake", lake, **{"rootline.export.snapshots": "100"})
        for number in range(12):
            made.table.append(rows(2 * number, 2 * number + 1))
            made.table.delete_where(f"id = {2 * number}")
        delete_by_id(made, 3, 5)
        made.flush()
        made.table.append(rows(99))
        store = SlowStore(open_store(str(made.folder)))
        found = asyncio.run(TableExporter(store, made.base_url).export(TABLE, format_version))
        assert 4 <= store.most["root"] <= 8
        assert 2 <= store.most["list"] <= 8
        assert len(store.keys) == len(set(store.keys)), "no version makes what another one makes"
        shutil.rmtree(made.folder / FILES / "export")
        for version in range(1, made.head + 1):  # another way to the same version: one after the other
            one = made.export(format_version, version, made.fresh() if version % 5 == 0 else None)
        assert one.metadata == found.metadata


def test_callers_at_the_same_time_share_one_making(grown: ExportedLake) -> None:
    async def several() -> list[ExportedTable]:
        return await asyncio.gather(*(grown.exporter.export(TABLE, V3) for _ in range(5)))

    found = asyncio.run(several())
    assert len({each.metadata for each in found}) == 1
    *others, maker = sorted((each.cost for each in found), key=lambda cost: cost.puts)
    assert maker.puts > 0
    assert others == [ExportCost()] * 4


class HeldStore(FaultyObjectStore):
    """Stores no metadata.json before it is released."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, lambda _, __: None)
        self.is_held, self.is_released = asyncio.Event(), asyncio.Event()
        self.made: list[ObjectKey] = []

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        if key.endswith(".metadata.json"):
            self.made.append(key)
            self.is_held.set()
            await self.is_released.wait()
        return await super().put_if_absent(key, body, after=after)


def test_callers_that_wait_for_a_running_export_share_the_next_one(grown: ExportedLake) -> None:
    """A busy table has a new version for each of them. They get one export, and not one for each."""

    async def several() -> tuple[list[ExportedTable], HeldStore]:
        store = HeldStore(open_store(str(grown.folder)))
        exporter = TableExporter(store, grown.base_url)
        callers = [asyncio.ensure_future(exporter.export(TABLE, V3))]
        await store.is_held.wait()
        for number in range(4):
            await asyncio.to_thread(grown.table.append, rows(number))
            callers.append(asyncio.ensure_future(exporter.export(TABLE, V3)))
            await asyncio.sleep(0)
        store.is_released.set()
        return await asyncio.gather(*callers), store

    head = grown.head
    found, store = asyncio.run(several())
    assert [each.asked_version for each in found] == [head, *[head + 4] * 4]
    assert len(store.made) == 2


def test_a_caller_that_gives_up_takes_nobody_along(grown: ExportedLake) -> None:
    async def one_gives_up() -> ExportedTable:
        impatient = asyncio.create_task(grown.exporter.export(TABLE, V3))
        patient = asyncio.create_task(grown.exporter.export(TABLE, V3))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        return await patient

    assert asyncio.run(one_gives_up()).version == grown.head


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_crash_at_any_request_leaves_nothing_wrong(tmp_path: Path, format_version: FormatVersion) -> None:
    with connect(tmp_path / "lake") as lake:
        small = ExportedLake(tmp_path / "lake", lake, **{"rootline.export.snapshots": "2"})
        small.table.append(pa.table({"id": [1, 2, 3], "carrier": ["UA"] * 3, "delay": [0.5] * 3}))
        small.flush()
        small.table.delete_where("id = 2")
        _crash_everywhere(small, format_version)


def _crash_everywhere(grown: ExportedLake, format_version: FormatVersion) -> None:
    wanted = grown.export(format_version, exporter=grown.fresh())
    total = sum(grown.requests.values())
    whole = grown.files()
    for crash_at in range(total):
        shutil.rmtree(grown.folder / FILES / "export")
        asked = 0

        def crash(operation: Operation, key: str, crash_at: int = crash_at) -> Fault | None:
            nonlocal asked
            asked += 1
            if asked <= crash_at:
                return None
            return Fault.LOST_REPLY if operation is Operation.PUT and asked == crash_at + 1 else _outage(operation)

        grown.fault = crash
        exporter = grown.fresh()
        with pytest.raises((Unavailable, Corrupt)):
            grown.export(format_version, exporter=exporter)
        left = {key for key in grown.files() if key.endswith(".metadata.json")} if _has_export(grown) else set()
        assert len(left) <= 1, "the metadata.json is the last that is written"
        grown.fault = lambda _, __: None
        again = grown.export(format_version, exporter=exporter if crash_at % 2 else grown.fresh())
        assert again.metadata == wanted.metadata
        assert grown.files() == whole


def _outage(operation: Operation) -> Fault:
    return Fault.FULL if operation is Operation.PUT else Fault.UNAVAILABLE


def _has_export(lake: ExportedLake) -> bool:
    return (lake.folder / FILES / "export").exists()


@pytest.mark.parametrize("fault", sorted(PUT_FAULTS - {Fault.LANDS_LATER}, key=str))
def test_a_put_without_a_clear_answer_is_looked_up(grown: ExportedLake, fault: Fault) -> None:
    grown.fault = lambda operation, _: fault if operation is Operation.PUT else None
    if fault in (Fault.FULL, Fault.LOST_REQUEST):
        with pytest.raises(Unavailable):
            grown.export()
    else:
        grown.export()
    grown.fault = lambda _, __: None
    read = grown.opened().scan().to_arrow()
    assert sorted_rows(read) == sorted_rows(grown.table.scan().to_arrow())


@pytest.mark.parametrize("format_version", [V2, V3])
@pytest.mark.parametrize(
    "pattern", ["metadata/leaves/*-data-*", "metadata/leaves/*-delete-*", "metadata/definitions/*", "data/*.puffin"]
)
def test_what_is_damaged_is_reported_as_a_scan_reports_it(
    grown: ExportedLake, pattern: str, format_version: FormatVersion
) -> None:
    found = sorted((grown.folder / FILES).glob(pattern))
    bodies = {path: path.read_bytes() for path in found}
    assert bodies
    for path, body in bodies.items():
        half = len(body) // 2 if path.suffix != ".puffin" else 20
        path.chmod(0o644)
        path.write_bytes(body[:half] + bytes([body[half] ^ 1]) + body[half + 1 :])
    with connect(grown.folder) as other, pytest.raises(Corrupt) as scanned:
        other.table(TABLE).scan().to_arrow()
    with pytest.raises(Corrupt) as caught:
        grown.export(format_version)
    assert told(caught)[0] == told(scanned)[0]
    assert any(path.name in told(caught)[1] for path in found)
    assert not [key for key in grown.files() if key.endswith(".metadata.json")]
    for path, body in bodies.items():
        path.write_bytes(body)
    assert grown.export(format_version).version == grown.head


def test_a_damaged_root_is_reported_as_a_scan_reports_it(grown: ExportedLake) -> None:
    head = sorted((grown.folder / FILES / "metadata/roots").iterdir())[0]
    body = head.read_bytes()
    head.chmod(0o644)
    head.write_bytes(body[:-100] + bytes([body[-100] ^ 1]) + body[-99:])
    with pytest.raises(Corrupt) as caught:
        grown.export()
    assert (told(caught)[0], head.name in told(caught)[1]) == ("root-corrupt", True)
    assert not _has_export(grown)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_metadata_json_is_refused_by_name(grown: ExportedLake, damage: str) -> None:
    location = grown.export().metadata_location
    path = Path(location.removeprefix("file://"))
    body = path.read_bytes()
    path.chmod(0o644)
    half = len(body) // 2
    flipped = body[:half] + bytes([body[half] ^ 1]) + body[half + 1 :]
    path.write_bytes({"flip": flipped, "cut": body[:half], "empty": b""}[damage])
    with pytest.raises(Corrupt) as caught:
        grown.export(exporter=grown.fresh())
    code, message = told(caught)
    assert code == "export-corrupt"
    assert path.name in message
    assert "delete this object" in message
    path.unlink()
    assert grown.export(exporter=grown.fresh()).metadata == body


def test_a_damaged_manifest_list_is_not_built_upon(grown: ExportedLake) -> None:
    grown.export()
    path = next((grown.folder / FILES).glob(f"export/v3/*/lists/*-{grown.head}-*.avro"))
    body = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(body[:-20] + bytes([body[-20] ^ 1]) + body[-19:])
    grown.table.append(rows(300))
    with pytest.raises(Corrupt) as caught:
        grown.export(exporter=grown.fresh())
    assert told(caught)[0] == "export-corrupt"
    assert path.name in told(caught)[1]
    named = re.findall(r"delete this object and (\S+) and export again", told(caught)[1])
    for key in (str(path.relative_to(grown.folder)), *named):
        (grown.folder / key).unlink()
    read = StaticTable.from_metadata(grown.export(exporter=grown.fresh()).metadata_location).scan().to_arrow()
    assert sorted_rows(read) == sorted_rows(grown.table.scan().to_arrow())
    assert path.read_bytes() == body


def test_foreign_objects_between_the_exports_are_passed_over(grown: ExportedLake) -> None:
    path = Path(grown.export().metadata_location.removeprefix("file://"))
    for name in ("0-note.txt", "00000000-1.metadata.json"):
        (path.parent / name).write_text("hello")
    grown.table.append(rows(300))
    assert grown.export(exporter=grown.fresh()).cost.puts == 3


def test_what_is_no_table_or_no_version_is_refused(grown: ExportedLake) -> None:
    with pytest.raises(Invalid) as caught:
        asyncio.run(grown.exporter.export(TableName("demo.nothing"), V3))
    assert told(caught)[0] == "table-unknown"
    for version in (grown.head + 1, -1):
        with pytest.raises(Invalid) as caught:
            grown.export(version=version)
        assert told(caught)[0] == "version-unknown"
    assert not _has_export(grown)


def test_a_lake_that_moved_is_exported_anew(grown: ExportedLake, tmp_path: Path) -> None:
    grown.export()
    scanned = sorted_rows(grown.table.scan().to_arrow())
    moved = tmp_path / "elsewhere"
    shutil.copytree(grown.folder, moved)
    shutil.rmtree(grown.folder / FILES / "data")
    exporter = TableExporter(open_store(str(moved)), f"file://{moved}")
    found = asyncio.run(exporter.export(TABLE, V3))
    assert found.metadata_location.startswith(f"file://{moved}/")
    assert metadata_of(found)["location"] == f"file://{moved}/demo/flights"
    assert sorted_rows(StaticTable.from_metadata(found.metadata_location).scan().to_arrow()) == scanned


def test_the_table_says_in_which_format_it_is_exported(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        two = ExportedLake(tmp_path / "lake", lake, **{"rootline.export.format": "2"})
        two.table.append(rows(1, 2))
        found = asyncio.run(two.exporter.export(TABLE))
        assert (found.format_version, metadata_of(found)["format-version"]) == (V2, 2)
        assert asyncio.run(two.exporter.export(TABLE)).cost == ExportCost(lists=1)
        with pytest.raises(Invalid, match=r"rootline\.export\.format is '4'; it must be 2 or 3"):
            lake.create_table("demo.wrong", SCHEMA, properties={"rootline.export.format": "4"})


def test_makings_end_with_their_exporter(grown: ExportedLake) -> None:
    async def story() -> None:
        writes = asyncio.Event()
        grown.fault = lambda operation, _: writes.set() if operation is Operation.PUT else None
        waiting = asyncio.create_task(grown.exporter.export(TABLE, V3))
        await writes.wait()
        await grown.exporter.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(story())
    assert grown.export().version == grown.head


def test_what_an_exporter_remembers_is_bounded(exported: ExportedLake) -> None:
    for number in range(FINISHED_MAX + 3):
        exported.table.append(rows(number))
        exported.export()
    memory = exported.exporter._memory.of(TABLE, V3)
    assert len(memory.finished) == FINISHED_MAX
    newest = json.loads(memory.finished[Version(exported.head)].body)
    assert set(memory.index.snapshots) == {snapshot["snapshot-id"] for snapshot in newest["snapshots"]}
    assert len(memory.index.manifests) == 1  # all rows are in one block
