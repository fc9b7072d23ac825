"""Row ids never come back, so no count that is a lie may use them up."""

from __future__ import annotations

import pytest

from rootline.schemas.content_entry import FileFormat
from rootline.schemas.intent import Intent, IntentKind
from rootline.tree.proof.file_proof import FILE_ROWS_MAX, INTENT_ROWS_MAX, limits_of
from tests.tree.tables import (
    Lake,
    append,
    changed_definition,
    codes,
    create,
    data_file,
    definition,
    intent,
    new_entry,
    new_lake,
)

LONG_MAX = 2**63 - 1


def in_leaf(lake: Lake, name: str, rows: int, size: int = 10**12) -> Intent:
    file = data_file(name, record_count=rows, file_size_in_bytes=size)
    return intent(IntentKind.APPEND, name, add_manifests=(lake.written_leaf(new_entry(file)),))


def test_one_lying_count_does_not_use_up_the_row_ids_of_a_table() -> None:
    lake = new_lake()
    liar = append("liar", data_file("liar", record_count=LONG_MAX - 1, partition_spec_id=1))
    assert codes(lake.put(liar)) == ["row-count-implausible"]
    assert lake.head.header.row_ids.next == 0
    assert codes(lake.put(append("honest"))) == [None]


def test_a_leaf_with_a_lying_count_is_rejected_and_names_its_entry() -> None:
    lake = new_lake()
    [verdict] = lake.put(in_leaf(lake, "liar", LONG_MAX - 1))
    assert verdict.code == "row-count-implausible"
    assert "data/liar.parquet" in (verdict.message or "")
    assert codes(lake.put(in_leaf(lake, "honest", 10))) == [None]


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO])
@pytest.mark.parametrize(("size", "rows", "is_wrong"), [(4, 4 << 20, 0), (4, (4 << 20) + 1, 1), (0, 1, 1), (0, 0, 0)])
def test_a_file_has_at_most_a_million_rows_for_each_byte(
    file_format: FileFormat, size: int, rows: int, is_wrong: int
) -> None:
    file = data_file("a", ids=[1], partition_spec_id=1, file_format=file_format)
    said = {"record_count": rows, "file_size_in_bytes": size, "content_stats": None, "stats_schema": None}
    expected = "row-count-implausible" if is_wrong else None
    assert codes(new_lake().put(append("i", file.model_copy(update=said)))) == [expected]


def test_rows_of_a_file_and_of_an_intent_are_limited_and_a_table_may_choose_the_limits() -> None:
    few = {"rootline.rows.file-max": "100", "rootline.rows.intent-max": "150"}
    lake = Lake()
    lake.put(create(text=changed_definition(properties=few)))
    files = [data_file(f"f{number}", rows=80) for number in range(2)]
    assert codes(lake.put(append("one", data_file("one", rows=101)))) == ["row-count-implausible"]
    assert codes(lake.put(append("both", *files))) == ["row-count-implausible"]
    assert codes(lake.put(append("first", files[0]), append("second", files[1]))) == [None, None]
    leaves = [lake.written_leaf(new_entry(data_file(f"l{number}", rows=80))) for number in range(2)]
    assert codes(lake.put(intent(IntentKind.APPEND, "leaves", add_manifests=leaves))) == ["row-count-implausible"]


@pytest.mark.parametrize("text", ["", "0", "-5", "many", "1" * 20])
def test_a_limit_that_is_no_number_is_refused_when_the_table_is_made(text: str) -> None:
    properties = {"rootline.rows.file-max": text}
    assert codes(Lake().put(create(text=changed_definition(properties=properties)))) == ["property-invalid"]
    assert limits_of(definition(properties)).file == FILE_ROWS_MAX, "a table from before that rule has the usual limits"


def test_without_properties_the_limits_leave_room_for_a_hundred_million_lies() -> None:
    limits = limits_of(definition())
    assert limits == (FILE_ROWS_MAX, INTENT_ROWS_MAX)
    assert LONG_MAX // INTENT_ROWS_MAX > 50_000_000
