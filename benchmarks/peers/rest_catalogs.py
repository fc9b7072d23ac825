"""REST catalogs as their users start them: Rootline's beside its coordinator, and Iceberg's reference server.

Owns: starting and stopping both, their settings. Does not own: the clients (`pyiceberg_peer`, `spark_client`), the
database (`bench`), the software of the reference server (`iceberg_java`).
Invariants: each serves one place, reaches the store only through the place's endpoint, and ends with its block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command_process import running_command
from benchmarks.peers.iceberg_java import server_command
from benchmarks.peers.protocol import Place
from examples.spark_demo.service import running
from tests.services.service_process import HOST, ServiceProcess, free_port

_CONNECTIONS: Final = "32"


@dataclass(frozen=True, slots=True)
class ServedCatalog:
    """A running catalog. `warehouse` is the name that clients send; `processes` are the ids of its processes."""

    uri: str
    warehouse: str
    processes: tuple[int, ...]


@contextmanager
def rootline_catalog(place: Place) -> Iterator[ServedCatalog]:
    """`rootline coordinator` and `rootline catalog serve --log`, with a log in SQLite."""
    folder, log = Path(place["folder"]), f"sqlite://{place['folder']}/log"
    environment = {}
    if place["endpoint"]:
        environment = {
            "ROOTLINE_S3__ENDPOINT": place["endpoint"],
            "ROOTLINE_S3__ACCESS_KEY_ID": place["access_key"],
            "ROOTLINE_S3__SECRET_ACCESS_KEY": place["secret_key"],
        }
    words = ("catalog", "serve", "--warehouse", place["warehouse"], "--log", log, "--port", "0")
    with running_command(folder / "coordinator.err", place["warehouse"], log, environment) as coordinator:
        coordinator.wait_ready()
        with running(*words, output=folder / "catalog.err", environment=environment) as catalog:
            yield ServedCatalog(catalog.url, "own", (coordinator.process.pid, catalog.process.pid))


@contextmanager
def reference_catalog(place: Place) -> Iterator[ServedCatalog]:
    """Iceberg's reference REST server with a JDBC catalog in the PostgreSQL of the place's options.

    Raises:
        Missing: the server cannot be had.
    """
    database = dict(word.split("=") for word in place["options"]["database"].split())
    properties = {
        "uri": f"jdbc:postgresql://{database['host']}:{database['port']}/{database['dbname']}",
        "jdbc.user": database["user"],
        "jdbc.schema-version": "V1",
        "clients": _CONNECTIONS,
        "warehouse": place["warehouse"],
    }
    if place["endpoint"]:
        properties |= {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": place["endpoint"],
            "s3.access-key-id": place["access_key"],
            "s3.secret-access-key": place["secret_key"],
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }
    port = free_port()
    variables = {
        f"CATALOG_{name.replace('-', '__').replace('.', '_').upper()}": properties[name] for name in properties
    }
    environment = {**variables, "CATALOG_REST_PORT": str(port)}
    server = ServiceProcess(server_command(), Path(place["folder"]) / "rest.err", environment)
    try:
        server.wait_ready(port)
        yield ServedCatalog(f"http://{HOST}:{port}", "", (server.pid,))
    finally:
        server.stop()
