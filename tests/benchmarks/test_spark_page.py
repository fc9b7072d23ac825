"""The page of Spark's figures is the one of the stored results."""

from __future__ import annotations

import json

from benchmarks.__main__ import MEASUREMENTS
from benchmarks.spark_page import PAGE, PARTS, PICTURE, RESULTS, page_of, picture_of


def test_the_page_and_its_picture_are_those_of_the_stored_results() -> None:
    body = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == page_of(body)
    assert PICTURE.read_text() == picture_of(body)


def test_every_part_was_measured_by_a_benchmark_that_exists() -> None:
    assert {part.benchmark for part in PARTS} <= set(MEASUREMENTS)
    assert set(json.loads(RESULTS.read_text())["parts"]) == {part.name for part in PARTS}
