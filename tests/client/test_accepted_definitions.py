"""Whatever a coordinator accepts as a table's definition, or as its next one, all of our readers can read."""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline import Invalid, connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.table_properties import PROPERTIES
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.support.examples import examples

_NUMBERS = count()
TYPES = st.sampled_from(
    [
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns"),
        *("string", "binary", "uuid", "decimal(1, 0)", "decimal(38, 38)", "fixed[1]", "fixed[16]", "fixed[300]"),
    ]
)
ODD_TYPES = st.sampled_from(
    [
        *("fixed[0]", "fixed[-1]", "fixed[00004]", "fixed[999999999]", "fixed[1000000000]", "fixed[2147483648]"),
        *(f"fixed[{10**20}]", "decimal(39, 2)", "decimal(5, 9)", "variant", "unknown", "geometry", "varchar(10)"),
    ]
)
ODD_NAMES = ["a", "A", "a.b", "", "_file", "id", "x y", "\x00", "\u0130", "\u00df", "n" * 999]
NAMES = st.sampled_from(ODD_NAMES) | st.text(max_size=5)
DEFAULTS = st.none() | st.sampled_from(
    [
        *(0, -1, 2**31, 2**63, 1.5, 1e308, True, {}, [], {"9": 1}),
        *("", "a", "00", "9" * 38, "1.20", "2020-01-01", "23:59:59.999999"),
    ]
)
ODD_IDS = st.sampled_from([0, 1, 10_000_001, 2_147_483_447, 2_147_483_448, "7", 2.0])
VALUES = st.sampled_from(["", "0", "1", "2", "600", "65537", "true", "false", "none", "many", "\u00b2", "-1", "1" * 30])
PROPERTY_NAMES = st.sampled_from([*PROPERTIES, "rootline.flush", "owner", "format-version"])
PROPERTY = st.dictionaries(PROPERTY_NAMES, VALUES, max_size=2)
UNPARTITIONED: dict[str, Any] = {"spec-id": 0, "fields": []}
REFUSED = ("definition-invalid", "property-invalid", "column-untracked", "evolution-illegal")
TRANSFORMS = st.sampled_from(["identity", "bucket[4]", "truncate[3]", "day", "void", "zorder", "bucket[0]"])


@st.composite
def types(draw: st.DrawFn, ids: Iterator[int], primitives: st.SearchStrategy[str], depth: int = 0) -> Any:
    kind = draw(st.sampled_from(["primitive"] * 4 + ["struct", "list", "map"] * (depth < 3)))
    inner = types(ids, primitives, depth + 1)
    match kind:
        case "struct":
            members = [columns(ids, depth + 1) for _ in range(draw(st.integers(1, 2)))]
            return {"type": "struct", "fields": [draw(member) for member in members]}
        case "list":
            return {"type": "list", "element-id": next(ids), "element": draw(inner), "element-required": False}
        case "map":
            key, value = next(ids), next(ids)
            of = {"key": draw(inner), "value": draw(inner), "value-required": False}
            return {"type": "map", "key-id": key, "value-id": value, **of}
    return draw(primitives)


@st.composite
def columns(draw: st.DrawFn, ids: Iterator[int], depth: int = 0) -> dict[str, Any]:
    """A column with at most one odd thing about it, so that many are accepted."""
    odd = draw(st.sampled_from(["type", "none", "name", "default", "required", "id"]))
    own = next(ids)
    made: dict[str, Any] = {
        "id": draw(ODD_IDS) if odd == "id" else own,
        "name": draw(NAMES) if odd == "name" else f"c{own}",
        "type": draw(types(ids, ODD_TYPES if odd == "type" else TYPES, depth)),
        "required": draw(st.sampled_from([True, "no"])) if odd == "required" else False,
    }
    if odd == "default":
        made |= {kind: draw(DEFAULTS) for kind in ("initial-default", "write-default")}
    return made


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, str]]:
    """A definition, columns that are added one after the other, and properties that are set."""
    ids, later_ids = count(2), count(1_000)
    first = {"id": 1, "name": "id", "type": "long", "required": False}
    odd = draw(st.sampled_from(["none", "none", "columns", "last", "transform", "property"]))
    fields = [first, *(draw(columns(ids)) for _ in range(2 if odd == "columns" else 0))]
    later = [draw(columns(later_ids)) for _ in range(draw(st.integers(1, 3)))]
    transform = draw(TRANSFORMS) if odd == "transform" else "bucket[4]"
    definition = {
        "format-version": 4,
        "table-uuid": str(uuid.uuid4()),
        "last-column-id": draw(st.sampled_from([2_147_483_447, 10**30, "900"])) if odd == "last" else 900,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": []}],
        "current-schema-id": 0,
        "expressions": [{"expr-id": 900, "expr": {"source-id": 1, "transform": transform, "name": "made"}}],
        "partition-specs": [
            {"spec-id": 0, "fields": draw(st.sampled_from([[], [{"expr-id": 1}], [{"expr-id": 900}]]))}
        ],
        "default-spec-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": draw(PROPERTY) if odd == "property" else {},
    }
    return definition, later, draw(PROPERTY)


def _told(lake: Lake, table: str, kind: str, body: dict[str, Any], table_uuid: str | None = None) -> Verdict:
    said = {"intent_id": str(uuid.uuid4()), "table": table, "kind": kind, "definition": json.dumps(body)}
    if table_uuid is not None:
        said["table_uuid"] = table_uuid
    decoded = decode_intent(json.dumps(said).encode(), {"content-type": b"application/json"})
    return lake.producer().publish(decoded).verdict(30)


@pytest.fixture(scope="module")
def shared() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory() as folder, connect(Path(folder) / "lake") as opened:
        yield opened


@given(story=stories())
@settings(max_examples=examples(120), deadline=None)
def test_what_a_coordinator_accepts_can_be_read_dropped_restored_and_exported(
    shared: Lake, story: tuple[dict[str, Any], list[dict[str, Any]], dict[str, str]]
) -> None:
    definition, later, properties = story
    name = f"drawn.t{next(_NUMBERS)}"
    made = _told(shared, name, "create", definition)
    if made.kind is not VerdictKind.COMMITTED:
        assert made.code in REFUSED, made
        definition |= {"last-column-id": 900, "properties": {}, "expressions": [], "partition-specs": [UNPARTITIONED]}
        definition["schemas"][0]["fields"] = definition["schemas"][0]["fields"][:1]
        assert _told(shared, name, "create", definition).kind is VerdictKind.COMMITTED
    table = shared.table(name)
    _append(table)
    for column in later:
        stored = table.definition()
        body = json.loads(stored.schema.model_dump_json())
        body["fields"].append(column)
        current = {"action": "set-current-schema", "schema-id": -1}
        changes = {
            "replaces-definition": hashlib.sha256(stored.to_json()).hexdigest(),
            "changes": [{"action": "add-schema", "schema": body}, current],
        }
        altered = _told(shared, name, "alter", changes)
        assert altered.code in (None, *REFUSED), altered
        _append(table)
    changes = {"changes": [{"action": "set-properties", "updates": properties}]}
    assert _told(shared, name, "alter", changes).code in (None, *REFUSED)
    _append(table)
    _check_readable(shared, name)
    shared.drop_table(name)
    shared.restore_table(name)
    _check_readable(shared, name)


def _append(table: TableHandle) -> None:
    """A required column without a default, or a transform without a value for a row, is a reason to refuse rows."""
    try:
        table.append([{"id": 1}])
    except Invalid as error:
        if error.code not in ("rows-invalid", "statistics-invalid"):
            raise


def _check_readable(lake: Lake, name: str) -> None:
    table = lake.table(name)
    for commit in table.history():
        table.scan(version=commit.version).to_arrow()
    assert [str(finding) for finding in table.check()] == []
    try:
        table.export(3)
    except Invalid as error:
        if error.code != "export-unsupported":
            raise
