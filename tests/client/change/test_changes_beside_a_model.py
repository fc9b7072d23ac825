"""Random changes of rows give the rows that a list of dicts gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline import connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from tests.support.examples import examples

Row = dict[str, Any]
KEYS = st.one_of(st.none(), st.integers(0, 6))
PLACES = st.sampled_from(["a", "b", None])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
SPARSE: st.SearchStrategy[Row] = st.fixed_dictionaries({"k": KEYS}, optional={"p": PLACES, "n": NUMBERS})
ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries({"k": KEYS, "p": PLACES, "n": NUMBERS})
PARTIAL: st.SearchStrategy[Row] = st.fixed_dictionaries({"k": KEYS, "n": NUMBERS})


def key_of(row: Row) -> object:
    """Rows without a key may be in a source several times."""
    return object() if row["k"] is None else row["k"]


SOURCES = st.one_of(*(st.lists(rows, max_size=5, unique_by=key_of) for rows in (ROWS, PARTIAL, SPARSE)))
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(ROWS, min_size=1, max_size=5)),
    st.tuples(st.just("upsert"), SOURCES),
    st.tuples(
        st.just("merge"),
        SOURCES,
        st.sampled_from(["update", "delete", None, "add"]),
        st.sampled_from(["insert", None]),
    ),
    st.tuples(st.just("update"), st.integers(0, 6), NUMBERS),
    st.tuples(st.just("increment"), st.integers(-3, 3)),
    st.tuples(st.just("delete"), st.integers(0, 6)),
    st.tuples(st.just("rewrite")),
)


def merged(model: list[Row], source: list[Row], matched: Any, not_matched: Any) -> list[Row]:
    by_key = {row["k"]: row for row in source if row["k"] is not None}
    known = {row["k"] for row in model}
    after: list[Row] = []
    for row in model:
        given_row = by_key.get(row["k"])
        if given_row is None or matched is None:
            after.append(row)
        elif matched == "update":
            after.append({**row, **given_row})
        elif matched == "add":
            more = given_row.get("n")
            both = None if row["n"] is None or more is None else row["n"] + more
            after.append({**row, "n": both})
    if not_matched is not None:
        new = [row for row in source if row["k"] is None or row["k"] not in known]
        after += [{"k": None, "p": None, "n": None, **row} for row in new]
    return after


def applied(table: TableHandle, model: list[Row], step: Any) -> list[Row]:
    match step:
        case "append", rows:
            table.append(rows)
            return [*model, *rows]
        case "upsert", source:
            commit = table.upsert(source, on=["k"])
            after = merged(model, source, "update", "insert")
            changed = sum(old != new for old, new in zip(model, after, strict=False))
            assert (commit.rows.inserted, commit.rows.updated) == (len(after) - len(model), changed)
            return after
        case "merge", source, matched, not_matched:
            if matched is None and not_matched is None:
                return model
            if matched == "add" and not any("n" in row for row in source):
                return model
            clause = {"n": pc.field("target", "n") + pc.field("source", "n")} if matched == "add" else matched
            table.merge(source, on=["k"], when_matched=clause, when_not_matched=not_matched)
            return merged(model, source, matched, not_matched)
        case "update", key, number:
            table.update_where(f"k = {key}", {"n": number})
            return [{**row, "n": number} if row["k"] == key else row for row in model]
        case "increment", least:
            table.update_where(f"n >= {least}", {"n": pc.field("n") + 1, "p": "b"})
            hit = [row["n"] is not None and row["n"] >= least for row in model]
            return [
                {**row, "n": row["n"] + 1, "p": "b"} if is_hit else row for row, is_hit in zip(model, hit, strict=True)
            ]
        case "delete", key:
            table.delete_where(f"k = {key}")
            return [row for row in model if row["k"] != key]
    table.rewrite()
    return model


def shown(rows: list[Row]) -> list[str]:
    return sorted(str((row["k"], row["p"], row["n"])) for row in rows)


TABLES = count()


@pytest.fixture(scope="module")
def shared_lake() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory() as folder, connect(Path(folder) / "lake") as opened:
        yield opened


@settings(deadline=None, max_examples=examples(25))
@given(steps=st.lists(STEPS, min_size=2, max_size=8), partitioned=st.booleans())
def test_changes_give_the_rows_of_the_model(shared_lake: Lake, steps: list[Any], partitioned: bool) -> None:
    table = shared_lake.create_table(
        f"demo.t{next(TABLES)}", {"k": "long", "p": "string", "n": "int"}, partition_by=["p"] if partitioned else []
    )
    model: list[Row] = []
    for step in steps:
        model = applied(table, model, step)
        assert shown(table.scan().to_arrow().to_pylist()) == shown(model), step
    row_ids = table.scan(columns=["_row_id"]).to_arrow().column(0).to_pylist()
    assert len(set(row_ids)) == len(row_ids)
    assert list(table.check(data_files="all")) == []
