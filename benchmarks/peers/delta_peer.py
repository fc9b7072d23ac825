"""The driver of delta-rs: `create_write_transaction` with the statistics of each file.

Options: `handle=held` commits to one table object that follows the log, `handle=opened` opens the table for each
commit, as `write_deltalake` does with a path; `checkpoint` sets `delta.checkpointInterval`; `retries` sets the number
of retries.
"""

from __future__ import annotations

import importlib
import json
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa

from benchmarks.peers import files
from benchmarks.peers.protocol import Peer, Place, serve

_LIBRARY: Final[Any] = importlib.import_module("deltalake")
_TRANSACTION: Final[Any] = importlib.import_module("deltalake.transaction")
_TYPES: Final = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_SCHEMA: Final = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in zip(files.NAMES, files.TYPES, strict=True)])
_ROWS: Final = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Delta:
    """One table."""

    version = version("deltalake")

    def open(self, place: Place) -> None:
        self._place, options = place, place["options"]
        self._location = f"{place['warehouse']}/{place['table']}"
        self._storage = None
        if place["endpoint"]:
            self._storage = {
                "AWS_ENDPOINT_URL": place["endpoint"],
                "AWS_ACCESS_KEY_ID": place["access_key"],
                "AWS_SECRET_ACCESS_KEY": place["secret_key"],
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
                "conditional_put": "etag",
            }
        rows = place["table"].startswith("rows")
        if place["creates"]:
            configuration = {}
            if "checkpoint" in options:
                configuration["delta.checkpointInterval"] = options["checkpoint"]
            if "upkeep" in options and rows:
                configuration |= {
                    "delta.logRetentionDuration": "interval 60 seconds",
                    "delta.enableExpiredLogCleanup": "true",
                }
            _LIBRARY.DeltaTable.create(
                self._location, _ROWS if rows else _SCHEMA, storage_options=self._storage, configuration=configuration
            )
        retries = options.get("retries")
        self._properties = None if retries is None else _LIBRARY.CommitProperties(max_commit_retries=int(retries))
        self._held = self._loaded() if options.get("handle", "held") == "held" else None
        self._schema = _LIBRARY.Schema.from_arrow(_SCHEMA)

    def _loaded(self) -> Any:
        return _LIBRARY.DeltaTable(self._location, storage_options=self._storage)

    def prepare(self, numbers: range) -> None:
        """Nothing: files are described, not read."""

    def commit(self, numbers: range) -> None:
        table = self._held or self._loaded()
        actions = [_action(number) for number in numbers]
        table.create_write_transaction(actions, "append", self._schema, [], commit_properties=self._properties)

    def plan(self, between: tuple[int, int] | None) -> int:
        table = self._loaded()
        if between is None:
            return len(table.file_uris())
        dataset = importlib.import_module("pyarrow.dataset")
        column = dataset.field("c0")
        found = table.to_pyarrow_dataset().get_fragments((column >= between[0]) & (column <= between[1]))
        return sum(1 for _ in found)

    def append(self, number: int, rows: int) -> None:
        ids = range(number, number + rows)
        data = pa.table({"id": list(ids), "name": [f"row {one}" for one in ids]}, schema=_ROWS)
        target = self._held if self._held is not None else self._location
        _LIBRARY.write_deltalake(
            target, data, mode="append", storage_options=self._storage, commit_properties=self._properties
        )

    def upkeep(self) -> None:
        """Write a checkpoint, and delete what it makes superfluous."""
        table = self._held or self._loaded()
        table.create_checkpoint()
        table.cleanup_metadata()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def close(self) -> None:
        """Nothing is open."""


def _action(number: int) -> Any:
    least, greatest, nulls = {}, {}, {}
    for column, name in enumerate(files.NAMES):
        low, high = (_shown(column, bound) for bound in files.bounds_of(number, column))
        least[name], greatest[name], nulls[name] = low, high, files.nulls_of(number)
    statistics = {
        "numRecords": files.rows_of(number),
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return _TRANSACTION.AddAction(
        path=files.location_of(number),
        size=files.size_of(number),
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(statistics),
    )


def _shown(column: int, bound: Any) -> Any:
    if files.TYPES[column] != "timestamp":
        return bound
    return (_EPOCH + timedelta(microseconds=bound)).isoformat(timespec="microseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    peer: Peer = Delta()
    serve(peer)
