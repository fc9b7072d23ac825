"""A data file is handed to Spark's own Parquet reader only where that is sure to show the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.lake import Lake
from rootline.client.planned_files import plan_files
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.spark.batch_reader import TaskChoice
from rootline.spark.parquet_files import ParquetFile, files_to_hand_over
from rootline.tree.scan.file_task import FileTask

NAME = TableName("demo.rows")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "x": [0.5, 1.5], "name": ["a", "b"]})


@pytest.fixture
def rows(lake: Lake) -> TableHandle:
    table = lake.create_table("demo.rows", ROWS.schema)
    table.append(ROWS)
    return table


def handed_over(lake: Lake, *columns: str) -> list[ParquetFile | None]:
    async def looked_at(session: Session) -> list[ParquetFile | None]:
        plan = await plan_files(session, NAME)
        fields = [field for field in plan.definition.schema.fields if not columns or field.name in columns]
        return await files_to_hand_over(session, NAME, tuple(plan.scan.tasks()), fields)

    return lake.holder.run(looked_at)


def flags(lake: Lake, *columns: str) -> list[bool]:
    return sorted(file is not None for file in handed_over(lake, *columns))


@pytest.mark.usefixtures("rows")
def test_a_file_as_it_was_written_is_handed_over(lake: Lake, folder: Path) -> None:
    (file,) = handed_over(lake)
    assert file is not None
    assert Path(file.path).is_relative_to(folder)
    assert not file.may_hold_nan


def test_a_file_with_deleted_rows_is_not(lake: Lake, rows: TableHandle) -> None:
    rows.append(ROWS)
    assert flags(lake) == [True, True]
    rows.delete_where("id = 1")
    assert flags(lake) == [False, False]


def test_a_file_of_before_a_change_of_its_columns_is_not_unless_they_are_not_wanted(
    lake: Lake, rows: TableHandle
) -> None:
    with rows.alter() as change:
        change.rename_column("name", "called").add_column("more", "long")
    assert flags(lake) == [False]
    assert flags(lake, "id", "x") == [True]
    assert flags(lake, "called") == [False], "its column has another name"
    assert flags(lake, "more") == [False], "it has no such column"
    rows.append({"id": [3], "x": [1.0], "called": ["c"], "more": [1]})
    assert flags(lake) == [False, True]


def test_nan_is_possible_where_statistics_do_not_rule_it_out(lake: Lake, rows: TableHandle) -> None:
    rows.append({"id": [3], "x": [float("nan")], "name": [None]})
    assert sorted(file.may_hold_nan for file in handed_over(lake) if file is not None) == [False, True]
    assert not any(file.may_hold_nan for file in handed_over(lake, "id") if file is not None)


@pytest.mark.parametrize("kind", ["uuid", "fixed[4]", "time", "timestamp_ns", "list<uuid>"])
def test_a_column_that_spark_would_show_otherwise_keeps_all_files_from_it(lake: Lake, kind: str) -> None:
    table = lake.create_table("demo.rows", {"id": "long", "odd": kind})
    table.append({"id": [1], "odd": [None]})
    assert flags(lake) == [False]
    assert flags(lake, "id") == [True]


def test_a_file_that_is_not_what_its_entry_says_is_left_to_the_reader_that_says_so(
    lake: Lake, rows: TableHandle, folder: Path
) -> None:
    (path,) = folder.rglob("data/*.parquet")
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-20])
    assert flags(lake) == [False]
    path.write_bytes(whole[:-20] + bytes(20))
    assert flags(lake) == [False]
    path.unlink()
    assert flags(lake) == [False]
    assert rows.scan().plan()[0].record_count == 2


@pytest.mark.parametrize(
    "about",
    [
        {b"org.apache.spark.version": b"2.4.8"},
        {b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.legacyDateTime": b""},
    ],
)
def test_days_that_an_old_spark_wrote_are_not_moved_to_another_calendar(
    lake: Lake, rows: TableHandle, folder: Path, about: dict[bytes, bytes]
) -> None:
    (path,) = folder.rglob("data/*.parquet")
    before = pq.read_table(path)
    path.unlink()
    pq.write_table(before.replace_schema_metadata(about), path)
    assert flags_whatever_size(lake) == [False]
    pq.write_table(before.replace_schema_metadata({b"org.apache.spark.version": b"4.1.0"}), path)
    assert flags_whatever_size(lake) == [True]


def flags_whatever_size(lake: Lake) -> list[bool]:
    """As `flags`, for entries that do not say how long their files are."""

    async def looked_at(session: Session) -> list[ParquetFile | None]:
        plan = await plan_files(session, NAME)
        tasks = [FileTask(replace(task.data, file_size_in_bytes=None)) for task in plan.scan.tasks()]
        return await files_to_hand_over(session, NAME, tasks, plan.definition.schema.fields)

    return [file is not None for file in lake.holder.run(looked_at)]


@pytest.mark.parametrize("name", ["a{b}*c", "link/../lake"])
def test_a_lake_in_a_folder_whose_name_spark_takes_otherwise_hands_over_nothing(tmp_path: Path, name: str) -> None:
    """Spark takes a pattern for several folders, and `link/..` for the folder that the link is in."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    with connect(str(tmp_path / name)) as lake:
        lake.create_table("demo.rows", ROWS.schema).append(ROWS)
        assert flags(lake) == [False]


def test_a_choice_of_files_is_a_short_text_that_fits_one_plan_only(lake: Lake, rows: TableHandle) -> None:
    for _ in range(4):
        rows.append(ROWS)
    tasks = list(rows.scan().plan())
    choice = TaskChoice.of([0, 1, 2, 4], tasks)
    assert str(choice).startswith("0-2,4-4,@")
    assert TaskChoice.parse(str(choice)).chosen(tasks) == [*tasks[:3], tasks[4]]
    assert TaskChoice.parse(str(TaskChoice.of([], tasks))).chosen(tasks) == []
    for other in (tasks[1:], list(reversed(tasks)), []):
        with pytest.raises(Invalid, match="to another plan"):
            choice.chosen(other)
    for text in ("", "1", "0-2@", "a-b,@" + "0" * 32):
        with pytest.raises(Invalid, match="leave it out"):
            TaskChoice.parse(text)
