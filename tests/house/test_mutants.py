"""The list of planted bugs fits the sources, so `make mutants` plants what it names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.planted import Mutant, planted


@pytest.mark.parametrize("mutant", planted(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_changes_one_place_and_names_tests_that_exist(house: Path, mutant: Mutant) -> None:
    ast.parse(mutant.text(house))
    for test in mutant.tests:
        path, _, name = test.partition("::")
        functions = {node.name for node in ast.walk(ast.parse((house / path).read_text())) if hasattr(node, "name")}
        assert name.partition("[")[0] in functions, f"{test} does not exist"


def test_no_two_planted_bugs_have_one_name() -> None:
    names = [mutant.name for mutant in planted()]
    assert len(names) == len(set(names))
