"""Random tables, exported: PyIceberg and DuckDB read the rows that the table has, at every version.

A reference model says which, for stories of intents; a scan does, for histories of columns, specs and orders.
"""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rootline import Invalid, connect
from rootline.adapters.open import open_store
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.bytes.record_headers import content_headers
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import SnapshotId, TableName, Version, snapshot_id_of
from rootline.schemas.intent import IntentKind
from rootline.tree.draft.batch import Record
from rootline.tree.evolution.specs_and_orders import partition_field_names
from rootline.workers.kinds import BY_HAND, maintain
from tests.engines.duckdb_reader import DuckDBReader, open_duckdb
from tests.engines.pyiceberg_reader import pyiceberg_rows, pyiceberg_table
from tests.engines.real_files import WrittenFiles, WrittenLake, carrier_of, expected_rows, store_lake
from tests.support.examples import drawn, examples
from tests.tree.drawn_plans import Draw, plan_of
from tests.tree.planned_intents import intent_of
from tests.tree.reference_model import ReferenceTable
from tests.tree.reference_plan import Plan
from tests.tree.reference_trial import outcomes
from tests.tree.tables import TABLE, TABLE_UUID, create

EXAMPLES = examples(20)
"""Of about fifteen intents each."""


KINDS = Counter(
    {
        IntentKind.APPEND: 5,
        IntentKind.ROW_DELTA: 9,
        IntentKind.FLUSH: 2,
        IntentKind.COMPACT_LEAVES: 2,
        IntentKind.REWRITE: 1,
        IntentKind.CONVERT_EQUALITY_DELETES: 2,
        IntentKind.OVERWRITE: 1,
        IntentKind.REMOVE: 1,
        IntentKind.RESTORE: 1,
        IntentKind.TAG: 1,
    }
)
changes = st.builds(
    Draw,
    kind=st.sampled_from(list(KINDS.elements())),
    lag=st.sampled_from([0, 0, 0, 1]),
    picks=st.lists(st.integers(0, 11), min_size=6, max_size=6).map(tuple),
    closes_batch=st.sampled_from([True, True, False]),
    writer=st.integers(0, 3),
    resend=st.just(1),
    flag=st.booleans(),
    narrow=st.none(),
    leaf=st.booleans(),
)
"""As for the model, with more rows that are deleted: few intents are rejected, few versions are empty."""


@dataclass
class Story:
    """Plans applied to the model and, in batches, to a lake with real files."""

    model: ReferenceTable = field(default_factory=ReferenceTable)
    lake: WrittenLake = field(default_factory=WrittenLake)
    views: list[ReferenceTable] = field(default_factory=list)
    """One for each version."""
    waiting: list[tuple[Plan, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake.put(create())
        self._remember()

    def plan(self, draw: Draw, number: int) -> None:
        at = max(0, len(self.views) - 1 - draw.lag)
        plan = plan_of(draw, number, self.views[at])
        if plan is None:
            return
        if plan.kind is not IntentKind.REWRITE:
            adds = tuple((name, carrier_of(name), ids) for name, _, ids in plan.adds)
            plan = replace(plan, adds=adds, adds_in_leaf=draw.leaf and bool(adds) and plan.writer is not None)
        named = tuple((f"{name}-{carrier}-{value}", carrier, value) for name, carrier, value in plan.equality)
        in_leaf = draw.leaf and bool(plan.vectors) and plan.writer is not None and not plan.converts
        self.waiting.append((replace(plan, equality=named, vectors_in_leaf=in_leaf), at))

    def close_batch(self) -> None:
        if not self.waiting:
            return
        files = WrittenFiles(self.lake)
        records = [self._record(plan, at, files) for plan, at in self.waiting]
        expected = [self.model.apply(plan, self.views[at]) for plan, at in self.waiting]
        self.waiting = []
        assert outcomes(self.lake.put_records(records)) == expected
        self._remember()

    def _record(self, plan: Plan, at: int, files: WrittenFiles) -> Record:
        [record] = self.lake.records([intent_of(plan, self.lake, self.lake.states[at], files)])
        return replace(record, headers=content_headers(plan.says))

    def snapshot_at(self, version: int) -> int | None:
        """The version whose snapshot an export of `version` has: the newest that changed or moved entries."""
        while version and self._places(version) == self._places(version - 1):
            version -= 1
        return version if version or self._places(0) else None

    def _places(self, version: int) -> set[tuple[Any, ...]]:
        live = self.lake.states[version].live.entries()
        return {(each.leaf, each.ordinal, *_numbered(each.entry)) for each in live}

    def _remember(self) -> None:
        self.model.moment = len(self.views)
        self.views.append(copy.deepcopy(self.model))
        assert len(self.views) == len(self.lake.states)


def _numbered(entry: ContentEntry) -> tuple[Any, ...]:
    return *entry.place, entry.version_info.file_sequence_number


def told(sequence: list[Draw]) -> Story:
    story = Story()
    for number, draw in enumerate(sequence):
        story.plan(draw, number)
        if draw.closes_batch:
            story.close_batch()
    story.close_batch()
    return story


async def exports(
    folder: Path, versions: list[int], format_version: FormatVersion, table: TableName = TABLE
) -> dict[int, ExportedTable]:
    """Several versions, one after the other, by one exporter."""
    store = open_store(str(folder))
    try:
        exporter = TableExporter(store, folder.as_uri())
        return {version: await exporter.export(table, format_version, Version(version)) for version in versions}
    finally:
        await store.close()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table.column(name).to_pylist() for name in ("id", "carrier", "delay")]
    return sorted(zip(*columns, strict=True), key=lambda row: row[2])


def same_rows(model: ReferenceTable) -> list[tuple[Any, ...]]:
    return sorted((row[:3] for row in expected_rows(model)), key=lambda row: row[2])


def snapshot_of(version: int) -> SnapshotId:
    return SnapshotId(snapshot_id_of(TABLE_UUID, Version(version)))


def check_both(duckdb: DuckDBReader, exported: ExportedTable, model: ReferenceTable, at: SnapshotId | None) -> None:
    location = exported.metadata_location
    assert rows_of(pyiceberg_rows(location, snapshot_id=at)) == same_rows(model)
    assert rows_of(duckdb.rows(location, snapshot_id=at)) == same_rows(model)


# an example takes half a second: one that fails is not worth the minutes that making it smaller would take
@settings(
    deadline=None,
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(changes, min_size=10, max_size=24), st.sampled_from(FormatVersion), st.data())
def test_engines_read_the_rows_of_the_model_at_several_versions(
    sequence: list[Draw], format_version: FormatVersion, data: st.DataObject
) -> None:
    story = told(sequence)
    head = len(story.views) - 1
    versions = {data.draw(st.integers(0, head), label="version"), head}
    with tempfile.TemporaryDirectory() as made, open_duckdb() as duckdb:
        store_lake(story.lake, Path(made))
        for version, exported in asyncio.run(exports(Path(made), sorted(versions), format_version)).items():
            check_both(duckdb, exported, story.views[version], None)
            refs = {name: ref.snapshot_id for name, ref in pyiceberg_table(exported.metadata_location).refs().items()}
            named = {"main": version, **story.views[version].tags}
            shown = {name: story.snapshot_at(at) for name, at in named.items()}
            assert refs == {name: snapshot_of(at) for name, at in shown.items() if at is not None}
            earlier = story.snapshot_at(data.draw(st.integers(max(0, version - 9), version), label="earlier"))
            if earlier is not None:
                check_both(duckdb, exported, story.views[earlier], snapshot_of(earlier))
            if format_version is FormatVersion.V3:
                found = duckdb.rows(exported.metadata_location, columns=["id", "_row_id"]).to_pylist()
                wanted = [{"id": row[0], "_row_id": row[3]} for row in expected_rows(story.views[version])]
                assert sorted(found, key=lambda row: row["_row_id"]) == wanted


NAME = "demo.t"
STEPS = 18
_COLUMNS = {"id": "long not null", "a": "string", "b": "int", "c": "int", "place": {"x": "int"}}
_NAMES = ("a", "b", "c", "d", "größe", "a-b")
_REFUSED = ("evolution-illegal", "definition-invalid", "column-unknown", "version-unknown")


class Histories:
    """A table and random steps in its life: rows, columns, specs, orders, tags, restores and upkeep.

    It exports by one exporter that remembers, and now and then by another that does not.
    """

    def __init__(self, lake: Lake, folder: Path, seed: int) -> None:
        self.lake, self.folder, self.rng, self.minted = lake, folder, random.Random(seed), 0
        properties = {"rootline.export.snapshots": "40"}
        lake.create_table(NAME, _COLUMNS, partition_by=["a", "c"], properties=properties)

    @property
    def table(self) -> TableHandle:
        """A handle that has heard of every change."""
        return self.lake.table(NAME)

    def step(self) -> None:
        """One step; one that the table refuses, such as dropping a column that it is partitioned by, is none."""
        steps = [
            *[self.append] * 6,
            *[self.delete, self.overwrite, self.restore, self.tag, self.tag, self.sort, self.rewrite],
            *[self.add_column, self.drop_column, self.drop_column, self.add_field, self.drop_field, self.drop_field],
            *[self.rename_column, self.widen_column, self.maintain, self.export, self.export, self.export_by_others],
        ]
        try:
            self.rng.choice(steps)()
        except Invalid as error:
            if error.code not in _REFUSED:
                raise

    def append(self) -> None:
        self.table.append(self._rows(self.rng.randint(1, 4)))

    def overwrite(self) -> None:
        self.table.overwrite(self._rows(2), where=self._some())

    def delete(self) -> None:
        self.table.delete_where(self._some())

    def restore(self) -> None:
        self.table.restore(version=self.rng.randint(0, self.table.head().version))

    def tag(self) -> None:
        self.table.tag(f"t{self.minted}-{self.rng.randint(0, 99)}")

    def sort(self) -> None:
        with self.table.alter() as change:
            change.set_sort_order(self.rng.sample(self._names(), 2))

    def rewrite(self) -> None:
        self.table.rewrite()

    def add_column(self) -> None:
        with self.table.alter() as change:
            change.add_column(self.rng.choice(_NAMES), self.rng.choice(["string", "int", "date", "decimal(9, 2)"]))

    def rename_column(self) -> None:
        with self.table.alter() as change:
            change.rename_column(self.rng.choice(self._names()[1:]), self.rng.choice(_NAMES))

    def widen_column(self) -> None:
        columns = [field.name for field in self.table.definition().schema.fields if str(field.field_type) == "int"]
        with self.table.alter() as change:
            change.update_column(self.rng.choice(columns or ("id",)), "long")

    def drop_column(self) -> None:
        """After the fields of the default spec and order that are made of it."""
        definition = self.table.definition()
        column = self.rng.choice(definition.schema.fields)
        if column.name == "id":
            return
        spec = definition.spec_by_id(definition.default_spec_id)
        names = partition_field_names(definition, spec)
        sources = [definition.transform_of(member)[0] for member in spec.expr_ids]
        with self.table.alter() as change:
            change.set_sort_order([])
            for name, source_id in zip(names, sources, strict=True):
                if source_id == column.field_id:
                    change.drop_partition_field(name)
        with self.table.alter() as change:
            change.drop_column(column.name)

    def add_field(self) -> None:
        with self.table.alter() as change:
            column = self.rng.choice([*self._names(), "place.x"])
            change.add_partition_field(column, self.rng.choice(["identity", "bucket[2]", "void"]))

    def drop_field(self) -> None:
        definition = self.table.definition()
        names = partition_field_names(definition, definition.spec_by_id(definition.default_spec_id))
        with self.table.alter() as change:
            change.drop_partition_field(self.rng.choice(names or ("none",)))

    def maintain(self) -> None:
        kind = BY_HAND[self.rng.choice(["flush", "compact"])]
        self.lake.holder.run(
            lambda session: maintain(
                session.store, session.log, session.environment, TableName(NAME), kind, dry_run=False
            )
        )

    def export(self) -> None:
        """What an export stores now is taken over by later ones."""
        self.table.export(self.rng.choice([2, 3]))

    def export_by_others(self) -> None:
        version = Version(max(0, self.table.head().version - self.rng.randint(0, 2)))
        asyncio.run(exports(self.folder, [version], self.rng.choice(list(FormatVersion)), TableName(NAME)))

    def _names(self) -> list[str]:
        return [field.name for field in self.table.definition().schema.fields]

    def _some(self) -> str:
        least = self.rng.randint(0, self.minted)
        return f"id >= {least} and id <= {least + 2}"

    def _rows(self, count: int) -> list[dict[str, Any]]:
        first, self.minted = self.minted, self.minted + count
        kinds = {each.name: str(each.field_type) for each in self.table.definition().schema.fields if each.name != "id"}
        ids = range(first, self.minted)
        return [{"id": key, **{name: self._value(kind) for name, kind in kinds.items()}} for key in ids]

    def _value(self, kind: str) -> Any:
        number = self.rng.randint(0, 3)
        if kind.startswith("struct"):
            return {"x": number}
        if number == 0:
            return None
        values = {"string": f"s{number}", "date": dt.date(2024, 1, number), "decimal(9, 2)": Decimal(number) / 4}
        return values.get(kind, number)


def _filters(table: TableHandle, version: int) -> list[str]:
    """One for each column that the version and the head have: engines bind filters to either's."""
    rows = table.scan(version=version).to_arrow()
    then = {column.field_id: column for column in table.tree(version=version).state.definition.schema.fields}
    found: list[str] = []
    for column in table.definition().schema.fields:
        if then.get(column.field_id) == column and column.name.isidentifier() and column.name.isascii():
            known = [value for value in rows.column(column.name).to_pylist() if isinstance(value, int | str | dt.date)]
            found += [f"{column.name} = {_literal(value)}" for value in known[:1]]
    return found


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("seed", drawn(12))
def test_engines_read_of_every_listed_snapshot_what_a_scan_of_its_version_has(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake, open_duckdb() as duckdb:
        world = Histories(lake, tmp_path / "lake", seed)
        for _ in range(STEPS):
            world.step()
        table = world.table
        exported = table.export(2 + seed % 2)
        metadata = json.loads(exported.metadata)
        listed = {each["snapshot-id"]: int(each["summary"]["rootline.version"]) for each in metadata["snapshots"]}
        versions = range(table.head().version + 1)
        filled = min((each for each in versions if table.scan(version=each).count()), default=len(versions))
        assert {tag for tag, version in table.tags().items() if version >= filled} <= metadata["refs"].keys()
        for read in (pyiceberg_rows, duckdb.rows):  # DuckDB ends the process where PyIceberg raises
            for snapshot_id, version in listed.items():
                for where in (None, *_filters(table, version)):
                    ours = table.scan(version=version, where=where).to_arrow().to_pylist()
                    theirs = read(exported.metadata_location, where=where or "", snapshot_id=snapshot_id).to_pylist()
                    assert _by_id(theirs) == _by_id(ours), f"version {version}, {where or 'every row'}"
        assert list(table.check()) == []
