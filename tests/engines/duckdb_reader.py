"""DuckDB in this process, with Iceberg's and what that needs from packages: nothing is downloaded.

Owns: the connection and how a table is named in it. Does not own: what the rows should be.
Invariants: DuckDB asks no network for extensions; times are UTC.
"""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

_EXTENSIONS = ("avro", "httpfs", "iceberg")


class DuckDBReader:
    """What DuckDB reads of Iceberg tables."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(
        self, metadata_location: str, *, columns: Sequence[str] = (), where: str = "", snapshot_id: int | None = None
    ) -> pa.Table:
        """The rows of the table that `metadata_location` describes."""
        options = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}"
        return self.query(_select(f"iceberg_scan('{_quoted(metadata_location)}'{options})", columns, where))

    def attach(self, name: str, address: str, warehouse: str = "", *, token: str | None = None, more: str = "") -> None:
        """Name a REST catalog; its tables are `name.namespace.table`. `more`: another option of the statement."""
        security = "AUTHORIZATION_TYPE none" if token is None else f"TOKEN '{_quoted(token)}'"
        options = ", ".join(filter(None, ["TYPE iceberg", f"ENDPOINT '{_quoted(address)}'", security, more]))
        self._connection.execute(f"ATTACH '{_quoted(warehouse)}' AS {name} ({options})")

    def run(self, *statements: str) -> None:
        """Run statements without rows, such as those around a transaction."""
        for statement in statements:
            self._connection.execute(statement)

    def query(self, statement: str) -> pa.Table:
        """The rows of a query."""
        found: pa.Table = self._connection.execute(statement).to_arrow_table()
        return found


@contextlib.contextmanager
def open_duckdb() -> Iterator[DuckDBReader]:
    """A DuckDB in memory, until the block ends."""
    without_network = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with contextlib.closing(duckdb.connect(config=without_network)) as connection:
        for name in _EXTENSIONS:
            connection.execute(f"LOAD '{_quoted(str(_extension(name)))}'")
        connection.execute("SET threads = 2")
        connection.execute("SET TimeZone = 'UTC'")
        yield DuckDBReader(connection)


def _extension(name: str) -> Path:
    package = importlib.resources.files(f"duckdb_extension_{name}")
    [path] = Path(str(package)).glob(f"extensions/*/{name}.duckdb_extension")
    return path


def _select(source: str, columns: Sequence[str], where: str) -> str:
    return f"SELECT {', '.join(columns) or '*'} FROM {source}" + (f" WHERE {where}" if where else "")


def _quoted(text: str) -> str:
    return text.replace("'", "''")
