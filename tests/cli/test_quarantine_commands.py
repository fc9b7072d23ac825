"""`rootline quarantine` for an embedded log: it says what to do instead."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_on_an_embedded_log_nothing_is_parked_and_the_way_to_try_a_table_again_is_named(run: Run) -> None:
    listed = run("quarantine", "list")
    assert listed.code == 0
    assert "nothing is parked on it" in listed.out
    lifted = run("quarantine", "lift", "a.b")
    assert lifted.code != 0
    assert "is started again" in lifted.err
