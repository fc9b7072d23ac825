"""What all scenarios share: the store with and without delay, places for tables, drivers, and the records of a run.

Owns: the services, opening a table for each subject, records. Does not own: what is measured (`scenarios`).
Invariants: each table has a prefix, a folder and a driver of its own; a subject that cannot be opened becomes a record
with the reason, and the others go on.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.far_services import ADDED_MS
from benchmarks.measure import load_average
from benchmarks.peers.driver import Driver, DriverFailed, Missing, running_driver
from benchmarks.peers.protocol import Place
from benchmarks.peers.subjects import FLOOR, Subject
from tests.services.s3_service import S3Service, running_s3
from tests.services.service_process import HOST, ServiceProcess, free_port
from tests.services.toxiproxy import running_toxiproxy

Where = Literal["near", "far", "folder"]
WHERE_WORDS: Final = {"near": "S3, local", "far": f"S3, +{ADDED_MS} ms", "folder": "local folder"}
_OPEN_S: Final = 120.0
_AT_ONCE: Final = 8
_FOLDER: Final = re.compile(r"/[^\s'\"]*rootline-bench-[^/\s'\"]*")


@dataclass(frozen=True, slots=True)
class Record:
    """One subject in one scenario. `parameters` are what it was asked to do, `figures` what was measured.

    `run`: the place of its run in the list of runs. `reason`: why there are no figures. `failures`: reasons of failed
    commits, with their number.
    """

    scenario: str
    peer: str
    settings: str
    where: str
    parameters: dict[str, int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    load: float = 0.0
    run: int = 0


@dataclass(slots=True)
class Run:
    """All records so far; `save` is called after each scenario."""

    records: list[Record] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        scenario: str,
        subject: Subject,
        where: Where,
        parameters: dict[str, int],
        figures: dict[str, float],
        failures: dict[str, int] | None = None,
    ) -> None:
        self.records.append(
            Record(
                scenario,
                subject.peer,
                subject.settings,
                where,
                parameters,
                {name: float(f"{value:.6g}") for name, value in figures.items()},
                failures or {},
                load=load_average(),
            )
        )
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"  {subject.key}, {where}, {parameters}: {shown} {failures or ''}", flush=True)

    def miss(self, scenario: str, subject: Subject, where: Where, parameters: dict[str, int], reason: str) -> None:
        reason = _FOLDER.sub("FOLDER", reason)
        self.records.append(Record(scenario, subject.peer, subject.settings, where, parameters, reason=reason))
        print(f"  {subject.key}, {where}, {parameters}: not measured: {reason}", flush=True)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(record) for record in self.records]


class Bench:
    """The services of a run, and its subjects."""

    def __init__(self, subjects: list[Subject], run: Run, until_closed: ExitStack) -> None:
        self.subjects, self.run = subjects, run
        self._until_closed = until_closed
        name = until_closed.enter_context(
            tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".", ignore_cleanup_errors=True)
        )
        self.root = Path(name).resolve()
        self._stores: dict[Where, S3Service] = {}
        self._postgres: tuple[str, int] | None = None
        self._prepared: set[int] = set()

    def store(self, where: Where) -> S3Service:
        if "near" not in self._stores:
            self._stores["near"] = self._until_closed.enter_context(running_s3(made(self.root / "s3")))
        if where == "far" and "far" not in self._stores:
            near = self._stores["near"]
            toxiproxy = self._until_closed.enter_context(running_toxiproxy(made(self.root / "proxy")))
            proxy = self._until_closed.enter_context(toxiproxy.proxy("far", near.address))
            proxy.add("latency", stream="downstream", latency=ADDED_MS)
            self._stores["far"] = S3Service(proxy.endpoint, near.access_key_id, near.secret_access_key, near.bucket)
        return self._stores[where]

    def place(self, subject: Subject, where: Where, table: str, store: S3Service | None = None) -> Place:
        """A fresh place for a table."""
        name = f"peers-{uuid.uuid4().hex[:12]}"
        folder = made(self.root / name)
        options = dict(subject.options)
        if subject.catalog == "postgres":
            options |= {"database": self._running_postgres()[0], "schema": name.replace("-", "_")}
        place: Place = {
            "endpoint": "",
            "access_key": "",
            "secret_key": "",
            "bucket": "",
            "warehouse": str(made(folder / "lake")),
            "folder": str(made(folder / "own")),
            "table": table,
            "creates": True,
            "options": options,
        }
        if where != "folder":
            store = store or self.store(where)
            place["endpoint"], place["bucket"] = store.endpoint, store.bucket
            place["access_key"], place["secret_key"] = store.access_key_id, store.secret_access_key
            place["warehouse"] = f"s3://{store.bucket}/{name}"
            options["files"] = f"s3://{store.bucket}/peers-files"
        return place

    @contextmanager
    def driver(self, subject: Subject, place: Place) -> Iterator[Driver]:
        """A driver with its table open.

        Raises:
            DriverFailed: it did not open.
            Missing: its software cannot be had.
        """
        with running_driver(subject.command(), Path(place["folder"]) / "driver.err") as driver:
            found = driver.ask(_OPEN_S, open=place)
            self.run.versions[subject.peer] = found["version"]
            yield driver

    @contextmanager
    def drivers(self, subject: Subject, place: Place, number: int) -> Iterator[list[Driver]]:
        """`number` drivers of one table, which the first one makes. They start side by side.

        Raises:
            DriverFailed: one did not open.
            Missing: its software cannot be had.
        """
        with ExitStack() as stack:
            found = [stack.enter_context(self.driver(subject, place))]
            joins: Place = {**place, "creates": False}
            while len(found) < number:
                group = [
                    stack.enter_context(running_driver(subject.command(), Path(place["folder"]) / "driver.err"))
                    for _ in range(min(_AT_ONCE, number - len(found)))
                ]
                for driver in group:
                    driver.send(open=joins)
                for driver in group:
                    driver.answer(_OPEN_S)
                found += group
            yield found

    def prepare(self, subject: Subject, driver: Driver, numbers: range) -> None:
        """Store the files of these numbers for a subject that reads them. All tables of a scenario share them."""
        missing = [number for number in numbers if number not in self._prepared] if subject.reads_files else []
        if missing:
            driver.ask(prepare=[missing[0], missing[-1] - missing[0] + 1])
            self._prepared.update(numbers)

    @contextmanager
    def opened(
        self,
        scenario: str,
        where: Where,
        table: str,
        parameters: dict[str, int],
        *,
        fits: Callable[[Subject], str] = lambda _: "",
        prepared: int = 0,
        store: S3Service | None = None,
    ) -> Iterator[dict[Subject, tuple[Driver, Place]]]:
        """A driver and a table for each subject, all at once. `fits` returns a reason to pass a subject over."""
        with ExitStack() as stack:
            found: dict[Subject, tuple[Driver, Place]] = {}
            for subject in self.subjects:
                reason = fits(subject)
                if not reason:
                    try:
                        place = self.place(subject, where, table, store)
                        driver = stack.enter_context(self.driver(subject, place))
                        self.prepare(subject, driver, range(prepared))
                        found[subject] = driver, place
                    except (DriverFailed, Missing) as error:
                        reason = str(error)
                if reason and subject.peer != FLOOR:
                    self.run.miss(scenario, subject, where, parameters, reason)
            yield found

    def databases(self, subject: Subject) -> list[int]:
        """The process ids of the database servers that a subject needs."""
        return [self._running_postgres()[1]] if subject.catalog == "postgres" else []

    def _running_postgres(self) -> tuple[str, int]:
        if self._postgres is None:
            self._postgres = self._until_closed.enter_context(running_postgres(self.root))
        return self._postgres


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@contextmanager
def running_postgres(root: Path) -> Iterator[tuple[str, int]]:
    """A PostgreSQL with its data in a folder of its own, on a port that the system picks: how to connect, its process.

    Raises:
        Missing: there is no PostgreSQL server on this machine.
    """
    initdb = shutil.which("initdb") or next(
        map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[-1:]), None
    )
    if initdb is None:
        raise Missing("there is no PostgreSQL server on this machine")
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as name:
        data, before = Path(name) / "data", []
        if os.getuid() == 0:  # the server refuses to run as root
            try:
                account = pwd.getpwnam("postgres")
            except KeyError:
                raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None
            os.chown(name, account.pw_uid, account.pw_gid)
            before = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        port = free_port()
        make = [*before, initdb, "--pgdata", str(data), "--username", "bench", "--auth", "trust", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd=name)
        server = str(Path(initdb).with_name("postgres"))
        command = [
            *before,
            server,
            "-D",
            str(data),
            "-p",
            str(port),
            "-h",
            HOST,
            "-k",
            name,
            "-c",
            "max_connections=200",
        ]
        process = ServiceProcess(command, root / "postgres.log")
        try:
            process.wait_ready(port)
            yield f"host={HOST} port={port} user=bench dbname=postgres", process.pid
        finally:
            process.stop()
