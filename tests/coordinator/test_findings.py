"""What the console says is wrong, and in which order."""

from __future__ import annotations

from dataclasses import replace

from rootline.coordinator.http.findings import Situation, TableRow, code_in, counts_of, findings, selected, table_rows
from rootline.coordinator.runtime.observing import CodeCount, Sample
from rootline.coordinator.runtime.own_tables import OwnTable
from rootline.coordinator.runtime.table.table_states import TableState, TableStatus
from rootline.schemas.identifiers import TableName

NOW_MS = 10_000_000
WELL = Situation(NOW_MS, True, "", "", (), (), (), ())


def own(name: str, state: str = "idle", why: str = "", pending_since_ms: int | None = None) -> OwnTable:
    return OwnTable(TableName(name), TableState(state), state, why, 3, NOW_MS, pending_since_ms, 0, 0, 100, 10, 1)


def status(name: str, state: str = "idle", why: str = "", owner: str | None = "host/7") -> TableStatus:
    return TableStatus(TableName(name), TableState(state), 2, 0, None, owner, why, 0)


def rows_of(*tables: OwnTable, others: tuple[TableStatus, ...] = ()) -> list[TableRow]:
    return table_rows(tables, others, "me", NOW_MS)


def test_the_worst_tables_come_first_and_each_table_once() -> None:
    rows = rows_of(
        own("a.fine"),
        own("b.waits", "pending", pending_since_ms=NOW_MS - 100),
        own("c.slow", "pending", pending_since_ms=NOW_MS - 61_000),
        own("d.broken", "quarantined", "root-corrupt: damaged"),
        others=(status("a.fine"), status("e.held", "paused", "paused by an operator"), status("f.lost", "unowned")),
    )
    assert [(row.name, row.severity) for row in rows] == [
        ("d.broken", "bad"),
        ("f.lost", "bad"),
        ("c.slow", "bad"),
        ("e.held", "warn"),
        ("b.waits", "ok"),
        ("a.fine", "ok"),
    ]
    assert counts_of(rows) == {"quarantined": 1, "unowned": 1, "paused": 1, "pending": 2, "idle": 1}


def test_a_held_table_is_a_problem_only_when_it_is_held_for_long() -> None:
    why = "the log has not acknowledged the verdicts of 64 commits: further ones wait until it does"
    [short] = rows_of(own("a.b", "held", why, NOW_MS - 5_000))
    assert (short.severity, short.why) == ("ok", why)
    assert findings(replace(WELL, rows=[short])) == []
    [long] = rows_of(own("a.b", "held", why, NOW_MS - 61_000))
    [found] = findings(replace(WELL, rows=[long]))
    assert (found.severity, found.title, found.what, found.table) == ("bad", "a.b: commits wait", why, "a.b")
    assert "check the log" in found.do


def test_what_the_log_says_of_an_own_table_counts_only_if_it_is_worse() -> None:
    [row] = rows_of(own("a.b"), others=(status("a.b", "paused", "paused by an operator: x"),))
    assert (row.state, row.why, row.is_here, row.head) == ("paused", "paused by an operator: x", True, 3)
    [row] = rows_of(own("a.b", "quarantined", "mine"), others=(status("a.b", "parked", "theirs"),))
    assert (row.state, row.why) == ("quarantined", "mine")
    [row] = rows_of(own("a.b"), others=(status("a.b", "unowned"),))
    assert row.state == "idle", "it is this coordinator's, whatever the group said a moment ago"


def test_a_search_finds_names_and_reasons_in_any_case() -> None:
    rows = rows_of(own("a.Orders"), own("a.b", "delayed", "Access Denied"), own("c.d"))
    assert [row.name for row in selected(rows, " orders", "")] == ["a.Orders"]
    assert [row.name for row in selected(rows, "access d", "")] == ["a.b"]
    assert [row.name for row in selected(rows, "", "idle")] == ["a.Orders", "c.d"]
    assert selected(rows, "orders", "paused") == []


def test_a_thousand_broken_tables_make_a_short_list_that_counts_the_rest() -> None:
    rows = rows_of(*(own(f"a.t{number:04}", "quarantined", "root-corrupt: x") for number in range(1_000)))
    found = findings(replace(WELL, rows=rows))
    assert len(found) == 6
    assert found[-1].title == "995 more tables: quarantined"
    assert found[0].code == "root-corrupt"
    assert "`rootline quarantine lift a.t0000`" in found[0].do


def test_nothing_is_wrong_when_nothing_is_known_to_be() -> None:
    assert findings(replace(WELL, rows=rows_of(own("a.b")))) == []


def test_what_stops_the_process_comes_before_tables_and_warnings_come_last() -> None:
    situation = Situation(
        now_ms=NOW_MS,
        ready=False,
        reason="the log cannot be read: log-unavailable: away",
        worker_reason="its queue cannot be read",
        troubles=("the store: store-unavailable: no answer",),
        rows=rows_of(own("a.b", "paused", "all tables are paused by an operator"), own("c.d", "parked", "why")),
        samples=[Sample(NOW_MS - 100_000, 10, 0, 0, 0, 0), Sample(NOW_MS, 5_000, 0, 0, 0, 0)],
        codes=[CodeCount("file-missing", 3, NOW_MS - 1), CodeCount("old", 9, 0)],
    )
    found = findings(situation)
    assert [(item.severity, item.title) for item in found] == [
        ("bad", "This coordinator is not ready"),
        ("bad", "Part of the lake does not answer"),
        ("bad", "c.d is parked"),
        ("warn", "The worker beside this coordinator has trouble"),
        ("warn", "1 table is paused by an operator"),
        ("warn", "Lag grows"),
        ("warn", "Intents were rejected in the last five minutes"),
    ]
    assert [item.code for item in found[:2]] == ["log-unavailable", "store-unavailable"]
    assert found[4].do.startswith("Run `rootline resume --all`")
    assert "old" not in found[-1].what


def test_a_hostile_reason_is_only_text_and_names_a_code_only_if_it_is_ours() -> None:
    assert code_in("<script>evil-code</script> root-corrupt") == "root-corrupt"
    assert code_in("nothing-of-ours here") == ""
