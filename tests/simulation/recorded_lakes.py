"""Recordings of the stored lakes, and of an adopted table: their logs as they are, and after programs that use them.

Owns: the programs, and making a recording of a folder with a lake. Does not own: the stored lakes (`tests.stored`), the
form of a recording and the coordinator (`replayed_log`).
Invariants: a recording has the records of the log, each with its own append time, and every object but those that a
coordinator of the recording makes. So each replay finds what writers and workers stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import LogRecord
from rootline.workers.kinds import BY_HAND
from tests.catalog.adopt.test_adoption import written
from tests.catalog.adopted_lake import NAME, maintained
from tests.simulation.recorded_log import kind_of
from tests.simulation.replayed_log import TICK_S, Event, Record, Restart, Setup, Upload, write_recording
from tests.stored.stored_lake import append_to_all, unpack
from tests.stored.story import AGAIN, COMPACTED, DROPPED, TABLES, TRIPS, VIEW, _maintained

Objects = dict[str, bytes]
"""Key → body."""
_EVERY_RECORD: Final = 1_000_000
_RESTARTS_EVERY: Final = 25


def record_log_of_folder(path: Path) -> None:
    """The log of the stored folder from its first record, over the objects of its writers."""
    with _work() as work:
        folder = unpack("folder", work)
        _write(path, "stored-log", _objects(folder, without_roots=True), _records(folder))


def record_after_folder(path: Path) -> None:
    """The stored folder, used by this version."""
    with _work() as work:
        _used(path, "stored-folder", unpack("folder", work), _use)


def record_after_kafka(path: Path) -> None:
    """The stored bucket of the lake on Kafka, used by this version with a log of its own."""
    with _work() as work:
        _used(path, "stored-bucket", unpack("kafka", work) / "bucket", _use)


def record_adopted(path: Path) -> None:
    """A table of PyIceberg, adopted, changed and maintained."""
    with _work() as work:
        folder = work / "lake"
        folder.mkdir()
        _used(path, "adopted", folder, lambda lake, _: _adopt(lake, work / "others"))


def _used(path: Path, name: str, folder: Path, program: Callable[[Lake, Path], Iterator[Objects]]) -> None:
    """Run a program, which yields after each step: what a later step removes is in the recording as well."""
    objects, decided = _objects(folder), len(_records(folder))
    with connect(folder) as lake:
        for others in program(lake, folder):
            objects |= others | _objects(folder, without_roots=True)
    records = [record for record in _records(folder) if record.position.offset >= decided]
    _write(path, name, objects, records)


def _use(lake: Lake, folder: Path) -> Iterator[Objects]:
    """Change and maintain the tables of the stored story in every way that has a name."""
    append_to_all(lake)
    for name in TABLES:
        table = lake.table(name)
        table.tag("replayed")
        with table.alter() as change:
            change.set_properties({"rootline.expire.all-versions": "2", "rootline.expire.all-seconds": "1"})
            change.set_properties({"rootline.expire": "true", "rootline.expire.by-minute-seconds": "1"})
        for kind in ("flush", "compact", "compact-vectors", "convert", "compact-data", "expire", "sweep"):
            with contextlib.suppress(AssertionError, RootlineError):  # there is nothing to do
                _maintained(lake, str(folder), None, name, kind)
            yield {}
    trips = lake.table(TRIPS)
    trips.delete_where("id = 8")
    trips.restore(tag="replayed")
    trips.rewrite(where="id < 100")
    lake.table(COMPACTED).restore(tag="kept")
    lake.restore_table(DROPPED)
    lake.drop_table(DROPPED, purge=True)
    lake.drop_table(AGAIN)
    view = lake.view(VIEW)
    view.set_properties({"comment": "replayed"})
    view.rollback(1)
    yield {}


def _adopt(lake: Lake, others: Path) -> Iterator[Objects]:
    table, _ = written(others, 2)
    lake.adopt(table.metadata_location, NAME)
    yield {path.as_uri(): path.read_bytes() for path in others.rglob("*") if path.is_file()}
    flights: TableHandle = lake.table(NAME)
    flights.append(flights.scan(limit=3).to_arrow())
    flights.delete_where("id = 24")
    flights.overwrite(flights.scan(limit=2).to_arrow(), where="carrier = 'DL'")
    for kind in BY_HAND.values():
        with contextlib.suppress(RootlineError, ValueError):
            maintained(lake, kind)
        yield {}
    flights.restore(0)
    yield {}


@contextlib.contextmanager
def _work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="recorded-lake-") as made:
        yield Path(made)


def _objects(folder: Path, *, without_roots: bool = False) -> Objects:
    """The objects in a folder."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        key: path.read_bytes()
        for key, path in found.items()
        if not key.startswith(".rootline") and not (without_roots and "/metadata/roots/" in key)
    }


def _records(folder: Path) -> list[LogRecord]:
    async def read() -> list[LogRecord]:
        log = SqliteIntentLog(folder / ".rootline")
        try:
            return await log.read(0, limit=_EVERY_RECORD, wait_s=0.0)
        finally:
            await log.close()

    return asyncio.run(read()) if (folder / ".rootline" / "log.sqlite").exists() else []


def _write(path: Path, name: str, objects: Objects, records: list[LogRecord]) -> None:
    """One record a tick, as if each writer had waited for the verdict on the one before."""
    events: list[tuple[float, Event]] = [(0.0, Upload(key, body)) for key, body in objects.items()]
    for number, found in enumerate(records, start=1):
        record = Record(0, found.key, found.value, found.headers, kind_of(found.value, found.headers))
        events.append((number * TICK_S, replace(record, appended_ms=found.appended_ms)))
        if number % _RESTARTS_EVERY == 0:
            events.append(((number + 0.9) * TICK_S, Restart(is_killed=False)))
    write_recording(path, Setup(name, began_ms=records[0].appended_ms, fault_share=0.03), events)


RECORDINGS: Final = {
    "stored-log": record_log_of_folder,
    "stored-folder": record_after_folder,
    "stored-bucket": record_after_kafka,
    "adopted": record_adopted,
}
