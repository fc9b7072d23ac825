"""The driver of DuckLake: `ducklake_add_data_files`, with a catalog in DuckDB, SQLite or PostgreSQL.

DuckLake takes statistics from the footer of a real file, so `prepare` stores a Parquet file of two rows for each
number: the least and the greatest value of every column.

Options: `catalog` is `duckdb` or `sqlite`, or else `database` is a connection string of PostgreSQL and `schema` a
schema there; `retries` sets `ducklake_max_retry_count`; `attach` is added to the options of `ATTACH`; `files` is where
`prepare` stores files, for all lakes.
"""

from __future__ import annotations

import importlib
import importlib.resources
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers import files
from benchmarks.peers.protocol import Peer, Place, serve

_DUCKDB: Final[Any] = importlib.import_module("duckdb")
_TYPES: Final = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "timestamp": pa.timestamp("us")}
_SQL: Final = {"long": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "timestamp": "TIMESTAMP"}
_SNAPSHOTS_KEPT: Final = 1_000
_WRITERS: Final = 8


class DuckLake:
    """One connection with the lake attached."""

    version = f"{version('duckdb-extension-ducklake')}, DuckDB {version('duckdb')}"

    def open(self, place: Place) -> None:
        self._place = place
        self._lake = self._attached()
        if place["creates"]:
            columns = ", ".join(f"{name} {_SQL[kind]}" for name, kind in zip(files.NAMES, files.TYPES, strict=True))
            if place["table"].startswith("rows"):
                columns = "id BIGINT, name VARCHAR"
            self._lake.execute(f"CREATE TABLE lake.{place['table']} ({columns})")

    def _attached(self) -> Any:
        place, options = self._place, self._place["options"]
        connection = _DUCKDB.connect()
        needed = "postgres_scanner" if "database" in options else "sqlite_scanner"
        for name in ("ducklake", "httpfs", needed):
            connection.execute(f"LOAD '{_extension(name)}'")
        if place["endpoint"]:
            host = place["endpoint"].removeprefix("http://")
            connection.execute(
                f"CREATE SECRET (TYPE s3, KEY_ID '{place['access_key']}', SECRET '{place['secret_key']}', "
                f"ENDPOINT '{host}', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false)"
            )
        if "retries" in options:
            connection.execute(f"SET ducklake_max_retry_count = {options['retries']}")
        self._attach(connection)
        return connection

    def _attach(self, connection: Any) -> None:
        place, options = self._place, self._place["options"]
        if "database" in options:
            target = f"ducklake:postgres:{options['database']}"
            more = f", METADATA_SCHEMA '{options['schema']}'"
        else:
            target = {
                "duckdb": f"ducklake:{place['folder']}/catalog.ducklake",
                "sqlite": f"ducklake:sqlite:{place['folder']}/catalog.sqlite",
            }[options["catalog"]]
            more = options.get("attach", "")
        connection.execute(f"ATTACH '{target}' AS lake (DATA_PATH '{place['warehouse']}/'{more})")

    def prepare(self, numbers: range) -> None:
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(self._store, numbers))

    def _store(self, number: int) -> None:
        columns = [pa.array(files.bounds_of(number, column), _TYPES[kind]) for column, kind in enumerate(files.TYPES)]
        table = pa.table(columns, names=list(files.NAMES))
        body = pa.BufferOutputStream()
        pq.write_table(table, body)
        self._store_files().pipe_file(self._path(number), body.getvalue().to_pybytes())

    def _store_files(self) -> Any:
        """A file system for data files. That of pyarrow fails in parts of uploads on the store of the tests."""
        place = self._place
        if not place["endpoint"]:
            return importlib.import_module("fsspec").filesystem("file", auto_mkdir=True)
        return importlib.import_module("s3fs").S3FileSystem(
            key=place["access_key"],
            secret=place["secret_key"],
            client_kwargs={"endpoint_url": place["endpoint"], "region_name": "us-east-1"},
        )

    def _path(self, number: int) -> str:
        folder = self._place["options"].get("files", f"{self._place['warehouse']}/{self._place['table']}")
        return f"{folder}/{files.location_of(number)}"

    def commit(self, numbers: range) -> None:
        paths = ", ".join(f"'{self._path(number)}'" for number in numbers)
        self._lake.execute(f"CALL ducklake_add_data_files('lake', '{self._place['table']}', [{paths}])")

    def plan(self, between: tuple[int, int] | None) -> int:
        """Attach the lake anew, and list its files."""
        if between is not None:
            raise NotImplementedError("ducklake_list_files takes no filter")
        self._lake.execute("DETACH lake")
        self._attach(self._lake)
        query = f"SELECT count(*) FROM ducklake_list_files('lake', '{self._place['table']}')"
        return int(self._lake.execute(query).fetchone()[0])

    def append(self, number: int, rows: int) -> None:
        table = self._place["table"]
        if rows == 1:
            self._lake.execute(f"INSERT INTO lake.{table} VALUES (?, ?)", [number, f"row {number}"])
            return
        ids = range(number, number + rows)
        given = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {one}" for one in ids]})
        self._lake.register("given", given)
        self._lake.execute(f"INSERT INTO lake.{table} SELECT * FROM given")

    def upkeep(self) -> None:
        """Expire snapshots, and delete the files of those that expired."""
        found = self._lake.execute("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1 DESC").fetchall()
        old = [number for (number,) in found[_SNAPSHOTS_KEPT:]]
        if old:
            self._lake.execute(f"CALL ducklake_expire_snapshots('lake', versions => {old})")
            self._lake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def close(self) -> None:
        self._lake.close()


def _extension(name: str) -> Path:
    package = importlib.resources.files(f"duckdb_extension_{name}")
    [file] = Path(str(package)).rglob("*.duckdb_extension")
    return file


if __name__ == "__main__":
    peer: Peer = DuckLake()
    serve(peer)
