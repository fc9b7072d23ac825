"""Every error code has a page in the docs, no page is stale, and `rootline explain` prints the same words."""

from __future__ import annotations

import pytest

from rootline.schemas.codes.error_codes import CODES
from rootline.schemas.codes.explanation import CATEGORIES, explained
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.coordinator.generated_pages import DOCS, code_pages


def test_each_code_has_its_page_and_no_page_is_stale_or_left_over() -> None:
    stored = {path.name: path.read_text() for path in (DOCS / "codes").iterdir()}
    assert stored == code_pages(), "run: python -m tests.coordinator.generated_pages"


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_page_says_the_cause_a_safe_action_and_what_not_to_do(code: str) -> None:
    told = explained(CODES[code])
    assert all(text.endswith(".") for text in (told.cause, told.do, told.do_not))
    page = told.page()
    assert all(f"{text}\n" in page for text in (told.cause, told.do, told.do_not))


@pytest.mark.parametrize("code", ["stale-source", "log-unavailable", "object-missing"])
def test_explain_prints_what_the_page_says(run: Run, code: str) -> None:
    told, printed = explained(CODES[code]), run("explain", code)
    assert printed.code == 0
    assert all(text in printed.out for text in (told.cause, told.do, told.do_not))
    assert run("explain", code, "--json").records[0]["do_not"] == told.do_not


def test_a_retired_code_is_explained_as_retired(run: Run) -> None:
    assert run("explain", "upgrade-needed", "--json").records[0]["meaning"].startswith("Retired: this version never")


def test_every_category_of_a_code_is_known() -> None:
    assert {code.category for code in CODES.values()} <= CATEGORIES.keys()
