"""`rootline pause` and `resume` on an embedded log, while another process, or none, hosts the coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.connect import connect
from rootline.schemas.errors import OutcomeUnknown
from tests.cli.conftest import Run

ROW = {"id": [9], "carrier": ["UA"], "delay": [1.0]}


def test_a_paused_table_waits_until_it_is_resumed_and_others_do_not(run: Run, lake: Path) -> None:
    here = ("--warehouse", lake)
    assert run("resume", "demo.flights", *here).code == 1
    paused = run("pause", "demo.flights", "--why", "wrong source", *here, "--json")
    assert (paused.code, paused.records[0]["changed"], paused.records[0]["why"]) == (0, True, "wrong source")
    again = run("pause", "demo.flights", *here, "--json").records[0]
    assert again == {**paused.records[0], "changed": False}
    with connect(lake) as opened:  # its coordinator starts with the pause in force
        table = opened.table("demo.flights")
        before = table.head().version
        with pytest.raises(OutcomeUnknown, match="paused by an operator: wrong source"):
            table.append(ROW, timeout_s=1.0)
        opened.create_table("demo.free", {"id": "int"}, timeout_s=60.0)
        assert table.head().version == before
        assert run("resume", "demo.flights", *here).code == 0
        table.append(ROW, timeout_s=60.0)  # it is behind the one that waited
        assert table.scan().to_arrow().num_rows == 5


def test_a_table_that_is_not_there_cannot_be_paused_and_one_of_table_and_all_is_named(run: Run, lake: Path) -> None:
    here = ("--warehouse", lake)
    missing = run("pause", "demo.fligths", *here)
    assert (missing.code, "table-unknown" in missing.err) == (1, True)
    assert run("pause", *here).code == 2
    assert run("pause", "demo.flights", "--all", *here).code == 2
    assert run("pause", "demo.flights", "--warehouse", lake / "nowhere").code == 3


def test_a_pause_of_all_and_one_of_a_table_end_each_by_itself(run: Run, lake: Path) -> None:
    here = ("--warehouse", lake)
    run("pause", "demo.flights", *here)
    assert "before its retention" in run("pause", "--all", *here).out
    held = run("resume", "demo.flights", *here)
    assert (held.code, "all tables are still paused" in held.out) == (0, True)
    assert run("resume", "--all", *here, "--json").records[0]["table"] == "*"
    assert run("resume", "--all", *here).code == 1
    with connect(lake) as opened:
        opened.table("demo.flights").append(ROW, timeout_s=60.0)
