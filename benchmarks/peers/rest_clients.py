"""Iceberg's own clients that append at once through a REST catalog, and what is found of their rows afterwards.

Owns: the clients and their settings, one round, reading back. Does not own: the catalogs (`rest_catalogs`), the figures
(`scenarios`).
Invariants: every catalog gets the same clients with the same settings; the rows are read by a process that wrote none;
an append that failed may have committed its rows or none, and every other one has each of its rows once.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.coordinator_process import cpu_of_tree
from benchmarks.peers.bench import Bench, Where
from benchmarks.peers.iceberg_java import aws_jar
from benchmarks.peers.protocol import MOST, Place
from benchmarks.peers.rest_catalogs import ServedCatalog
from benchmarks.peers.software import peers_python
from benchmarks.peers.subjects import S3FS, Subject
from tests.engines.iceberg_software import iceberg_software

ROWS: Final = 10
_RETRIES: Final = {"retries": "100"}
_PATIENCE_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Client:
    """A kind of client. `words` name many of them at once; `is_one_process` makes them threads of one process."""

    words: str
    is_one_process: bool
    subject: Callable[[Where, int], Subject]


@dataclass(slots=True)
class Written:
    """The outcome of all rounds of one catalog. `lost` and `doubled` count rows."""

    seconds: list[float] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    clients_cpu_s: float = 0.0
    servers_cpu_s: float = 0.0
    lost: int = 0
    doubled: int = 0


def _pyiceberg(where: Where, number: int) -> Subject:
    # a folder needs no library for S3, so the PyIceberg of this environment writes there
    python, options = (sys.executable, {}) if where == "folder" else (peers_python(), S3FS)
    command = (python, "-m", "benchmarks.peers.pyiceberg_peer")
    return Subject("PyIceberg", "best", "", lambda: command, {**_RETRIES, **options})


def _spark(where: Where, number: int) -> Subject:
    software = iceberg_software()
    options = {**_RETRIES, "jars": f"{software.jar}{os.pathsep}{aws_jar()}", "threads": str(number)}
    command = (str(software.python), "-m", "benchmarks.peers.spark_client")
    return Subject("Spark with Iceberg", "best", "", lambda: command, options)


PYICEBERG: Final = Client("PyIceberg writers", False, _pyiceberg)
SPARK: Final = Client("inserts of one Spark at once", True, _spark)


def write_round(
    bench: Bench, server: Subject, client: Client, where: Where, number: int, seconds: float, written: Written
) -> None:
    """Let `number` clients append for so long to a fresh table of a fresh catalog, and read all rows back.

    Raises:
        DriverFailed: a client did not start, or ended.
        Missing: the software of the catalog or of the client cannot be had.
    """
    assert server.serves is not None
    place, subject = bench.place(server, where, "rows"), client.subject(where, number)
    with ExitStack() as around:
        catalog = around.enter_context(server.serves(place))
        options = {**place["options"], **subject.options, "uri": catalog.uri, "warehouse": catalog.warehouse}
        of_client: Place = {**place, "options": options}
        processes, threads = (1, number) if client.is_one_process else (number, 1)
        drivers = around.enter_context(bench.drivers(subject, of_client, processes))
        servers = (*catalog.processes, *bench.databases(server))
        for at, driver in enumerate(drivers):  # the first append loads libraries
            driver.send(append=[at * MOST, 1], rows=ROWS)
        warmed = [at * MOST for at, driver in enumerate(drivers) if driver.answer(_PATIENCE_S)["seconds"]]
        began = [sum(map(cpu_of_tree, pids)) for pids in ([driver.pid for driver in drivers], servers)]
        for at, driver in enumerate(drivers):
            driver.send(loop=at * MOST + 1, seconds=seconds, most=MOST - 1, rows=ROWS, threads=threads)
        answers = [driver.answer(seconds + _PATIENCE_S) for driver in drivers]
        ended = [sum(map(cpu_of_tree, pids)) for pids in ([driver.pid for driver in drivers], servers)]
        took = [one for answer in answers for one in answer["seconds"]]
        elapsed = max(answer["elapsed"] for answer in answers)
        written.seconds += took
        written.failed += [tuple(one) for answer in answers for one in answer["failed"]]
        written.rates.append(len(took) / elapsed)
        written.elapsed_s += elapsed
        written.clients_cpu_s += ended[0] - began[0]
        written.servers_cpu_s += ended[1] - began[1]
        landed = [*warmed, *(number for answer in answers for number in answer["landed"])]
        found = _ids(catalog, of_client, bench, where)
    expected = {number * ROWS + row for number in landed for row in range(ROWS)}
    written.lost += len(expected - found.keys())
    written.doubled += sum(times - 1 for times in found.values())


def _ids(catalog: ServedCatalog, place: Place, bench: Bench, where: Where) -> Counter[int]:
    """Every id in the table, with the number of its rows. Read without the delay, by this process."""
    from pyiceberg.catalog.rest import RestCatalog

    properties: dict[str, str] = {}
    if where != "folder":
        store = bench.store("near")
        properties = {
            "s3.endpoint": store.endpoint,
            "s3.access-key-id": store.access_key_id,
            "s3.secret-access-key": store.secret_access_key,
            "s3.region": "us-east-1",
        }
    reader = RestCatalog("reader", uri=catalog.uri, warehouse=catalog.warehouse, **properties)
    try:
        table = reader.load_table(f"{place['options'].get('schema', 'bench')}.{place['table']}")
        return Counter(table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())
    finally:
        reader.close()
