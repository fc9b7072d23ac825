"""A lake with the embedded log: the release writes it and the current tree goes on, the other way round, and both.

A release decides the intents of the current tree as long as their schema has not grown (docs/stability.md promises the
other direction only). The commit that adds a field to `schemas/avro/intent.avsc` states in CHANGELOG.md that
coordinators come first, and lets only the current tree decide here.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.compatibility import sides
from tests.compatibility.both_ways import DECIDED, assert_grown, assert_read, write_all
from tests.compatibility.sides import Release, Side, both_sides, installed, named_release
from tests.release.built import HOUSE, NotBuilt

pytestmark = pytest.mark.slow


def test_every_public_name_parameter_setting_and_code_of_the_release_is_still_there(
    released_python: Path, tmp_path: Path
) -> None:
    with both_sides(released_python, tmp_path / "lake") as (released, current):
        released.begin("promises")
        kept, promised = {*current("promises")}, {*released.answer()}
        assert {"TableHandle.append(timeout_s)", "IntentKind.APPEND", "code file-not-live"} <= promised
        assert promised - kept == set()
        version, place = released("version")
        assert version == named_release().version
        assert Path(place).is_relative_to(released_python.parents[1]), "the release is compared with itself"
        assert Path(current("version")[1]) == HOUSE / "src" / "rootline"


@pytest.mark.parametrize("first", ["release", "tree"])
def test_one_writes_a_lake_and_a_log_the_other_reads_decides_and_goes_on_and_then_both_write_at_once(
    released_python: Path, tmp_path: Path, first: str
) -> None:
    with both_sides(released_python, tmp_path / "lake") as (released, current):
        writer, reader = (released, current) if first == "release" else (current, released)
        written, sent = write_all(writer)
        undecided = writer("leave_undecided", "latecomer")
        assert_read(reader, written, sent)
        decided = reader("send_again", undecided)
        duplicates = [["duplicate" if kind == "committed" else kind, code] for kind, code in DECIDED]
        assert [[kind, code] for kind, _, code in decided] == duplicates, "what waited was decided first"
        assert_grown(reader, writer)
        assert_both_write(reader, writer)
        assert released("check") == []


def test_the_release_refuses_a_version_and_properties_of_a_view_in_one_intent(
    released_python: Path, tmp_path: Path
) -> None:
    with both_sides(released_python, tmp_path / "lake") as (released, current):
        current("make")
        assert released("change_view_twice_at_once") == ["rejected", "view-invalid", "SELECT 2", {}]
        assert current("change_view_twice_at_once") == ["committed", None, "SELECT 3", {"owner": "both"}]


def assert_both_write(host: Side, guest: Side) -> None:
    """They append to one table at once. One of them hosts the coordinator, and the other one when it has ended."""
    before = host("ids")
    host("open")
    guest("open")
    host.begin("append", 5_000, 8)
    guest.begin("append", 6_000, 8)
    assert [len(side.answer()) for side in (host, guest)] == [8, 8]
    host("close")
    guest("append", 7_000, 2)
    guest("close")
    expected = sorted([*before, *range(5_000, 5_008), *range(6_000, 6_008), 7_000, 7_001])
    assert host("ids") == guest("ids") == expected


def test_a_commit_that_the_clone_lacks_is_an_error_that_names_the_command(tmp_path: Path) -> None:
    lacking = "0123456789abcdef0123456789abcdef01234567"
    with pytest.raises(NotBuilt, match=f"git fetch --no-tags origin {lacking}"):
        installed(Release("0.0.0", lacking), tmp_path)


def test_the_release_is_named_by_a_full_hash() -> None:
    assert len(tomllib.loads(sides.RELEASE.read_text())["commit"]) == 40
