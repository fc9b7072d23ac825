"""What each version must find in a lake that the other one wrote.

Owns: the comparison of facts. Does not own: writing them (`scenario`).
"""

from __future__ import annotations

from typing import Any

from tests.compatibility.sides import Side

DECIDED = [["committed", None], ["committed", None], ["committed", None], ["rejected", "file-not-live"]]
"""Kind and code of the verdicts on `scenario.intents`."""


def assert_same(found: dict[str, Any], written: dict[str, Any]) -> None:
    """Everything is as it was written. A worker may have added versions, and intents that waited may have files."""
    rows = {version: digest for version, digest in found["rows"].items() if version in written["rows"]}
    files = [file for file in found["files"] if file in written["files"]]
    assert {**found, "rows": rows, "files": files} == written


def write_all(writer: Side) -> tuple[dict[str, Any], list[Any]]:
    """Fill the lake. What was written, and the intents that were decided, each with its verdict."""
    writer("make")
    sent = writer("send", "loader")
    assert [[kind, code] for _, (kind, _, code) in sent] == DECIDED
    return writer("facts"), sent


def assert_read(reader: Side, written: dict[str, Any], sent: list[Any]) -> None:
    """The other version reads the same, finds no fault, and gives every decided intent the verdict that it had."""
    assert_same(reader("facts"), written)
    assert reader("check") == []
    again = [["duplicate" if kind == "committed" else kind, *others] for _, (kind, *others) in sent]
    assert reader("send_again", [intent for intent, _ in sent]) == again


def assert_grown(first: Side, second: Side) -> None:
    """One version changes every table, then the other one. Both read the same and find no fault."""
    first("grow")
    second("grow")
    first.begin("facts")
    assert_same(second("facts"), first.answer())
    first.begin("check")
    assert second("check") == first.answer() == []
