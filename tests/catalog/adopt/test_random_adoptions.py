"""Random histories before adoption and after it: what is read is always what a dictionary says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

import rootline
from rootline.client.data_file_writer import write_rewritten_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.workers.kinds import BY_HAND, MaintenanceKind, Rights, maintain
from tests.catalog.iceberg_tables import FolderCatalog, rows_of
from tests.support.examples import drawn

COLUMNS = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "k", StringType(), required=False),
    NestedField(3, "n", LongType(), required=False),
)
Model = dict[Any, dict[str, Any]]


class Story:
    """One table, first in the hands of PyIceberg, then in ours."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.model: Model = {}
        self.next_id = 0
        self.is_long = False
        self.old = FolderCatalog(folder).make("t", COLUMNS, format_version=self.random.choice([1, 2]))

    def rows(self) -> pa.Table:
        count = self.random.randint(1, 8)
        made = [
            {"id": key, "k": self.random.choice(["a", "b", None]), "n": self.random.choice([None, key, -key])}
            for key in range(self.next_id, self.next_id + count)
        ]
        self.next_id += count
        self.model |= {row["id"]: row for row in made}
        types = {"id": pa.int64() if self.is_long else pa.int32(), "k": pa.string(), "n": pa.int64()}
        return pa.Table.from_pylist(made, pa.schema(list(types.items())))

    def some(self) -> tuple[str, set[int]]:
        """A filter, and the ids of the rows that it is true of."""
        low = self.random.randint(0, max(self.next_id, 1))
        if self.random.random() < 0.3:
            return "k = 'a'", {key for key, row in self.model.items() if row["k"] == "a"}
        high = low + self.random.randint(0, 4)
        return f"id >= {low} and id <= {high}", {key for key in self.model if low <= key <= high}

    def before(self) -> None:
        """A step of PyIceberg's."""
        match self.random.choice(["append", "append", "delete", "overwrite", "spec", "promote"]):
            case "append":
                self.old.append(self.rows())
            case "delete":
                where, gone = self.some()
                if gone:
                    self.old.delete(where)
                    self.forget(gone)
            case "overwrite":
                where, gone = self.some()
                if gone:
                    self.forget(gone)
                    self.old.overwrite(self.rows(), where)
            case "spec":
                _toggle(self.old)
            case "promote" if not self.is_long:
                with self.old.update_schema() as schema:
                    schema.update_column("id", LongType())
                self.is_long = True

    def after(self, lake: Lake, table: TableHandle, kept: dict[int, Model]) -> None:
        """A step of ours."""
        match self.random.choice(
            ["append", "delete", "delete", "overwrite", "rewrite", "flush", "compact", "compact-data", "restore"]
        ):
            case "append":
                table.append(self.rows())
            case "delete":
                where, gone = self.some()
                table.delete_where(where)
                self.forget(gone)
            case "overwrite":
                where, gone = self.some()
                self.forget(gone)
                table.overwrite(self.rows(), where=where)
            case "rewrite":
                table.rewrite()
            case "flush" | "compact" | "compact-data" as what:
                _maintain(lake, table, BY_HAND[what])
            case "restore":
                version = self.random.choice(list(kept))
                table.restore(version=version)
                self.model = dict(kept[version])

    def forget(self, gone: set[int]) -> None:
        self.model = {key: row for key, row in self.model.items() if key not in gone}


def _toggle(table: Table) -> None:
    with table.update_spec() as spec:
        if any(field.name == "by_k" for field in table.spec().fields):
            spec.remove_field("by_k")
        else:
            spec.add_field("k", IdentityTransform(), "by_k")


def _maintain(lake: Lake, table: TableHandle, what: MaintenanceKind) -> None:
    async def operation(session: Session) -> None:
        rights = Rights(write_rows=write_rewritten_files)
        await maintain(session.store, session.log, session.environment, table.name, what, dry_run=False, rights=rights)

    lake.holder.run(operation)


@pytest.mark.parametrize("seed", drawn(5))
def test_every_step_before_and_after_adoption_reads_as_the_dictionary_says(seed: int, tmp_path: Path) -> None:
    story = Story(seed, tmp_path / "old")
    for _ in range(8):
        story.before()
    assert rows_of(story.old.scan().to_arrow()) == story.model
    with rootline.connect(str(tmp_path / "lake")) as lake:
        lake.adopt(story.old.metadata_location, "new.t")
        table = lake.table("new.t")
        assert rows_of(table.scan().to_arrow()) == story.model
        kept = {0: dict(story.model)}
        for _ in range(12):
            story.after(lake, table, kept)
            assert rows_of(table.scan().to_arrow()) == story.model
            kept[table.history(limit=1)[0].version] = dict(story.model)
        for version, model in kept.items():
            assert rows_of(table.scan(version=version).to_arrow()) == model
        assert list(table.check()) == []
    assert rows_of(story.old.scan().to_arrow()) == kept[0]
