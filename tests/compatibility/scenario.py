"""One side of a comparison of two versions: a program that each version's interpreter runs.

    python scenario.py WAREHOUSE [LOG]

It reads one JSON array a line, a command and its arguments, and answers each with one line of JSON. A command is a
method of `Side`.

Owns: the tables, the changes that both versions make to them, reading them back as JSON. Does not own: which version
does what and when (`sides`, the tests).
Invariants: it uses nothing of Rootline but public names and the command line, and no module of the tests: a release
must run it years later.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

import rootline

TRIPS = "shop.trips"
"""Two specs, changed columns, a restore, vectors, leaves, tags."""
TYPES = "shop.types"
"""A column of each type, and a partition by several transforms."""
BROUGHT_BACK = "shop.brought-back"
DROPPED = "shop.dropped"
FEED = "shop.feed"
"""Intents about files that do not exist: only their verdicts are of interest."""
VIEW = "shop.by_city"
TABLES = (TRIPS, TYPES, BROUGHT_BACK)
KEPT = {"rootline.expire": "false"}
TIMEOUT_S = 60.0


class Side:
    """The version of Rootline that this interpreter has, and one lake."""

    def __init__(self, warehouse: str, log: str | None) -> None:
        self._warehouse, self._log = warehouse, log
        self._open: rootline.Lake | None = None

    def version(self) -> list[str]:
        """The version, and where its code is."""
        return [metadata.version("rootline-lake"), str(Path(str(rootline.__file__)).parent)]

    def open(self) -> None:
        """Keep the lake open for later commands. The first process that does so hosts an embedded lake."""
        self._open = rootline.connect(self._warehouse, log=self._log)
        self._open.list_tables()

    def close(self) -> None:
        """After `open`."""
        assert self._open is not None
        self._open.close()
        self._open = None

    @contextlib.contextmanager
    def _lake(self, **options: Any) -> Iterator[rootline.Lake]:
        if self._open is not None and not options:
            yield self._open
            return
        with rootline.connect(self._warehouse, log=self._log, **options) as lake:
            yield lake

    def make(self) -> None:
        """Create all tables and the view."""
        with self._lake() as lake:
            lake.create_namespace("shop", {"owner": "tests"})
            trips = lake.create_table(TRIPS, rides(0).schema, partition_by=["city"], sort_by=["-id"], properties=KEPT)
            for first in (0, 6, 12):
                trips.append(rides(first))
            trips.tag("three")
            trips.delete_where("km is null")
        self._command("maintenance", "run", "flush", TRIPS)
        with self._lake() as lake:
            trips = lake.table(TRIPS)
            trips.overwrite(rides(100), where="city = 'Lima'")
            with trips.alter() as change:
                change.add_column("note", "string", default="none")
                change.rename_column("km", "distance")
                change.update_column("distance", "double")
            with trips.alter() as change:
                change.drop_partition_field("city").add_partition_field("bucket(4, id)")
            trips.append([{"id": 200 + number, "city": "Kyiv", "distance": number / 3} for number in range(5)])
            trips.delete_where("id in (1, 201)")
            trips.restore(tag="three")
            lake.table(TRIPS).append(rides(300))
            lake.table(TRIPS).delete_where("id = 7")
            types = lake.create_table(
                TYPES,
                typed(0).schema,
                partition_by=["truncate(2, text)", "month(moment)", "bucket(3, n)"],
                properties=KEPT,
            )
            types.append(typed(0))
            types.delete_where("i = 2")
            for name in (DROPPED, BROUGHT_BACK):
                lake.create_table(name, rides(0).schema, properties=KEPT).append(rides(0))
                lake.drop_table(name)
            lake.restore_table(BROUGHT_BACK).rewrite()
            lake.create_table(FEED, {"id": "long"}, properties=KEPT)
            view = lake.create_view(VIEW, "SELECT 1", schema={"city": "string"})
            view.replace({"spark": "SELECT 2", "trino": "SELECT two"})

    def facts(self) -> dict[str, Any]:
        """All that can be read: for each table and version a digest of the rows, and all names.

        With a log elsewhere only the newest versions are read: those of an embedded lake have shown the rest.
        """
        versions = 1_000 if self._log is None else 2
        with self._lake() as lake:
            handles = {name: lake.table(name) for name in TABLES}
            return {
                "tables": lake.list_tables(),
                "views": lake.views(),
                "sql": [lake.view(VIEW).sql("spark"), lake.view(VIEW).sql("trino")],
                "owner": lake.namespace_properties("shop"),
                "tags": {name: handle.tags() for name, handle in handles.items()},
                "schemas": {name: str(handle.schema()) for name, handle in handles.items()},
                "rows": {
                    f"{name}@{header.version}": digest(rows_of(handle, header.version))
                    for name, handle in handles.items()
                    for header in handle.history(limit=versions, everything=True)
                },
                "files": sorted(task.location for task in lake.table(FEED).scan().plan()),
            }

    def check(self) -> list[str]:
        """The findings of the full check of every table."""
        with self._lake() as lake:
            found = [str(finding) for name in TABLES for finding in lake.table(name).check(data_files="all")]
            return found + [str(finding) for finding in lake.table(FEED).check(data_files="ignored")]

    def grow(self) -> None:
        """Append to, delete from and alter every table. What it had before must stay."""
        with self._lake() as lake:
            for name in TABLES:
                table = lake.table(name)
                before, head, more = rows_of(table), table.head().version, table.scan(limit=2).to_arrow()
                table.append(more, timeout_s=TIMEOUT_S)
                key = "i" if name == TYPES else "id"
                table.delete_where(f"{key} = {max(row[key] for row in before)}", timeout_s=TIMEOUT_S)
                with table.alter(timeout_s=TIMEOUT_S) as change:
                    change.add_column(f"more_{head}", "int")
                table.append([{key: 1_000 + head, f"more_{head}": 1}], timeout_s=TIMEOUT_S)
                assert rows_of(table, head) == before, name
                assert any(row[key] == 1_000 + head for row in rows_of(table)), name

    def append(self, first: int, count: int) -> list[int]:
        """Append rows one commit at a time. The versions."""
        with self._lake() as lake:
            table = lake.table(BROUGHT_BACK)
            return [table.append(rides(first + at, 1), timeout_s=TIMEOUT_S).version for at in range(count)]

    def ids(self) -> list[int]:
        """The ids of the table that `append` appends to."""
        with self._lake() as lake:
            return sorted(lake.table(BROUGHT_BACK).scan().to_arrow()["id"].to_pylist())

    def send(self, writer: str) -> list[Any]:
        """Publish intents of each outcome, as `writer`. Each with its verdict."""
        with self._lake() as lake, lake.producer(writer) as producer:
            receipts = [producer.publish(intent, writer_sequence=at) for at, intent in enumerate(intents(writer))]
            return [[as_json(receipt.intent), shown(receipt.verdict(TIMEOUT_S))] for receipt in receipts]

    def send_again(self, sent: list[Any]) -> list[Any]:
        """Publish intents that were published before. Their verdicts."""
        with self._lake() as lake, lake.producer() as producer:
            given = [rootline.Intent.model_validate_json(json.dumps(intent)) for intent in sent]
            return [shown(receipt.verdict(TIMEOUT_S)) for receipt in map(producer.publish, given)]

    def change_view_twice_at_once(self) -> list[Any]:
        """Give the view a version and a property in one intent. Its verdict, the SQL and the properties afterwards."""
        with self._lake() as lake, lake.producer() as producer:
            view = lake.view(VIEW)
            version = {"representations": [{"type": "sql", "sql": "SELECT 3", "dialect": "spark"}]}
            change = {"version": version, "set-properties": {"owner": "both"}}
            named = {"intent_id": "both", "table": VIEW, "table_uuid": str(view.metadata().view_uuid)}
            intent = named | {"kind": "replace_view", "definition": json.dumps(change)}
            receipt = producer.publish(rootline.Intent.model_validate_json(json.dumps(intent)))
            return [*shown(receipt.verdict(TIMEOUT_S))[::2], view.sql("spark"), view.metadata().properties]

    def leave_undecided(self, writer: str) -> list[Any]:
        """Publish intents while no coordinator runs."""
        with self._lake(coordinator="elsewhere") as lake, lake.producer(writer) as producer:
            published = [producer.publish(intent, writer_sequence=at) for at, intent in enumerate(intents(writer))]
            return [as_json(receipt.intent) for receipt in published]

    def promises(self) -> list[str]:
        """The public names with their parameters, the settings, the codes."""
        settings = self._command("config", "print")
        codes = self._command("explain")
        return [
            *(name for public in rootline.__all__ for name in names_of(public, getattr(rootline, public))),
            *(f"setting {json.loads(line)['setting']}" for line in settings.splitlines()),
            *(f"code {json.loads(line)['code']}" for line in codes.splitlines()),
        ]

    def _command(self, *words: str) -> str:
        """Run the command line in this process. Its output."""
        [script] = metadata.entry_points(group="console_scripts", name="rootline")
        log = [] if self._log is None else ["--log", self._log]
        sys.argv[1:] = [*words, "--warehouse", self._warehouse, *log, "--json"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                script.load()()
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"{words} ended with {ended.code}: {printed.getvalue()}") from None
        return printed.getvalue()


def names_of(name: str, thing: Any) -> Iterator[str]:
    """A public name, and with it the parameters of a function, the methods, fields and members of a class."""
    yield name
    if isinstance(thing, type):
        for inner in dir(thing):
            if not inner.startswith("_"):
                yield from names_of(f"{name}.{inner}", inspect.getattr_static(thing, inner))
        for field in getattr(thing, "model_fields", {}):
            yield f"{name}.{field}"
    elif inspect.isfunction(thing):
        for parameter in inspect.signature(thing).parameters.values():
            yield f"{name}({parameter.name})"


def rides(first: int, count: int = 6) -> pa.Table:
    """Rows of `TRIPS` as it is made."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": [("Oslo", "Rome", "Lima")[number % 3] for number in ids],
            "km": pa.array([None if number % 5 == 4 else number * 1.5 for number in ids], pa.float32()),
        }
    )


def typed(first: int, count: int = 4) -> pa.Table:
    """Rows of `TYPES`."""
    ids = range(first, first + count)
    moments = [datetime.datetime(2024, 3, 1 + number % 28, number % 24, 30, 0, 1000, datetime.UTC) for number in ids]
    return pa.table(
        {
            "flag": [number % 2 == 0 for number in ids],
            "i": pa.array(ids, pa.int32()),
            "n": pa.array([2**40 + number for number in ids], pa.int64()),
            "f": pa.array([number / 4 for number in ids], pa.float32()),
            "d": pa.array([-number / 8 for number in ids], pa.float64()),
            "price": pa.array([Decimal(number * 5 - 9).scaleb(-2) for number in ids], pa.decimal128(9, 2)),
            "day": pa.array([moment.date() for moment in moments]),
            "clock": pa.array([moment.time() for moment in moments], pa.time64("us")),
            "local": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
            "moment": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "text": [None if number % 4 == 3 else f"Ä{number}" for number in ids],
            "bytes": pa.array([bytes([number, 255]) for number in ids], pa.binary()),
            "fixed": pa.array([bytes([number]) * 4 for number in ids], pa.binary(4)),
            "place": [{"x": number, "y": None if number % 2 else number / 2} for number in ids],
            "list": [[number, None] if number % 2 else [] for number in ids],
            "map": pa.array([[("k", number)] for number in ids], pa.map_(pa.string(), pa.int64())),
        }
    )


def intents(writer: str) -> list[rootline.Intent]:
    """Two that are committed, one that removes, one that is rejected."""

    first, second, never = ({"location": f"data/{writer}-{name}.parquet"} for name in ("first", "second", "never"))
    counts = {"record_count": 3, "file_size_in_bytes": 100}
    changes: list[dict[str, Any]] = [
        *({"kind": "append", "add_data_files": [{**file, **counts}]} for file in (first, second)),
        *({"kind": "remove", "remove_files": [file]} for file in (first, never)),
    ]
    return [
        rootline.Intent.model_validate_json(json.dumps({"intent_id": f"{writer}-{at}", "table": FEED, **change}))
        for at, change in enumerate(changes)
    ]


def shown(verdict: rootline.Verdict) -> list[Any]:
    """The kind, the version and the code of a verdict."""
    return [verdict.kind.value, verdict.version, verdict.code]


def as_json(intent: rootline.Intent) -> Any:
    """An intent in the words of the wire."""
    return json.loads(intent.model_dump_json(exclude_defaults=True))


def rows_of(table: rootline.TableHandle, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version, in one order."""
    found: list[dict[str, Any]] = table.scan(version=version).to_arrow().to_pylist()
    return sorted(found, key=repr)


def digest(rows: list[dict[str, Any]]) -> str:
    """The number of rows and a digest of their values."""
    return f"{len(rows)} {hashlib.sha256(repr(rows).encode()).hexdigest()[:16]}"


def main(warehouse: str, log: str | None = None) -> None:
    side = Side(warehouse, log)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        command: Callable[..., Any] = getattr(side, name)
        print(json.dumps(command(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
