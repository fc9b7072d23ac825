"""Iceberg's own compatibility kit against `rootline up`, on a folder and on S3."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from examples.spark_demo.service import running
from tests.kit.compatibility_kit import KitTest, Outcome, run_kit
from tests.services.s3_service import S3Service

EXPECTED: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("expected.toml").read_text())
PAGE = Path(__file__).parents[2] / "docs/other-engines.md"
CLIENT = {
    "warehouse": "own",
    "rck.requires-namespace-create": "true",
    "rck.overrides-requested-location": "true",
}
TESTS = 157
PREFIXES = {"ROOTLINE_COORDINATOR__FILE_PREFIXES": '["/path/to/"]'}
"""The kit adds files that it says to be there, and that do not exist."""


def listed(outcome: Outcome) -> set[tuple[str, str]]:
    """The tests that `expected.toml` lists with this outcome, by class and method."""
    return {
        (kind, name)
        for group in EXPECTED.values()
        if group["outcome"] == outcome
        for kind, names in group["tests"].items()
        for name in names
    }


def named(test: KitTest) -> tuple[str, str]:
    kind = "views" if "View" in test.kind else "tables"
    return kind, re.sub(r"\(\w*\)", "", test.name)


def check(tests: list[KitTest]) -> None:
    assert len(tests) == TESTS
    for outcome in (Outcome.FAILED, Outcome.SKIPPED):
        found = {named(test): test.reason for test in tests if test.outcome is outcome}
        wanted = listed(outcome)
        new = {name: reason[:300] for name, reason in found.items() if name not in wanted}
        assert new == {}, f"{outcome}, and expected.toml does not list them"
        assert wanted - set(found) == set(), f"expected.toml lists them as {outcome}: remove them"


@pytest.mark.services
@pytest.mark.slow
def test_the_kit_passes_on_a_folder(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    words = ("up", "--root", str(lake), "--http-port", "0")
    with running(*words, output=tmp_path / "up.log", environment=PREFIXES) as service:
        check(run_kit({"uri": service.url, **CLIENT}, tmp_path))


@pytest.mark.services
@pytest.mark.slow
def test_the_kit_passes_on_s3(tmp_path: Path, s3_service: S3Service) -> None:
    warehouse = f"s3://{s3_service.bucket}/kit"
    words = ("up", "--warehouse", warehouse, "--log", f"sqlite://{tmp_path}/log", "--http-port", "0")
    with running(*words, output=tmp_path / "up.log", environment=s3_service.environment() | PREFIXES) as service:
        keys = {"s3.access-key-id": s3_service.access_key_id, "s3.secret-access-key": s3_service.secret_access_key}
        check(run_kit({"uri": service.url, **CLIENT, **keys}, tmp_path))


def test_every_test_that_does_not_pass_is_on_the_page_for_users() -> None:
    page, failed, skipped = PAGE.read_text(), listed(Outcome.FAILED), listed(Outcome.SKIPPED)
    assert [name for _, name in failed if f"`{name}`" not in page] == []
    assert f"{TESTS - len(failed) - len(skipped)} pass, {len(skipped)} are skipped" in page
    assert f"and {len(failed)} fail:" in page
