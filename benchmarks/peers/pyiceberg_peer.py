"""The driver of PyIceberg, with a catalog in SQLite: `fast_append`, as `table.append` does by default.

Options: `retries` raises `commit.retry.num-retries`; `upkeep` sets what PyIceberg's manual has for many small commits,
with which `table.append` becomes `merge_append`; `io` names the class that reads and writes objects. With `uri` the
catalog is a REST catalog there, which chooses the table's location; `warehouse` is the name that it is asked for.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from benchmarks.peers import files
from benchmarks.peers.protocol import Peer, Place, serve

_TYPES: Final = {"long": LongType(), "double": DoubleType(), "string": StringType(), "timestamp": TimestampType()}
_SCHEMA: Final = Schema(
    *(
        NestedField(number, name, _TYPES[kind], required=False)
        for number, (name, kind) in enumerate(zip(files.NAMES, files.TYPES, strict=True), start=1)
    )
)
_ROWS: Final = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
_SNAPSHOTS_KEPT: Final = 1_000


class PyIceberg:
    """One table, loaded once; a commit that loses refreshes it."""

    version = version("pyiceberg")

    def open(self, place: Place) -> None:
        self._place = place
        self._location = f"{place['warehouse']}/{place['table']}"
        rows = place["table"].startswith("rows")
        catalog = self._catalog()
        if place["creates"]:
            catalog.create_namespace(self._namespace)
            properties = {}
            if "retries" in place["options"]:
                properties["commit.retry.num-retries"] = place["options"]["retries"]
            if "uri" in place["options"]:  # else an append that lost ten times waits up to a minute
                properties |= {"commit.retry.max-wait-ms": "1000", "format-version": "2"}
            if "snapshots" in place["options"]:
                properties["rootline.export.snapshots"] = place["options"]["snapshots"]
            if "upkeep" in place["options"]:
                properties |= {
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "10",
                    "commit.manifest-merge.enabled": "true",
                }
            location = None if "uri" in place["options"] else self._location
            catalog.create_table(self._name, _ROWS if rows else _SCHEMA, location=location, properties=properties)
        self._table = catalog.load_table(self._name)

    @property
    def _namespace(self) -> str:
        """A namespace of its own: catalogs in one database share them."""
        return self._place["options"].get("schema", "bench")

    @property
    def _name(self) -> str:
        return f"{self._namespace}.{self._place['table']}"

    def _catalog(self) -> Catalog:
        place = self._place
        properties = {}
        if place["endpoint"]:
            properties |= {
                "s3.endpoint": place["endpoint"],
                "s3.access-key-id": place["access_key"],
                "s3.secret-access-key": place["secret_key"],
                "s3.region": "us-east-1",
            }
        if "io" in place["options"]:
            properties["py-io-impl"] = place["options"]["io"]
        if "uri" in place["options"]:
            return RestCatalog(
                "rest", uri=place["options"]["uri"], warehouse=place["options"]["warehouse"], **properties
            )
        from pyiceberg.catalog.sql import SqlCatalog  # needs a library that clients of a REST catalog do not

        address = f"sqlite:///{place['folder']}/catalog.db"
        return SqlCatalog("local", uri=address, warehouse=place["warehouse"], **properties)

    def prepare(self, numbers: range) -> None:
        """Nothing: files are described, not read."""

    def commit(self, numbers: range) -> None:
        with self._table.transaction() as transaction:
            update = transaction.update_snapshot()
            merges = "upkeep" in self._place["options"]
            with update.merge_append() if merges else update.fast_append() as append:
                for number in numbers:
                    append.append_data_file(self._data_file(number))

    def _data_file(self, number: int) -> DataFile:
        lower, upper = {}, {}
        for column, kind in enumerate(files.TYPES):
            low, high = files.bounds_of(number, column)
            lower[column + 1], upper[column + 1] = to_bytes(_TYPES[kind], low), to_bytes(_TYPES[kind], high)
        rows, columns = files.rows_of(number), range(1, len(files.TYPES) + 1)
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{files.location_of(number)}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=rows,
            file_size_in_bytes=files.size_of(number),
            value_counts=dict.fromkeys(columns, rows),
            null_value_counts=dict.fromkeys(columns, files.nulls_of(number)),
            nan_value_counts={column: 0 for column in columns if files.TYPES[column - 1] == "double"},
            lower_bounds=lower,
            upper_bounds=upper,
        )
        file.spec_id = 0
        return file

    def plan(self, between: tuple[int, int] | None) -> int:
        where: Any = AlwaysTrue()
        if between is not None:
            where = And(GreaterThanOrEqual("c0", between[0]), LessThanOrEqual("c0", between[1]))
        table = self._catalog().load_table(self._name)
        return sum(1 for _ in table.scan(row_filter=where).plan_files())

    def append(self, number: int, rows: int) -> None:
        ids = range(number, number + rows)
        self._table.append(pa.table({"id": list(ids), "name": [f"row {one}" for one in ids]}, schema=_ROWS))

    def upkeep(self) -> None:
        """Expire snapshots. PyIceberg deletes no file that only they name."""
        snapshots = self._table.metadata.snapshots
        if len(snapshots) > _SNAPSHOTS_KEPT:
            oldest = sorted(one.timestamp_ms for one in snapshots)[-_SNAPSHOTS_KEPT]
            expired = self._table.maintenance.expire_snapshots().older_than(datetime.fromtimestamp(oldest / 1000, UTC))
            expired.commit()

    def close(self) -> None:
        """Nothing is open."""


if __name__ == "__main__":
    peer: Peer = PyIceberg()
    serve(peer)
