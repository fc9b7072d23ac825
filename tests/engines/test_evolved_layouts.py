"""Tables whose partition specs, sort orders and columns changed between files: a model and every reader agree.

As `test_evolved_tables`, with partition fields and sort orders that come and go, writers that split by an older spec,
equality deletes of any spec, and files that are written again.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline import Invalid, connect
from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.tree.evolution.specs_and_orders import partition_field_names
from tests.engines.test_evolved_tables import STEPS, TABLE, Column, Evolving, _agree, _engines_agree, _filters_agree
from tests.support.examples import drawn

SPEC = -1
"""In a row of the model, beside its columns: the spec of its file."""
_TRANSFORMS = {
    "string": ["identity", "truncate[2]", "bucket[3]"],
    "date": ["identity", "day", "month", "year", "bucket[2]"],
    "decimal(5, 2)": ["identity", "truncate[10]", "bucket[2]"],
    "float": ["identity"],
    "int": ["identity", "truncate[10]", "bucket[3]"],
}
_OF_WIDER = {"long": "int", "double": "float", "decimal(20, 2)": "decimal(5, 2)"}


class EvolvingLayouts(Evolving):
    """One table, one model, and steps that change how files are laid out too."""

    def __init__(self, lake: Lake, folder: Path, seed: int) -> None:
        super().__init__(lake, seed)
        self.folder = folder
        self.deleted = 0

    @property
    def table(self) -> TableHandle:
        """A handle that has heard of every change."""
        return self.lake.table(TABLE)

    def step(self) -> None:
        steps = [
            *[self.append] * 5,
            *[self.append_late] * 4,
            *[self.delete, self.delete_by_equality, self.delete_by_equality],
            *[self.add, self.drop, self.rename, self.widen, self.move],
            *[self.add_field] * 4,
            *[self.drop_field, self.drop_field, self.rename_field, self.sort],
            *[self.maintain, self.maintain, self.rewrite],
        ]
        self.rng.choice(steps)()
        version = next(iter(self.table.history())).version
        self.past[version] = self.model.seen()

    def _append(self, handle: TableHandle, columns: list[Column]) -> None:
        super()._append(handle, columns)
        self._note_specs()

    def _note_specs(self) -> None:
        shown = self.table.scan(columns=["id", "_spec_id"]).to_arrow().to_pylist()
        specs = {row["id"]: row["_spec_id"] for row in shown}
        for row in self.model.rows:
            row[SPEC] = specs[row[0]]

    def drop(self) -> None:
        try:
            super().drop()
        except Invalid as error:
            if error.code != "evolution-illegal" or "cannot be dropped" not in error.message:
                raise

    def add_field(self) -> None:
        column = self.rng.choice(self.model.columns)
        kind = _OF_WIDER.get(column.kind, column.kind)
        try:
            with self.table.alter() as change:
                change.add_partition_field(column.name, self.rng.choice(_TRANSFORMS[kind]))
        except Invalid as error:
            if "already" not in error.message and "give another name" not in error.message:
                raise

    def drop_field(self) -> None:
        names = self._names()
        if names:
            with self.table.alter() as change:
                change.drop_partition_field(self.rng.choice(names))

    def rename_field(self) -> None:
        names = self._names()
        if names:
            with self.table.alter() as change:
                change.rename_partition_field(self.rng.choice(names), f"p{len(self.past)}")

    def _names(self) -> tuple[str, ...]:
        definition = self.table.definition()
        return partition_field_names(definition, definition.spec_by_id(definition.default_spec_id))

    def sort(self) -> None:
        columns = self.rng.sample(self.model.columns, min(2, len(self.model.columns)))
        signs = [self.rng.choice(["", "-"]) for _ in columns]
        with self.table.alter() as change:
            change.set_sort_order([f"{sign}{column.name}" for sign, column in zip(signs, columns, strict=True)])

    def delete_by_equality(self) -> None:
        """A delete of one id, in the partition that its row would have in some spec, is of that spec's files only."""
        if not self.model.rows:
            return
        victim = self.rng.choice(self.model.rows)
        definition = self.table.definition()
        spec = self.rng.choice([*definition.partition_specs, definition.spec_by_id(victim[SPEC])])
        values = {column.name: [victim.get(column.number)] for column in self.model.columns}
        row = pa.table(values, arrow_schema_of(definition.schema))
        try:
            of_spec = replace(definition, default_spec_id=spec.spec_id)
            [written] = write_files(row, of_spec, iter([uuid.uuid4()]))
        except Invalid:  # a column of that spec has been dropped
            return
        self._publish(written.data_file.model_dump(exclude={"equality_ids", "sort_order_id"}), written.body)
        if victim[SPEC] == spec.spec_id or not spec.expr_ids:
            self.model.rows.remove(victim)
            self.deleted += 1

    def _publish(self, file: dict[str, Any], body: bytes) -> None:
        delete = EqualityDeleteFile(**file, equality_ids=(1,))
        place = self.folder / "demo" / "t" / delete.location
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
        intent = Intent(
            intent_id=str(uuid.UUID(int=self.rng.getrandbits(128))),
            table=self.table.name,
            kind=IntentKind.ROW_DELTA,
            add_equality_deletes=(delete,),
        )
        with self.lake.producer() as producer:
            verdict = producer.publish(intent).verdict(timeout_s=60)
        assert verdict.kind is VerdictKind.COMMITTED, verdict.message

    def rewrite(self) -> None:
        """Files are written again under the newest spec and order."""
        self.table.rewrite()
        self._note_specs()


@pytest.mark.parametrize("seed", drawn(5))
def test_a_model_and_every_reader_agree_on_the_rows_of_files_of_every_spec(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake:
        world = EvolvingLayouts(lake, tmp_path / "lake", seed)
        for _ in range(STEPS):
            world.step()
            _agree(world.table.scan().to_arrow(), world.model.seen())
        for version, rows in world.past.items():
            _agree(world.table.scan(version=version).to_arrow(), rows)
        _filters_agree(world.table, world)
        _partitions_agree(world.table)
        _engines_agree(world.table)
        findings = list(world.table.check())
        assert not findings, findings


def _partitions_agree(table: TableHandle) -> None:
    """`_partition` has a field for each member of any spec, and values of the members of the file's own."""
    definition: TableDefinition = table.definition()
    shown = table.scan(columns=["id", "_spec_id", "_partition"]).to_arrow()
    tracked = definition.tracked_by_id
    fields = shown.schema.field("_partition").type
    names = [field.name for field in fields]
    assert len(set(names)) == len(names)
    for row in shown.to_pylist():
        own = {tracked[member].name for member in definition.spec_by_id(row["_spec_id"]).expr_ids}
        assert all(value is None or name in own for name, value in row["_partition"].items())
