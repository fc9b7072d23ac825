"""A merge with several clauses is one commit of what the clauses say in order, as a model in Python computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import rootline.spark
from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import Intent
from rootline.spark import Merge, RowsChanged
from rootline.spark import row_change_job as change_job
from tests.spark.conftest import FLIGHTS
from tests.support.examples import drawn

pytestmark = pytest.mark.spark
Row = dict[str, Any]
Test = Callable[[Row, Row], bool | None]
NOBODY: Row = {"id": None, "carrier": None, "delay": None, "op": None}


def above(one: float | None, other: float | None) -> bool | None:
    return None if one is None or other is None else one > other


ANY: dict[str | None, Test] = {None: lambda source, target: True}
OF_SOURCE: dict[str | None, Test] = {
    "source.op = 'D'": lambda source, target: source["op"] == "D",
    "source.delay > 4": lambda source, target: above(source["delay"], 4.0),
    "source.delay is null": lambda source, target: source["delay"] is None,
}
OF_TARGET: dict[str | None, Test] = {
    "target.delay > 4": lambda source, target: above(target["delay"], 4.0),
    "target.carrier = 'UA' and target.id > 2": lambda source, target: target["carrier"] == "UA" and target["id"] > 2,
}
OF_BOTH: dict[str | None, Test] = {
    "source.delay > target.delay": lambda source, target: above(source["delay"], target["delay"]),
}
TESTS: dict[str, dict[str | None, Test]] = {
    "matched": {**ANY, **OF_SOURCE, **OF_TARGET, **OF_BOTH},
    "not_matched": {**ANY, **OF_SOURCE},
    "by_source": {**ANY, **OF_TARGET},
}


def total(*values: float | None) -> float:
    return sum(value or 0.0 for value in values)


SUM = "coalesce(source.delay, 0) + coalesce(target.delay, 0)"
ACTIONS: dict[str, dict[str, Callable[[Row, Row], Row | None]]] = {
    "matched": {
        "delete": lambda source, target: None,
        "update": lambda source, target: {**target, "delay": source["delay"]},
        SUM: lambda source, target: {**target, "delay": total(source["delay"], target["delay"])},
    },
    "not_matched": {
        "insert": lambda source, target: {"id": source["id"], "carrier": None, "delay": source["delay"]},
        "1.5": lambda source, target: {"id": source["id"], "carrier": "new", "delay": 1.5},
    },
    "by_source": {
        "delete": lambda source, target: None,
        "-1": lambda source, target: {**target, "delay": -1.0},
    },
}


@dataclass(frozen=True)
class Clause:
    kind: str
    condition: str | None
    action: str

    def added_to(self, merge: Merge) -> Merge:
        match self.kind, self.action:
            case "matched", "delete":
                return merge.when_matched(self.condition).delete()
            case "matched", "update":
                return merge.when_matched(self.condition).update()
            case "matched", value:
                return merge.when_matched(self.condition).update({"delay": value})
            case "not_matched", "insert":
                return merge.when_not_matched(self.condition).insert()
            case "not_matched", value:
                return merge.when_not_matched(self.condition).insert(
                    {"id": "source.id", "carrier": "'new'", "delay": value}
                )
            case _, "delete":
                return merge.when_not_matched_by_source(self.condition).delete()
        return merge.when_not_matched_by_source(self.condition).update({"delay": self.action})

    def applies(self, kind: str, source: Row, target: Row) -> bool:
        return kind == self.kind and bool(TESTS[kind][self.condition](source, target))


def some_clauses(random: Random) -> list[Clause]:
    found: list[Clause] = []
    for kind in random.sample(list(TESTS), random.randint(1, 3)):
        conditions = random.sample([each for each in TESTS[kind] if each], random.randint(0, 2))
        conditions += [None] if not conditions or random.random() < 0.5 else []
        found += [Clause(kind, condition, random.choice(list(ACTIONS[kind]))) for condition in conditions]
    return random.sample(found, len(found)) if all(each.condition for each in found) else found


class Ambiguous(Exception):
    pass


def merged(rows: list[Row], source: list[Row], clauses: list[Clause]) -> tuple[list[Row], tuple[int, int, int]]:
    """The rows after a merge by `id`, and the numbers of deleted, updated and inserted rows."""
    after: list[Row] = []
    deleted = updated = inserted = 0
    only = [(clause.condition, clause.action) for clause in clauses if clause.kind == "matched"]
    for target in rows:
        pairs = [given for given in source if given["id"] is not None and given["id"] == target["id"]]
        kind = "matched" if pairs else "by_source"
        chosen = [
            (clause, given)
            for given in pairs or [NOBODY]
            for clause in [next((each for each in clauses if each.applies(kind, given, target)), None)]
            if clause is not None
        ]
        if len(chosen) > 1 and only != [(None, "delete")]:
            raise Ambiguous
        new = target if not chosen else ACTIONS[kind][chosen[0][0].action](chosen[0][1], target)
        deleted, updated = deleted + (new is None), updated + bool(chosen and new is not None)
        after += [] if new is None else [new]
    known = {row["id"] for row in rows} - {None}
    for given in source:
        clause = next((each for each in clauses if each.applies("not_matched", given, NOBODY)), None)
        if given["id"] not in known and clause is not None:
            new = ACTIONS["not_matched"][clause.action](given, NOBODY)
            assert new is not None
            after, inserted = [*after, new], inserted + 1
    return after, (deleted, updated, inserted)


def content(table: TableHandle) -> list[Row]:
    rows: list[Row] = table.scan(columns=["id", "carrier", "delay"]).to_arrow().to_pylist()
    return sorted(rows, key=repr)


def row_ids(table: TableHandle) -> dict[int, int | None]:
    """`_row_id` → id."""
    rows = table.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()
    assert len({row["_row_id"] for row in rows}) == len(rows)
    return {row["_row_id"]: row["id"] for row in rows}


@pytest.fixture
def there(flights: TableHandle) -> TableHandle:
    """Eight flights of two carriers in four files. One has no delay, and one has no id."""
    rows = [{"id": at, "carrier": ("UA", "AA")[at % 2], "delay": float(at)} for at in range(6)]
    flights.append(pa.Table.from_pylist(rows, schema=FLIGHTS))
    odd = [{"id": 6, "carrier": "UA", "delay": None}, {"id": None, "carrier": "AA", "delay": 9.0}]
    flights.append(pa.Table.from_pylist(odd, schema=FLIGHTS))
    return flights


@pytest.fixture
def options(folder: Path) -> dict[str, Any]:
    return {"warehouse": str(folder)}


def given_rows(spark: SparkSession, rows: list[Row], *, with_op: bool = True) -> DataFrame:
    frame = spark.createDataFrame(
        [(row["id"], row["delay"], row["op"]) for row in rows], "id long, delay double, op string"
    )
    return frame if with_op else frame.drop("op")


@pytest.mark.parametrize("seed", drawn(30))
def test_clauses_drawn_at_random_give_the_rows_and_numbers_of_a_model(
    spark: SparkSession, there: TableHandle, options: dict[str, Any], seed: int
) -> None:
    random = Random(seed)
    for mode in random.sample(["merge-on-read", "copy-on-write"], 2):
        clauses, before = some_clauses(random), content(there)
        keys = random.choices([*range(10), None], k=5) if random.random() < 0.3 else random.sample(range(10), 5)
        source = [
            {"id": key, "delay": random.choice([None, 2.5, 7.0]), "op": random.choice(["D", "U"]), "carrier": None}
            for key in keys
        ]
        uses_op = any("op" in (clause.condition or "") for clause in clauses)
        frame = given_rows(spark, source, with_op=uses_op)
        merge = rootline.spark.merge(spark, "demo.flights", frame, on=["id"], mode=mode, **options)  # type: ignore[arg-type]
        for clause in clauses:
            merge = clause.added_to(merge)
        version, ids = there.head().version, row_ids(there)
        try:
            expected, numbers = merged(before, source, clauses)
        except Ambiguous:
            with pytest.raises(Invalid, match="matches a row of the table") as refused:
                merge.execute()
            assert refused.value.code == "merge-ambiguous"
            assert content(there) == before
            continue
        changed = merge.execute()
        assert changed == RowsChanged(version + 1 if any(numbers) else None, *numbers), clauses
        assert content(there) == sorted(expected, key=repr), clauses
        kept = row_ids(there).items() & ids.items()
        assert len(kept) == len(before) - numbers[0], "a row that is updated keeps its id"
        assert list(there.check()) == []


def test_the_operations_of_a_change_log_are_one_commit(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    version = there.head().version
    log = spark.createDataFrame(
        [(1, "D", 0.0), (2, "U", 20.0), (7, "I", 70.0), (8, "D", 0.0)], "ID long, op string, delay double"
    )
    changed = (
        rootline.spark.merge(spark, "demo.flights", log, on=["id"], **options)
        .when_matched("source.op = 'D'")
        .delete()
        .when_matched(sql.col("source.delay") > sql.col("target.delay"))
        .update()
        .when_not_matched("op <> 'D'")
        .insert({"id": "source.ID", "carrier": "'new'", "delay": "source.delay + 1"})
        .when_not_matched_by_source("target.id is null")
        .delete()
        .when_not_matched_by_source("target.id < 5")
        .update({"delay": "target.delay * 100"})
        .execute()
    )
    assert changed == RowsChanged(version + 1, deleted=2, updated=4, inserted=1)
    assert {row["id"]: (row["carrier"], row["delay"]) for row in content(there)} == {
        0: ("UA", 0.0),
        2: ("UA", 20.0),
        3: ("AA", 300.0),
        4: ("UA", 400.0),
        5: ("AA", 5.0),
        6: ("UA", None),
        7: ("new", 71.0),
    }


def test_several_source_rows_may_delete_one_row_and_no_more_than_that(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    twice = given_rows(spark, [{"id": at, "delay": 1.0, "op": "D"} for at in (1, 1, 2)])
    merge = rootline.spark.merge(spark, "demo.flights", twice, on=["id"], **options)
    with pytest.raises(Invalid, match="matches a row of the table"):
        merge.when_matched("source.op = 'D'").delete().execute()
    deleted = merge.when_matched().delete().when_not_matched_by_source("target.id = 3").delete().execute()
    assert (deleted.deleted, {row["id"] for row in content(there)}) == (3, {0, 4, 5, 6, None})


def test_a_clause_that_is_not_right_is_refused_by_its_name_before_a_job_runs(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    version = there.head().version
    source = given_rows(spark, [{"id": 1, "delay": 1.0, "op": "D"}])
    on = rootline.spark.merge(spark, "demo.flights", source, on=["id"], **options)

    def refused(call: Callable[[], object], code: str, said: str) -> None:
        with pytest.raises(Invalid, match=said) as caught:
            call()
        assert caught.value.code == code

    wrong, unknown = "setting-invalid", "column-unknown"
    deleting, empty = on.when_matched().delete(), on.when_not_matched_by_source()
    refused(deleting.when_matched("true").update, wrong, "clause 2, when_matched, never applies, because clause 1 has")
    refused(lambda: on.when_matched("true").update({}), wrong, "clause 1, when_matched, sets no column")
    refused(lambda: empty.update({}), wrong, "clause 1, when_not_matched_by_source, sets no column")
    refused(on.execute, wrong, "a merge without clauses changes nothing")
    for merge, code, said in (
        (deleting.when_not_matched().insert({"gate": "1"}), unknown, "clause 2, when_not_matched: .*no column 'gate'"),
        (on.when_matched().update(), unknown, "no column 'op'"),
        (on.when_matched("target.id <> 1 or option is null").update(), unknown, "no column 'op'"),
        (on.when_matched("source.gate = 1").delete(), unknown, "clause 1, when_matched, condition: .*gate"),
        (on.when_matched("source.id").delete(), wrong, "clause 1, when_matched: its condition is of type bigint"),
        (on.when_matched("source.id +").delete(), wrong, "clause 1, when_matched, condition: "),
        (on.when_matched("id > 1").delete(), wrong, "clause 1, when_matched, condition: .*id"),
        (
            deleting.when_not_matched("target.id = 1").insert({"id": "source.id"}),
            unknown,
            "clause 2, when_not_matched, condition: .*target",
        ),
        (
            deleting.when_not_matched().insert({"id": "target.id"}),
            unknown,
            "clause 2, when_not_matched, values: .*target",
        ),
        (deleting.when_not_matched_by_source("source.id = 1").delete(), unknown, "clause 2, .*by_source, condition: "),
        (empty.update({"delay": "source.delay"}), unknown, "clause 1, when_not_matched_by_source, values: .*source"),
    ):
        refused(merge.execute, code, said)
    assert there.head().version == version


def test_a_source_is_a_dataframe_or_a_function_that_returns_one(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    wrong: Any
    for wrong, said in (([], "the source of a merge is list"), (list, "returned list: return a DataFrame")):
        with pytest.raises(Invalid, match=said):
            rootline.spark.merge_into(spark, "demo.flights", wrong, on=["id"], **options)


@pytest.fixture
def late(there: TableHandle, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The codes of the verdicts on a change. Before the first one, another writer adds 10 to the delay of row 5."""
    decide, codes = change_job.decided, list[str | None]()

    def decided(*given: Any) -> Any:
        if not codes:
            there.update_where("id = 5", {"delay": 15.0})
        verdict = decide(*given)
        codes.append(verdict.code)
        return verdict

    monkeypatch.setattr(change_job, "decided", decided)
    return codes


@pytest.mark.parametrize("way", ["load", "table", "view", "subquery", "function"])
def test_a_source_that_has_read_the_table_is_refused_after_a_conflict(
    spark: SparkSession,
    there: TableHandle,
    options: dict[str, Any],
    load: Callable[..., DataFrame],
    late: list[str | None],
    way: str,
) -> None:
    rows = rootline.spark.table(spark, "demo.flights", **options) if way == "table" else load()
    rows.createOrReplaceTempView("flights_now")
    if way == "view":
        rows = spark.sql("with now as (select * from flights_now) select * from now")
    if way == "subquery":
        rows = spark.sql("select 5L id, (select max(delay) from flights_now where id = 5) delay")
    doubled = rows.where("id = 5").select("id", (sql.col("delay") * 2).alias("delay"))
    source = (lambda: doubled) if way == "function" else doubled
    with pytest.raises(Invalid, match=r"pass a function that returns the source \(source=lambda: …\)") as refused:
        rootline.spark.merge_into(spark, "demo.flights", source, on=["id"], **options)
    assert (refused.value.code, late) == ("isolation-conflict", ["isolation-conflict"])
    assert [row["delay"] for row in content(there) if row["id"] == 5] == [15.0]


@pytest.mark.parametrize("place", ["value of an update", "condition of a delete", "value of a merge"])
def test_a_view_that_has_read_the_table_is_refused_after_a_conflict_wherever_it_is_used(
    spark: SparkSession,
    there: TableHandle,
    options: dict[str, Any],
    load: Callable[..., DataFrame],
    late: list[str | None],
    place: str,
) -> None:
    load().createOrReplaceTempView("flights_before")
    latest, source = "(select max(delay) from flights_before)", given_rows(spark, [{**NOBODY, "id": 0}], with_op=False)
    call = {
        "value of an update": lambda: rootline.spark.update_where(
            spark, "demo.flights", "id = 0 or id = 5", {"delay": f"{latest} + 1"}, **options
        ),
        "condition of a delete": lambda: rootline.spark.delete_where(
            spark, "demo.flights", f"delay = {latest}", **options
        ),
        "value of a merge": lambda: rootline.spark.merge_into(
            spark, "demo.flights", source, on=["id"], when_matched={"delay": latest}, **options
        ),
    }[place]
    with pytest.raises(Invalid, match="load it anew and repeat the change") as refused:
        call()
    assert (refused.value.code, late) == ("isolation-conflict", ["isolation-conflict"])
    assert {row["id"]: row["delay"] for row in content(there) if row["id"] in (0, 5, None)} == {0: 0, 5: 15, None: 9}


def test_a_function_as_the_source_reads_the_table_in_each_attempt(
    spark: SparkSession,
    there: TableHandle,
    options: dict[str, Any],
    load: Callable[..., DataFrame],
    late: list[str | None],
) -> None:
    def doubled() -> DataFrame:
        return load().where("id = 5").select("id", (sql.col("delay") * 2).alias("delay"))

    changed = rootline.spark.merge_into(spark, "demo.flights", doubled, on=["id"], **options)
    assert (changed.updated, late) == (1, ["isolation-conflict", None])
    assert [row["delay"] for row in content(there) if row["id"] == 5] == [30.0]


def test_a_source_at_a_version_that_it_names_is_kept_after_a_conflict(
    spark: SparkSession,
    there: TableHandle,
    options: dict[str, Any],
    load: Callable[..., DataFrame],
    late: list[str | None],
) -> None:
    before = load(versionAsOf=there.head().version).select("id", "delay").where("id = 5")
    rootline.spark.merge_into(spark, "demo.flights", before, on=["id"], **options)
    assert late == ["isolation-conflict", None]
    assert [row["delay"] for row in content(there) if row["id"] == 5] == [5.0]


def test_a_merge_conflicts_only_with_changes_of_rows_that_its_conditions_allow(
    spark: SparkSession,
    there: TableHandle,
    options: dict[str, Any],
    late: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intents: list[Intent] = []
    decided = change_job.decided

    def seen(lake: Lake, intent: Intent, *more: Any) -> Any:
        intents.append(intent)
        return decided(lake, intent, *more)

    monkeypatch.setattr(change_job, "decided", seen)
    source = given_rows(spark, [{"id": at, "delay": 1.0, "op": "U"} for at in (0, 1, 7)])
    changed = (
        rootline.spark.merge(
            spark, "demo.flights", source, condition="source.id = target.id and target.carrier = 'UA'", **options
        )
        .when_matched()
        .update({"delay": "source.delay"})
        .when_not_matched_by_source("target.id in (2, 3) and target.carrier = 'UA'")
        .delete()
        .execute()
    )
    assert (changed.updated, changed.deleted, late) == (1, 1, [None]), "row 5 is of another carrier"
    assert [intent.filter for intent in intents] == ["((carrier = 'UA')) or ((id in (2, 3)) and (carrier = 'UA'))"]
    assert {row["id"]: row["delay"] for row in content(there)} == {
        0: 1.0,
        1: 1.0,
        3: 3.0,
        4: 4.0,
        5: 15.0,
        6: None,
        None: 9.0,
    }
