"""A check looks at data files as closely as it is asked to, and the way out that it names works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rootline
from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.open import open_store
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.intent import DataFile, GenericStatistics
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import CheckSummary, DataFiles, Finding

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = {"id": list(range(5_000)), "name": [f"name {number % 700}" for number in range(5_000)]}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with rootline.connect(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    made = lake.create_table("demo.t", SCHEMA)
    made.append(ROWS)
    made.append({"id": [-1], "name": ["one"]})
    return made


def files_in(tmp_path: Path) -> list[Path]:
    """The data files, the largest first."""
    found = sorted((tmp_path / "lake/demo/t/data").rglob("*.parquet"), key=lambda path: -path.stat().st_size)
    for path in found:
        path.chmod(0o600)
    return found


def found_by(table: TableHandle, closely: str) -> list[tuple[str, str]]:
    return [(Path(finding.object).name, finding.code) for finding in table.check(data_files=closely)]


CLOSELY = ("listed", "sizes", "footers", "all")


def test_a_sound_table_has_no_findings_however_closely_it_is_looked_at(table: TableHandle) -> None:
    table.delete_where("id = 7")
    for closely in CLOSELY:
        summary = CheckSummary()
        assert list(table.check(data_files=closely, summary=summary)) == []
        assert summary.data_files_measured == (0 if closely == "listed" else 2)
        assert summary.data_files_opened == (2 if closely in ("footers", "all") else 0)
        assert summary.rows_read == (5_001 if closely == "all" else 0)


def test_a_truncated_file_is_found_by_its_size(table: TableHandle, tmp_path: Path) -> None:
    large = files_in(tmp_path)[0]
    large.write_bytes(large.read_bytes()[:-1_000])
    assert found_by(table, "listed") == []
    for closely in ("sizes", "footers", "all"):
        assert found_by(table, closely) == [(large.name, "length-wrong")]
    [finding] = table.check(data_files="sizes")
    assert f"{large.stat().st_size} bytes" in finding.reason


def test_a_footer_that_is_none_is_found_by_its_bytes(table: TableHandle, tmp_path: Path) -> None:
    large = files_in(tmp_path)[0]
    body = large.read_bytes()
    large.write_bytes(body[:-400] + bytes(400))
    assert found_by(table, "sizes") == []
    for closely in ("footers", "all"):
        assert found_by(table, closely) == [(large.name, "data-file-corrupt")]


def test_a_damaged_page_is_found_when_every_row_is_read(table: TableHandle, tmp_path: Path) -> None:
    large = files_in(tmp_path)[0]
    body = bytearray(large.read_bytes())
    at = len(body) // 3
    body[at : at + 200] = bytes(200)
    large.write_bytes(body)
    assert found_by(table, "footers") == []
    assert found_by(table, "all") == [(large.name, "data-file-corrupt")]


def foreign(tmp_path: Path, name: str, rows: pa.Table) -> DataFile:
    """A file beside the table's own, and what a writer says of it."""
    path = tmp_path / f"lake/demo/t/data/{name}.parquet"
    pq.write_table(rows, path)
    return DataFile(location=f"data/{name}.parquet", record_count=rows.num_rows, file_size_in_bytes=path.stat().st_size)


def with_ids(*ids: int, types: tuple[pa.DataType, ...] = (pa.int64(), pa.string())) -> pa.Table:
    fields = [
        pa.field(f"c{number}", kind, metadata={"PARQUET:field_id": str(number)})
        for number, kind in zip(ids, types, strict=True)
    ]
    return pa.table([pa.array([None, None], kind) for kind in types], schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        ("count", "data-file-corrupt", "has 2 rows, its entry states 3"),
        ("ids", "data-file-mismatch", "field id 77"),
        ("type", "data-file-mismatch", "id"),
    ],
)
def test_a_footer_that_is_not_what_the_writer_said_is_found(
    table: TableHandle, tmp_path: Path, change: str, code: str, reason: str
) -> None:
    ids = [field.field_id for field in table.definition().schema.fields]
    match change:
        case "count":
            file = foreign(tmp_path, "x", with_ids(*ids)).model_copy(update={"record_count": 3})
        case "ids":
            file = foreign(tmp_path, "x", with_ids(ids[0], 77))
        case _:
            file = foreign(tmp_path, "x", with_ids(*ids, types=(pa.string(), pa.string())))
    table.add_files([file])
    assert found_by(table, "sizes") == []
    for closely in ("footers", "all"):
        [finding] = table.check(data_files=closely)
        assert (Path(finding.object).name, finding.code) == ("x.parquet", code)
        assert reason in finding.reason


@pytest.mark.parametrize(
    ("statistics", "reason"),
    [
        ({"null_value_count": 1}, "column 'id' has 0 nulls, its entry states 1"),
        ({"lower_value": 3}, "column 'id' contains 2, its lower bound is 3"),
        ({"upper_value": 8}, "column 'id' contains 9, its upper bound is 8"),
    ],
)
def test_statistics_that_lie_are_found_when_every_row_is_read(
    table: TableHandle, tmp_path: Path, statistics: dict[str, int], reason: str
) -> None:
    [number, _] = [field.field_id for field in table.definition().schema.fields]
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": str(number)})])
    file = foreign(tmp_path, "x", pa.table({"id": [2, 9]}, schema=schema))
    said = {"lower_value": 2, "upper_value": 9, "value_count": 2, "null_value_count": 0, **statistics}
    table.add_files([file.model_copy(update={"statistics": (GenericStatistics(field_id=number, **said),)})])
    assert found_by(table, "footers") == []
    [finding] = table.check(data_files="all")
    assert (finding.code, finding.reason) == ("statistics-wrong", reason)
    assert finding.way_out == "", "its rows can be read, and written again"


async def test_only_the_parts_that_are_wanted_are_read(table: TableHandle, tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(MemoryObjectStore):
        async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
            asked.append(length)
            return await super().part_of(key, start, length)

    counting, files = Counting(), files_in(tmp_path)
    stored = open_store(str(tmp_path / "lake"))
    for key in (await stored.list("demo/t/")).keys:
        found = await stored.get(key)
        assert found is not None
        counting.place(key, found.body)
    await stored.close()
    seen: list[int] = []
    checked = check_table(
        counting,
        TableName("demo.t"),
        data_files=DataFiles.FOOTERS,
        progress=lambda summary: seen.append(summary.data_files_opened),
    )
    assert [finding async for finding in checked] == []
    assert seen[-1] == 2
    assert sum(asked) <= len(files) * 2 * 65_536


def published(lake: Lake, finding: Finding) -> int | None:
    """The version in which the way out of `finding` was committed."""
    intent = decode_intent(
        json.dumps({"intent_id": "given-up", **json.loads(finding.way_out)}).encode(),
        {"content-type": b"application/json"},
    )
    with lake.producer() as producer:
        return producer.publish(intent).verdict(30).version


@pytest.mark.parametrize("with_vector", [False, True])
@pytest.mark.parametrize("lost", ["gone", "truncated"])
def test_a_file_that_is_lost_is_taken_out_by_the_intent_that_the_finding_names(
    lake: Lake, table: TableHandle, tmp_path: Path, with_vector: bool, lost: str
) -> None:
    if with_vector:
        table.delete_where("id = 7")
    large, small = files_in(tmp_path)
    if lost == "gone":
        large.unlink()
    else:
        large.write_bytes(large.read_bytes()[:-10])
    [finding] = table.check(data_files="sizes")
    assert published(lake, finding) == table.head().version

    summary = CheckSummary()
    assert list(table.check(data_files="all", summary=summary)) == []
    assert (summary.data_files, summary.data_files_given_up) == (1, 1)
    assert table.scan().to_arrow().to_pylist() == [{"id": -1, "name": "one"}]

    small.unlink()
    table.append({"id": [3], "name": ["three"]})
    [finding] = table.check()
    assert Path(finding.object).name == small.name, "what was not given up is still told"


def test_a_file_that_left_without_a_note_that_it_is_lost_is_still_told(table: TableHandle, tmp_path: Path) -> None:
    table.delete_where("id >= 0")
    files_in(tmp_path)[0].unlink()
    [finding] = table.check()
    assert (finding.code, finding.way_out) == ("object-missing", "")


def test_an_unknown_closeness_is_refused_by_name(table: TableHandle) -> None:
    with pytest.raises(Invalid, match="sizes, footers, all"):
        table.check(data_files="some")


def test_files_of_an_earlier_schema_are_as_sound_as_before(lake: Lake) -> None:
    fields = [("id", pa.int32()), ("day", pa.date32()), ("gone", pa.string())]
    table = lake.create_table("demo.evolved", pa.schema(fields))
    table.append({"id": [1, None], "day": [None, None], "gone": ["x", None]})
    with table.alter() as change:
        change.update_column("id", "bigint").add_column("more", "string").drop_column("gone")
        change.rename_column("day", "date")
    table.append({"id": [2**40], "date": [None], "more": ["y"]})
    summary = CheckSummary()
    assert list(table.check(data_files="all", summary=summary)) == []
    assert (summary.data_files_opened, summary.rows_read) == (2, 3)


def test_a_partition_value_that_is_nan_is_the_same_in_every_version(lake: Lake) -> None:
    table = lake.create_table("demo.nan", {"id": "long", "f": "double"}, partition_by=["f"])
    for key in range(3):
        table.append([{"id": 2 * key, "f": float("nan")}, {"id": 2 * key + 1, "f": 1.0}])
    table.delete_where("id = 2")
    with table.alter() as change:
        change.add_column("more", "int")
    assert list(table.check()) == []
