"""Every public function and method, called with values of wrong types: each is `Invalid`, and says what to give."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rootline
from rootline.client.async_table import AsyncScan, AsyncTableHandle
from rootline.client.data_file import DataFile
from rootline.client.lake import Lake
from rootline.client.producer import AsyncProducer, AsyncReceipt, Producer, Receipt
from rootline.client.scan import Scan
from rootline.client.table_handle import TableHandle
from rootline.client.view_handle import ViewHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind, RemovedFile


class Odd:
    """Nothing that anyone expects."""

    def __repr__(self) -> str:
        return "<odd>"


ODD = Odd()
HALF = "half \ud800"
TEXT: list[Any] = [5, 5.5, True, b"text", ["text"], {"text": 1}, ODD, HALF]
PLACE: list[Any] = [5, True, b"text", ["text"], ODD, "zero\0byte", HALF]
WHOLE: list[Any] = ["3", 3.0, float("nan"), True, b"3", [3], {3: 3}, ODD, 2**70]
SECONDS: list[Any] = ["3", None, True, float("nan"), -1, [3], ODD]
TRUTH: list[Any] = ["yes", 1, None, [True], ODD]
TEXTS: list[Any] = ["id", 5, b"id", [5], [None], {"id": 1}, ["id", ODD], ODD, [HALF]]
TEXT_MAP: list[Any] = ["a", 5, ["a"], {"a": 1}, {1: "a"}, {"a": None}, ODD, {"a": HALF}]
ROWS: list[Any] = [5, None, "rows", True, [5], {"id": 5}, {5: [5]}, {"id": [ODD]}, [{"id": ODD}], ODD]
FILES: list[Any] = [5, None, "x", [5], ["x"], [None], {"a": 1}, pa.table({"x": [1]}), ODD]
MOMENT: list[Any] = [True, 5.5, "yesterday", b"2013-01-31", [5], ODD, 2**70]
SCHEMA: list[Any] = [5, None, "id long", True, [("id", "long")], {"id": 5}, {5: "long"}, {}, pa.schema([]), ODD]
ASSIGNED: list[Any] = [None, 5, "id = 1", ["id"], {}, {5: 1}, {"absent": 1}, {"id": "x"}, {"id": ODD}, ODD]

SECONDS_AND_SUMMARY = {"timeout_s": SECONDS, "summary": TEXT_MAP}
SIZE = {"target_file_size_bytes": [*WHOLE, None, 0, -1]}
SQL: list[Any] = [5, None, True, b"SELECT 1", ["SELECT 1"], {"spark": 1}, {1: "x"}, {}, "", {"": "x"}, ODD, HALF]
VERSION = {
    "dialect": [*TEXT, None, ""], "schema": [wrong for wrong in SCHEMA if wrong is not None], "default_catalog": TEXT,
    "default_namespace": [*TEXT, "", "a..b"],
}  # fmt: skip
POINT = {"version": WHOLE, "timestamp": MOMENT, "snapshot_id": WHOLE, "tag": TEXT}
WRONG: dict[Callable[..., Any], dict[str, list[Any]]] = {
    connect: {
        "url": PLACE, "log": PLACE, "coordinator": ["here", 5, None, ODD], "settings": [5, "x", {}, ODD],
        "cache_bytes": [*WHOLE, None, -1],
    },
    Lake.create_table: {
        "name": [*TEXT, None, "x", ""], "schema": SCHEMA, "partition_by": [*TEXTS, None], "expressions": [*TEXTS, None],
        "sort_by": [*TEXTS, None], "identifier_fields": TEXTS, "properties": TEXT_MAP, "if_not_exists": TRUTH,
        "timeout_s": SECONDS,
    },
    Lake.replace_table: {
        "name": [*TEXT, None, "x", ""], "schema": SCHEMA,
        "data": [wrong for wrong in ROWS if wrong is not None], "partition_by": TEXTS,
        "sort_by": TEXTS, "properties": TEXT_MAP, "create": TRUTH, "timeout_s": SECONDS, **SIZE,
    },
    Lake.adopt: {
        "metadata_location": [*PLACE, None], "name": [*TEXT, None], "dry_run": TRUTH,
        "timeout_s": [wrong for wrong in SECONDS if wrong is not None],
    },
    Lake.table: {"name": [*TEXT, None, "x", "a..c"]},
    Lake.async_table: {"name": [*TEXT, None, "x", "a..c"]},
    Lake.drop_table: {"name": [*TEXT, None, "x"], "purge": TRUTH, "timeout_s": SECONDS},
    Lake.restore_table: {"name": [*TEXT, None, "x"], "timeout_s": SECONDS},
    Lake.create_view: {
        "name": [*TEXT, None, "x", ""], "sql": SQL, **VERSION, "properties": TEXT_MAP, "timeout_s": SECONDS,
    },
    Lake.view: {"name": [*TEXT, None, "x", "a..c"]},
    Lake.drop_view: {"name": [*TEXT, None, "x", "a..c"], "timeout_s": SECONDS},
    Lake.views: {"namespace": [*TEXT, ""]},
    ViewHandle.metadata: {},
    ViewHandle.sql: {"dialect": [*TEXT, "absent"]},
    ViewHandle.history: {},
    ViewHandle.replace: {"sql": SQL, **VERSION, "replaces_version": [*WHOLE, 0, 2**40], "timeout_s": SECONDS},
    ViewHandle.rollback: {"version": [*WHOLE, None, 0, 2**40, 9], "timeout_s": SECONDS},
    ViewHandle.set_properties: {"properties": TEXT_MAP, "timeout_s": SECONDS},
    ViewHandle.remove_properties: {"keys": [*TEXTS, None], "timeout_s": SECONDS},
    ViewHandle.drop: {"timeout_s": SECONDS},
    Lake.create_namespace: {
        "name": [*TEXT, None, "", "a..b"], "properties": TEXT_MAP, "if_not_exists": TRUTH, "timeout_s": SECONDS,
    },
    Lake.namespaces: {},
    Lake.namespace_properties: {"name": [*TEXT, None, ""]},
    Lake.set_namespace_properties: {"name": [*TEXT, None, ""], "properties": TEXT_MAP, "timeout_s": SECONDS},
    Lake.remove_namespace_properties: {"name": [*TEXT, None, ""], "keys": [*TEXTS, None], "timeout_s": SECONDS},
    Lake.drop_namespace: {"name": [*TEXT, None, ""], "timeout_s": SECONDS},
    Lake.list_tables: {},
    Lake.producer: {"writer_id": [*TEXT, ""]},
    Lake.async_producer: {"writer_id": [*TEXT, ""]},
    Lake.close: {"patience_s": SECONDS},
    TableHandle.append: {
        "data": ROWS, "merge_schema": TRUTH, "writer_id": [*TEXT, ""], "writer_sequence": [*WHOLE, -1],
        **SIZE, **SECONDS_AND_SUMMARY,
    },
    TableHandle.add_files: {"files": FILES, **SECONDS_AND_SUMMARY},
    TableHandle.write_leaves: {"files": FILES, "spec_id": WHOLE},
    TableHandle.overwrite: {
        "data": ROWS, "where": [*TEXT, "id >"],
        "isolation": [5, None, "x", [], ODD], "merge_schema": TRUTH,
        **SIZE, **SECONDS_AND_SUMMARY,
    },
    TableHandle.replace: {
        "data": [wrong for wrong in ROWS if wrong is not None],
        "schema": [wrong for wrong in SCHEMA if wrong is not None],
        "partition_by": TEXTS, "sort_by": TEXTS, "properties": TEXT_MAP, **SIZE, **SECONDS_AND_SUMMARY,
    },
    TableHandle.delete_where: {
        "where": [*TEXT, None, ""], "isolation": [5, None, "x", [], ODD], **SECONDS_AND_SUMMARY,
    },
    TableHandle.update_where: {
        "where": [*TEXT, None, ""], "set": ASSIGNED, "isolation": [5, None, "x", [], ODD],
        **SIZE, **SECONDS_AND_SUMMARY,
    },
    TableHandle.upsert: {"rows": ROWS, "on": [*TEXTS, []], "skip_unchanged": TRUTH, **SIZE, **SECONDS_AND_SUMMARY},
    TableHandle.merge: {
        "source": ROWS, "on": [*TEXTS, []], "isolation": [5, None, "x", [], ODD],
        "when_matched": ["insert", *ASSIGNED[1:]], "when_not_matched": ["update", *ASSIGNED[1:]],
        **SIZE, **SECONDS_AND_SUMMARY,
    },
    TableHandle.rewrite: {"where": TEXT, **SIZE, **SECONDS_AND_SUMMARY},
    TableHandle.scan: {"where": TEXT, "columns": TEXTS, "limit": [*WHOLE, -1], **POINT},
    TableHandle.alter: {"timeout_s": SECONDS},
    TableHandle.definition: {},
    TableHandle.schema: {},
    TableHandle.tree: {"version": WHOLE},
    TableHandle.check: {"data_files": [5, "most", ODD], "summary": [5, {}, ODD], "progress": [5, "x"]},
    TableHandle.export: {"format_version": [5, "x", ODD, [], 2.5], "version": WHOLE},
    TableHandle.history: {"limit": [*WHOLE, None, 0], "everything": TRUTH},
    TableHandle.changes: {"from_version": [*WHOLE, None], "to_version": WHOLE},
    TableHandle.tag: {"name": [*TEXT, None, ""], "version": WHOLE, "move": TRUTH, "timeout_s": SECONDS},
    TableHandle.untag: {"name": [*TEXT, None], "timeout_s": SECONDS},
    TableHandle.tags: {},
    TableHandle.restore: {**POINT, "timeout_s": SECONDS},
    TableHandle.preview_restore: POINT,
    TableHandle.head: {},
    Scan.to_arrow: {}, Scan.to_pandas: {}, Scan.to_polars: {}, Scan.to_batches: {}, Scan.plan: {}, Scan.count: {},
    Scan.schema: {},
    Producer.publish: {"what": [*TEXT, None, "x"], "writer_sequence": WHOLE, "content": TEXT},
    Producer.stamp: {"intent": [*TEXT, None], "writer_sequence": WHOLE},
    Producer.close: {},
    AsyncProducer.publish: {"what": [*TEXT, None, "x"], "writer_sequence": WHOLE, "content": TEXT},
    AsyncProducer.close: {},
    Receipt.verdict: {"timeout_s": SECONDS},
    AsyncReceipt.verdict: {"timeout_s": SECONDS},
    DataFile.from_parquet: {
        "location": [*TEXT, None], "schema": [5, None, "x", pa.schema([]), ODD], "source": [5, ["x"], True, ODD],
    },
    DataFile: {
        "location": [5, None, ODD], "record_count": ["x", 3.5, None, -1, [3], ODD, 2**70],
        "statistics": [5, "x", [5], ODD],
    },
    Intent: {"kind": [5, None, "appendd", ODD], "table": [5, None, ODD], "add_data_files": [5, ["x"], [5], ODD]},
}  # fmt: skip
"""What each public call refuses, by parameter. A parameter that is left out takes any value."""
TWINS = {
    method: getattr(original, name)
    for twin, original in ((AsyncTableHandle, TableHandle), (AsyncScan, Scan))
    for name, method in inspect.getmembers(twin, inspect.isfunction)
    if not name.startswith("_")
}
"""The asyncio twin of each method → the method."""
WRONG |= {twin: WRONG[original] for twin, original in TWINS.items()}
INTENT = Intent(
    intent_id="i",
    table="demo.flights",
    kind=IntentKind.REMOVE,
    remove_files=(RemovedFile(location="data/x.parquet"),),
)
RIGHT: dict[Callable[..., Any], dict[str, Any]] = {
    Lake.create_table: {"name": "demo.new", "schema": {"id": "long"}},
    Lake.replace_table: {"name": "demo.flights", "schema": {"id": "long"}},
    Lake.adopt: {"metadata_location": "nowhere/metadata.json", "name": "demo.adopted"},
    Lake.table: {"name": "demo.flights"},
    Lake.drop_table: {"name": "demo.planes"},
    Lake.restore_table: {"name": "demo.planes"},
    Lake.create_view: {"name": "demo.new", "sql": "SELECT 1"},
    Lake.view: {"name": "demo.v"},
    Lake.drop_view: {"name": "demo.absent"},
    ViewHandle.replace: {"sql": "SELECT 1"},
    ViewHandle.rollback: {"version": 1},
    ViewHandle.set_properties: {"properties": {}},
    ViewHandle.remove_properties: {"keys": []},
    Lake.create_namespace: {"name": "other"},
    Lake.set_namespace_properties: {"name": "demo", "properties": {}},
    Lake.remove_namespace_properties: {"name": "demo", "keys": []},
    Lake.drop_namespace: {"name": "demo"},
    TableHandle.append: {"data": {"id": [1]}},
    TableHandle.add_files: {"files": []},
    TableHandle.write_leaves: {"files": []},
    TableHandle.overwrite: {"data": {"id": [1]}},
    TableHandle.replace: {"data": {"id": [1]}},
    TableHandle.delete_where: {"where": "id = -1"},
    TableHandle.update_where: {"where": "id = 100", "set": {"id": 100}},
    TableHandle.upsert: {"rows": {"id": [100]}, "on": ["id"]},
    TableHandle.merge: {"source": {"id": [100]}, "on": ["id"]},
    TableHandle.changes: {"from_version": 0},
    TableHandle.tag: {"name": "release"},
    TableHandle.untag: {"name": "release"},
    Producer.publish: {"what": INTENT},
    Producer.stamp: {"intent": INTENT},
    AsyncProducer.publish: {"what": INTENT},
    DataFile.from_parquet: {"location": "data/x.parquet", "schema": pa.schema([])},
    DataFile: {"location": "data/x.parquet", "record_count": 1, "file_size_in_bytes": 1},
    Intent: {"intent_id": "i", "table": "demo.flights", "kind": IntentKind.APPEND},
}
RIGHT |= {twin: RIGHT[original] for twin, original in TWINS.items() if original in RIGHT}
CLASSES = (
    AsyncTableHandle,
    AsyncScan,
    Lake,
    TableHandle,
    ViewHandle,
    Scan,
    Producer,
    AsyncProducer,
    Receipt,
    AsyncReceipt,
)
VALUES = {"Conflict", "Corrupt", "Fenced", "Internal", "Invalid", "OutcomeUnknown", "RootlineError", "Unavailable"}
VALUES |= {"Commit", "IntentKind", "Isolation", "Verdict", "VerdictKind"}


@dataclass(frozen=True, slots=True)
class Call:
    """One parameter of one public call."""

    function: Callable[..., Any]
    parameter: str

    def __str__(self) -> str:
        return f"{self.function.__qualname__}({self.parameter})"


CALLS = [Call(function, parameter) for function, wrong in WRONG.items() for parameter in wrong]


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[type, Any]]:
    """An object of each class."""
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        table = lake.create_table("demo.flights", pa.schema([("id", pa.int64())]))
        producer, twin = lake.producer(), lake.async_producer()
        receipt = producer.publish(INTENT)
        other = AsyncReceipt(receipt.intent, receipt.position, lake.holder)
        view = lake.create_view("demo.v", "SELECT 1")
        beside = lake.async_table("demo.flights")
        owned: list[Any] = [beside, beside.scan(), lake, table, view, table.scan(), producer, twin, receipt, other]
        yield {type(one): one for one in owned}


def called(owners: dict[type, Any], call: Call, value: Any) -> Any:
    """What comes of `call` with `value`; a coroutine is awaited, an iterator is read."""
    arguments = {**RIGHT.get(call.function, {}), call.parameter: value}
    owner = next(
        (one for kind, one in owners.items() if getattr(kind, call.function.__name__, None) is call.function), None
    )
    found = call.function(**arguments) if owner is None else call.function(owner, **arguments)
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    return list(found) if isinstance(found, Iterator) else found


NOT_OURS = re.compile(r"pydantic|validation error|Traceback|object has no attribute|positional")


def refusal(owners: dict[type, Any], call: Call, wrong: Any) -> Invalid:
    """The error of `call` with a wrong value."""
    try:
        found = called(owners, call, wrong)
    except Invalid as error:
        return error
    except Exception as error:
        pytest.fail(f"{call} with {wrong!r} raised {type(error).__name__}: {error}")
    pytest.fail(f"{call} took {wrong!r} and gave {found!r:.200}")


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_value_of_a_wrong_type_is_refused_in_plain_words(owners: dict[type, Any], call: Call) -> None:
    for wrong in WRONG[call.function][call.parameter]:
        error = refusal(owners, call, wrong)
        assert 10 < len(str(error)) < 600, wrong
        assert not NOT_OURS.search(str(error)), error


def test_every_public_call_and_parameter_is_tried() -> None:
    public = {connect, DataFile, Intent, DataFile.from_parquet.__func__}  # type: ignore[attr-defined]
    for kind in CLASSES:
        public |= {member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    tried = {getattr(function, "__func__", function): set(wrong) for function, wrong in WRONG.items()}
    assert public - tried.keys() == set()
    for function in public & tried.keys() - {DataFile, Intent}:
        names = set(inspect.signature(function).parameters) - {"self", "cls"}
        assert names == tried[function], function
    assert set(rootline.__all__) == VALUES | {kind.__name__ for kind in CLASSES} | {"connect", "DataFile", "Intent"}


def test_numbers_of_numpy_and_paths_are_as_good_as_pythons_own(tmp_path: Path) -> None:
    import numpy as np

    with connect(tmp_path / "lake", cache_bytes=np.int64(0)) as lake:
        table = lake.create_table("demo.t", {"id": int}, timeout_s=np.float32(30))
        table.append({"id": np.arange(3)}, timeout_s=30)
        assert table.scan(version=np.int64(1), limit=np.int32(2)).count() == 2
        assert table.restore(version=np.int64(0)).version == 2


ALTERATIONS: dict[str, Callable[[Any, Any], object]] = {
    "add_column": lambda change, wrong: change.add_column(wrong, "long"),
    "add_column's type": lambda change, wrong: change.add_column("new", wrong),
    "drop_column": lambda change, wrong: change.drop_column(wrong),
    "rename_column": lambda change, wrong: change.rename_column("id", wrong),
    "update_column": lambda change, wrong: change.update_column(wrong, doc="x"),
    "move_column": lambda change, wrong: change.move_column(wrong, first=True),
    "set_identifier_fields": lambda change, wrong: change.set_identifier_fields(wrong),
    "union_by_name": lambda change, wrong: change.union_by_name(wrong),
    "add_partition_field": lambda change, wrong: change.add_partition_field(wrong),
    "add_partition_field's transform": lambda change, wrong: change.add_partition_field("id", wrong),
    "add_partition_field's name": lambda change, wrong: change.add_partition_field("id", "bucket[4]", wrong),
    "drop_partition_field": lambda change, wrong: change.drop_partition_field(wrong),
    "rename_partition_field": lambda change, wrong: change.rename_partition_field("id", wrong),
    "set_sort_order": lambda change, wrong: change.set_sort_order(wrong),
    "set_properties": lambda change, wrong: change.set_properties(wrong),
    "remove_properties": lambda change, wrong: change.remove_properties(wrong),
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_definition_is_not_changed_by_values_of_wrong_types(owners: dict[type, Any], alteration: str) -> None:
    table = owners[TableHandle]
    for wrong in (5, b"x", [5], {5: 5}, ODD, True, HALF, ("id", 5)):
        with pytest.raises(Invalid) as caught, table.alter() as change:
            ALTERATIONS[alteration](change, wrong)
        assert not NOT_OURS.search(str(caught.value)), wrong
    assert table.definition().schema.column_names == ["id"]
