"""`rootline namespace`: what it prints, and how it refuses."""

from __future__ import annotations

from pathlib import Path

from rootline import connect
from tests.cli.conftest import SCHEMA, Run


def test_a_namespace_goes_through_its_life(run: Run, tmp_path: Path) -> None:
    at = ("--warehouse", tmp_path)
    made = run("namespace", "create", "a.b", "--property", "owner=me=you", *at)
    assert (made.code, made.out) == (0, "a.b exists\n")
    assert run("namespace", "create", "a.b", *at).code != 0
    assert run("namespace", "create", "a.b", "--if-not-exists", *at).code == 0
    assert run("namespace", "set", "a.b", "--property", "x=1", "--remove", "owner", *at).code == 0
    assert run("namespace", "describe", "a.b", *at).out == "a.b:\n  x=1\n"
    assert run("namespace", "describe", "a.b", "--json", *at).records == [
        {"namespace": "a.b", "properties": {"x": "1"}}
    ]
    assert run("namespace", "list", "--json", *at).records == [{"namespace": "a.b"}]
    assert run("namespace", "drop", "a.b", *at).code == 0
    assert "no namespaces" in run("namespace", "list", *at).out
    gone = run("namespace", "describe", "a.b", *at)
    assert gone.code != 0
    assert "namespace-unknown" in gone.err


def test_a_drop_names_what_is_in_the_way(run: Run, tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.flights", SCHEMA)
    refused = run("namespace", "drop", "demo", "--warehouse", tmp_path)
    assert refused.code != 0
    assert "demo.flights is in this namespace" in refused.err


def test_a_change_that_says_nothing_or_two_things_is_refused(run: Run, tmp_path: Path) -> None:
    for words in ([], ["--property", "x"], ["--property", "x=1", "--remove", "x"]):
        refused = run("namespace", "set", "demo", *words, "--warehouse", tmp_path)
        assert (refused.code != 0, "setting-invalid" in refused.err) == (True, True)
