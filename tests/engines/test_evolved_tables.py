"""Tables whose columns changed between files of every age: a model, our scans and other engines agree on the rows.

Drawn from a seed: changes of columns, rows by handles that have not heard of them, deletes, flushes and compactions.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

from rootline import connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.identifiers import TableName
from rootline.workers.kinds import BY_HAND, maintain
from tests.engines.duckdb_reader import open_duckdb
from tests.engines.pyiceberg_reader import pyiceberg_rows
from tests.engines.same_rows import plain
from tests.support.examples import drawn

TABLE = "demo.t"
STEPS = 40
FORMATS: tuple[Literal["v2", "v3"], ...] = ("v2", "v3")
_WIDER = {"int": "long", "float": "double", "decimal(5, 2)": "decimal(20, 2)"}
_KINDS = ("int", "float", "string", "decimal(5, 2)", "date")


@dataclass
class Column:
    """`number` is its identity, whatever it is called."""

    number: int
    name: str
    kind: str


@dataclass
class Model:
    """Rows as dictionaries of column numbers; a column that a row lacks is null in it."""

    columns: list[Column] = field(default_factory=lambda: [Column(0, "id", "int"), Column(1, "c1", "string")])
    rows: list[dict[int, Any]] = field(default_factory=list)

    def seen(self) -> list[dict[str, Any]]:
        """What a scan shows, by id."""
        found = [{column.name: row.get(column.number) for column in self.columns} for row in self.rows]
        return sorted(found, key=lambda row: row["id"])


class Evolving:
    """One table, one model, and the steps that both take."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lake = lake
        self.model = Model()
        self.past: dict[int, list[dict[str, Any]]] = {}
        lake.create_table(TABLE, {"id": "int not null", "c1": "string"}, partition_by=["bucket(2, id)"])
        self.late: list[tuple[TableHandle, list[Column]]] = []
        self.minted = 0

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (5, self.append),
            (3, self.append_late),
            (2, self.delete),
            (2, self.add),
            (1, self.drop),
            (1, self.rename),
            (2, self.widen),
            (1, self.move),
            (2, self.maintain),
        ]
        weights, actions = zip(*steps, strict=True)
        self.rng.choices(actions, weights)[0]()
        version = next(iter(self.lake.table(TABLE).history())).version
        self.past[version] = self.model.seen()

    def append(self) -> None:
        self._append(self.lake.table(TABLE), self.model.columns)

    def append_late(self) -> None:
        """By a handle that knows the columns of some time ago; those that were dropped since are not asked for."""
        if self.late:
            handle, columns = self.rng.choice(self.late)
            self._append(handle, columns)

    def _append(self, handle: TableHandle, columns: list[Column]) -> None:
        given, kept = [], []
        for _ in range(self.rng.randint(1, 4)):
            self.minted += 1
            values = {column.number: self._value(column) for column in columns if column.number}
            given.append({"id": self.minted, **{c.name: values[c.number] for c in columns if c.number}})
            kept.append({0: self.minted, **values})
        handle.append(given)
        self.late.append((handle, [Column(c.number, c.name, c.kind) for c in columns]))
        self.model.rows += kept

    def _value(self, column: Column) -> Any:
        if self.rng.random() < 0.2:
            return None
        number = self.rng.randint(-99, 99)
        return {
            "string": f"s{number}",
            "date": dt.date(2024, 1, 1) + dt.timedelta(number),
            "decimal": Decimal(number) / 4,
        }.get(column.kind.partition("(")[0], number if column.kind in ("int", "long") else number / 4)

    def delete(self) -> None:
        if self.model.rows:
            least = self.rng.randint(1, self.minted)
            self.lake.table(TABLE).delete_where(f"id >= {least} and id <= {least + 2}")
            self.model.rows = [row for row in self.model.rows if not least <= row[0] <= least + 2]

    def add(self) -> None:
        number = max((column.number for column in self.model.columns), default=0) + 1 + len(self.past)
        kind = self.rng.choice(_KINDS)
        name = self.rng.choice(["again", f"c{number}"])
        if any(column.name == name for column in self.model.columns):
            return
        with self.lake.table(TABLE).alter() as change:
            change.add_column(name, kind)
        self.model.columns.append(Column(number, name, kind))

    def drop(self) -> None:
        if len(self.model.columns) > 2:
            gone = self.rng.choice(self.model.columns[1:])
            if gone.number == 0:
                return
            with self.lake.table(TABLE).alter() as change:
                change.drop_column(gone.name)
            self.model.columns.remove(gone)
            self.late.clear()  # rows with a value in a column that is gone are written by no one that knows

    def rename(self) -> None:
        column = self.rng.choice(self.model.columns)
        if column.number:
            name = f"r{len(self.past)}"
            with self.lake.table(TABLE).alter() as change:
                change.rename_column(column.name, name)
            column.name = name

    def widen(self) -> None:
        column = self.rng.choice(self.model.columns)
        if column.kind in _WIDER:
            with self.lake.table(TABLE).alter() as change:
                change.update_column(column.name, _WIDER[column.kind])
            column.kind = _WIDER[column.kind]

    def move(self) -> None:
        column = self.rng.choice(self.model.columns)
        with self.lake.table(TABLE).alter() as change:
            change.move_column(column.name, first=True)
        self.model.columns.remove(column)
        self.model.columns.insert(0, column)

    def maintain(self) -> None:
        kind = BY_HAND[self.rng.choice(["flush", "compact"])]
        self.lake.holder.run(
            lambda session: maintain(
                session.store, session.log, session.environment, TableName(TABLE), kind, dry_run=False
            )
        )


@pytest.mark.parametrize("seed", drawn(5))
def test_a_model_and_every_reader_agree_on_the_rows(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake:
        world = Evolving(lake, seed)
        for _ in range(STEPS):
            world.step()
            _agree(lake.table(TABLE).scan().to_arrow(), world.model.seen())
        for version, rows in world.past.items():
            _agree(lake.table(TABLE).scan(version=version).to_arrow(), rows)
        _filters_agree(lake.table(TABLE), world)
        _engines_agree(lake.table(TABLE))
        findings = list(lake.table(TABLE).check())
        assert not findings, findings


def _agree(rows: Any, wanted: list[dict[str, Any]]) -> None:
    found = sorted(rows.to_pylist(), key=lambda row: row["id"])
    assert found == wanted


def _filters_agree(table: TableHandle, world: Evolving) -> None:
    rows = world.model.seen()
    for column in world.model.columns:
        values = [row[column.name] for row in rows if row[column.name] is not None]
        if not values or column.kind == "date":
            continue
        value = values[len(values) // 2]
        word = f"'{value}'" if isinstance(value, str) else str(value)
        for operator, matches in (("=", value.__eq__), ("<", value.__gt__), (">=", value.__le__)):
            wanted = [row for row in rows if row[column.name] is not None and matches(row[column.name]) is True]
            found = table.scan(where=f"{column.name} {operator} {word}").to_arrow()
            _agree(found, wanted)
        _agree(table.scan(where=f"{column.name} is null").to_arrow(), [row for row in rows if row[column.name] is None])


def _engines_agree(table: TableHandle) -> None:
    ours = plain(table.scan().to_arrow())
    with open_duckdb() as reader:
        for version in FORMATS:
            location = table.export(version).metadata_location
            assert plain(reader.rows(location)) == ours
            assert plain(pyiceberg_rows(location)) == ours
