"""The driver of Rootline: `table.add_files`, by `rootline.connect`.

With `coordinator=process` and a bucket, whoever creates the table starts `rootline coordinator` beside it, and every
writer connects with `coordinator="elsewhere"`. Otherwise the first process that opens the lake hosts the coordinator
and the worker.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pyarrow as pa

import rootline
from benchmarks.command_process import running_command
from benchmarks.large_table import file_columns
from benchmarks.peers.protocol import Peer, Place, serve
from benchmarks.sample_table import data_file, definition
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.distribution import VERSION

_COLUMNS_FROM = 1_000
"""So many files are given as columns, as `add_files` asks for."""
_ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


class Rootline:
    """One connection to one lake."""

    version = VERSION

    def __init__(self) -> None:
        self._until_closed = contextlib.ExitStack()
        self._codec = StatisticsCodec(definition().tracked_fields)

    def open(self, place: Place) -> None:
        self._place = place
        folder, warehouse = Path(place["folder"]), place["warehouse"]
        if place["endpoint"]:
            os.environ |= {
                "ROOTLINE_S3__ENDPOINT": place["endpoint"],
                "ROOTLINE_S3__ACCESS_KEY_ID": place["access_key"],
                "ROOTLINE_S3__SECRET_ACCESS_KEY": place["secret_key"],
            }
        log = f"sqlite://{folder / 'log'}" if place["endpoint"] else None
        alone = place["options"].get("coordinator") != "process" or not place["endpoint"]
        if not alone and place["creates"]:
            stderr = folder / "coordinator.err"
            coordinator = self._until_closed.enter_context(running_command(stderr, warehouse, log or "", {}))
            coordinator.wait_ready()
        pa.array([0])  # pyarrow imports pandas where it is installed, as here and not beside the peers
        self._log, self._where = log, "auto" if alone else "elsewhere"
        self._lake = self._until_closed.enter_context(self._connect())
        if place["creates"]:
            rows = place["table"].startswith("rows")
            self._table = self._lake.create_table(self._name, schema=_ROWS if rows else definition().schema)
        else:
            self._table = self._lake.table(self._name)

    @property
    def _name(self) -> str:
        return f"bench.{self._place['table']}"

    def _connect(self) -> rootline.Lake:
        return rootline.connect(self._place["warehouse"], log=self._log, coordinator=self._where)

    def prepare(self, numbers: range) -> None:
        """Nothing: files are described, not read."""

    def commit(self, numbers: range) -> None:
        if len(numbers) >= _COLUMNS_FROM:
            self._table.add_files(file_columns(numbers.start, len(numbers)))
        else:
            self._table.add_files([data_file(number, self._codec) for number in numbers])

    def plan(self, between: tuple[int, int] | None) -> int:
        with self._connect() as lake:
            where = None if between is None else f"c0 >= {between[0]} and c0 <= {between[1]}"
            return len(lake.table(self._name).scan(where).plan())

    def append(self, number: int, rows: int) -> None:
        ids = range(number, number + rows)
        self._table.append(pa.table({"id": list(ids), "name": [f"row {one}" for one in ids]}, schema=_ROWS))

    def upkeep(self) -> None:
        """Nothing: whoever hosts the lake expires, flushes and compacts."""

    def close(self) -> None:
        self._until_closed.close()


if __name__ == "__main__":
    peer: Peer = Rootline()
    serve(peer)
