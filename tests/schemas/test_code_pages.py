"""Every error code has a page in the docs, no page is stale, and `rootline explain` prints the same words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rootline.schemas.error_codes import CATEGORIES, CODES, codes_of
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.coordinator.generated_pages import DOCS, code_pages


def test_each_code_has_its_page_and_no_page_is_stale_or_left_over() -> None:
    stored = {path.name: path.read_text() for path in (DOCS / "codes").iterdir()}
    assert stored == code_pages(), "run: python -m tests.coordinator.generated_pages"


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_page_says_the_cause_a_safe_action_and_what_not_to_do(code: str) -> None:
    told = CODES[code]
    assert all(text.endswith(".") for text in (told.meaning, told.do, told.avoid))
    page = told.page()
    assert all(f"{text}\n" in page for text in (told.meaning, told.do, told.avoid))


@pytest.mark.parametrize("code", ["stale-source", "log-unavailable", "object-missing"])
def test_explain_prints_what_the_page_says(run: Run, code: str) -> None:
    told, printed = CODES[code], run("explain", code)
    assert printed.code == 0
    assert all(text in printed.out for text in (told.meaning, told.do, told.avoid))
    assert run("explain", code, "--json").records[0]["do_not"] == told.avoid


def test_a_retired_code_is_explained_as_retired(run: Run) -> None:
    assert run("explain", "upgrade-needed", "--json").records[0]["meaning"].startswith("Retired: this version never")


def test_every_category_of_a_code_is_known() -> None:
    assert {code.category for code in CODES.values()} <= CATEGORIES.keys()


CODE = '[a-code]\ncategory = "Invalid"\nmeaning = "It is."\ndo = "Do it."\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CODE.replace("a-code", "A_code"), "lower-case words"),
        (CODE.replace("do =", "todo ="), "has 'category', 'meaning', 'do'"),
        (CODE + 'colour = "red."\n', "Correct its keys"),
        ('a-code = "Invalid"\n', "Correct its keys"),
        (CODE.replace("Invalid", "Odd"), "no category 'Odd'"),
        (CODE.replace("Do it.", "Do it"), "'do' is not a sentence"),
        (CODE.replace('"It is."', "7"), "'meaning' is not a sentence"),
        (CODE + CODE, "Cannot declare"),
    ],
)
def test_a_code_that_is_not_of_the_checked_form_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        codes_of({"intents": text})


def test_a_code_in_two_files_is_refused_and_the_message_names_the_second() -> None:
    with pytest.raises(ValueError, match=r"codes/services\.toml, a-code: an earlier file has the code too"):
        codes_of({"intents": CODE, "services": CODE})


def test_importing_the_errors_and_what_explains_them_reads_no_code() -> None:
    code = (
        "import sys\n"
        "read = []\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('.toml'): read.append(args)\n"
        "sys.addaudithook(hook)\n"
        "import rootline.schemas.errors, rootline.schemas.error_codes as codes\n"
        "assert not read\n"
        "assert 'root-corrupt' in codes.CODES\n"
        "assert len(read) == len(codes.FILES)\n"
        "list(codes.CODES)\n"
        "assert len(read) == len(codes.FILES)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
