"""`table.alter()`: partition fields and sort orders change, and files of every spec are read as they were."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.table.sorting import SortField as IcebergField
from pyiceberg.table.sorting import SortOrder as IcebergOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

from rootline import Invalid, connect
from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind
from rootline.tree.evolution.specs_and_orders import partition_field_names

COLUMNS = {"id": "int not null", "city": "string", "ts": "timestamp"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(folder: Path) -> Lake:
    with connect(folder) as found:
        yield found


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    table = lake.create_table("demo.t", COLUMNS, partition_by=["city"])
    table.append([{"id": 1, "city": "a", "ts": dt.datetime(2024, 1, 1)}, {"id": 2, "city": "b"}])
    return table


def spec_names(definition: TableDefinition) -> tuple[str, ...]:
    return partition_field_names(definition, definition.spec_by_id(definition.default_spec_id))


def by_id(table: TableHandle, where: str | None = None, columns: list[str] | None = None) -> list[dict[str, object]]:
    return sorted(table.scan(where, columns).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_rows_are_split_by_the_new_spec_and_files_of_every_spec_are_read(table: TableHandle) -> None:
    with table.alter() as change:
        change.drop_partition_field("city").add_partition_field("ts", "day").add_partition_field("bucket(2, id)")
    table.append([{"id": 3, "city": "a", "ts": dt.datetime(2024, 1, 2)}, {"id": 4, "ts": dt.datetime(2024, 1, 2)}])
    shown = by_id(table, columns=["id", "_spec_id", "_partition"])
    assert [(row["id"], row["_spec_id"]) for row in shown] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert [row["_partition"]["city"] for row in shown] == ["a", "b", None, None]
    assert [row["_partition"]["ts_day"] for row in shown] == [None, None, *[dt.date(2024, 1, 2)] * 2]
    assert [row["id"] for row in by_id(table, "city = 'a'")] == [1, 3]
    assert [row["id"] for row in by_id(table, "ts < '2024-01-01T12:00:00'")] == [1]
    assert not list(table.check())


def test_a_field_is_named_by_its_column_and_transform_and_found_again(table: TableHandle) -> None:
    with table.alter() as change:
        change.add_partition_field("id", BucketTransform(4)).add_partition_field("ts", "month", name="when")
    assert spec_names(table.definition()) == ("city", "id_bucket", "when")
    with table.alter() as change:
        change.drop_partition_field("when").drop_partition_field("bucket(4, id)").add_partition_field("id", "bucket[8]")
    assert spec_names(table.definition()) == ("city", "id_bucket")
    with table.alter() as change:
        change.rename_partition_field("id_bucket", "shard")
    with table.alter() as change:
        change.drop_partition_field("shard").add_partition_field("month(ts)").add_partition_field("id", "bucket[4]")
    assert spec_names(table.definition()) == ("city", "when", "id_bucket")
    assert [len(spec.expr_ids) for spec in table.definition().partition_specs] == [1, 3, 2, 2, 3]
    with table.alter() as change:
        change.drop_partition_field("when").drop_partition_field("id_bucket")
    assert table.definition().default_spec_id == 0
    with table.alter() as change:
        change.add_partition_field("day(ts)").drop_partition_field("ts_day")
    assert change.commit is None


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("partitioned by it already", lambda change: change.add_partition_field("city")),
        ("there is one named 'city'", lambda change: change.add_partition_field("bucket(2, id) as city")),
        ("name of another column", lambda change: change.add_partition_field("bucket(2, id) as ts")),
        ("there is no column", lambda change: change.add_partition_field("nowhere")),
        ("there is no partition field 'ts'.* the table has: city", lambda change: change.drop_partition_field("ts")),
        ("there is no partition field", lambda change: change.rename_partition_field("ts", "x")),
        ("does not accept string", lambda change: change.add_partition_field("city", "day")),
        ("needs a width", lambda change: change.add_partition_field("id", "bucket")),
        ("write it as", lambda change: change.add_partition_field("id", 7)),
        ("partitioned by it", lambda change: change.drop_column("city")),
        ("lower cannot partition", lambda change: change.add_partition_field("lower(city)")),
        ("lower cannot sort", lambda change: change.set_sort_order(["lower(city)"])),
        ("there is no column", lambda change: change.set_sort_order(["-nowhere"])),
        ("sort_by", lambda change: change.set_sort_order("city")),
        ("sort_by", lambda change: change.set_sort_order([7])),
        ("one column", lambda change: change.set_sort_order(["bucket(2, id, city)"])),
        ("the current schema lacks", lambda change: change.set_sort_order(["id"]).drop_column("id")),
    ],
)
def test_what_cannot_be_done_says_why_and_publishes_nothing(table: TableHandle, said: str, step: object) -> None:
    with pytest.raises(Invalid, match=said), table.alter() as change:
        step(change)
    assert len(list(table.history())) == 2


def test_a_step_sees_the_columns_that_earlier_steps_made(table: TableHandle) -> None:
    with table.alter() as change:
        change.add_column("gate", "string").add_partition_field("gate").rename_column("gate", "door")
        change.drop_partition_field("city").set_sort_order(["-door", "id"]).rename_column("city", "town")
    definition = table.definition()
    assert spec_names(definition) == ("gate",)
    table.append([{"id": 3, "door": "x", "town": "c"}])
    with table.alter() as change:
        change.drop_column("town")
    assert by_id(table, columns=["id", "door"])[-1] == {"id": 3, "door": "x"}
    assert [row["_partition"]["town"] for row in by_id(table, columns=["id", "_partition"])] == ["a", "b", None]


def test_two_partition_columns_that_had_one_name_are_kept_apart(table: TableHandle) -> None:
    with table.alter() as change:
        change.drop_partition_field("city").drop_column("city").add_column("city", "int").add_partition_field("city")
    table.append([{"id": 3, "city": 7}])
    shown = by_id(table, columns=["id", "_partition"])
    assert [row["_partition"] for row in shown] == [
        {"city": "a", "city_4": None},
        {"city": "b", "city_4": None},
        {"city": None, "city_4": 7},
    ]
    assert [row["city"] for row in by_id(table)] == [None, None, 7]
    assert [row["id"] for row in by_id(table, "city = 7")] == [3]


def test_a_handle_that_splits_by_an_older_spec_goes_on_writing(lake: Lake, table: TableHandle) -> None:
    late = lake.table("demo.t")
    late.append([{"id": 3, "city": "c"}])
    with table.alter() as change:
        change.drop_partition_field("city").add_partition_field("bucket(2, id)")
    late.append([{"id": 4, "city": "d"}])
    table.append([{"id": 5, "city": "e"}])
    shown = by_id(table, columns=["id", "_spec_id"])
    assert [row["_spec_id"] for row in shown] == [0, 0, 0, 0, 1]


def test_leaves_of_a_writer_may_be_of_an_older_spec_and_an_older_layout(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.t", COLUMNS, partition_by=["city"], properties={"rootline.append.leaf-files": "2"})
    late = lake.table("demo.t")
    late.append([{"id": number, "city": f"c{number}"} for number in range(3)])
    with table.alter() as change:
        change.drop_partition_field("city").add_partition_field("ts", "day").add_column("more", "long")
    late.append([{"id": number, "city": f"c{number}"} for number in range(3, 6)])
    days = [dt.datetime(2024, 1, number) for number in (1, 2, 3)]
    table.append([{"id": 10 + number, "ts": day, "more": number} for number, day in enumerate(days)])
    assert [row["_spec_id"] for row in by_id(table, columns=["id", "_spec_id"])] == [0] * 6 + [1] * 3
    assert [row["id"] for row in by_id(table, "city = 'c4'")] == [4]
    assert [row["id"] for row in by_id(table, "ts >= '2024-01-02T00:00:00'")] == [11, 12]
    assert not list(table.check())


def test_an_equality_delete_reaches_files_of_its_own_spec_only(lake: Lake, folder: Path, table: TableHandle) -> None:
    older = table.definition()
    with table.alter() as change:
        change.add_partition_field("bucket(1, id)")
    table.append([{"id": 1, "city": "a"}])
    for definition in (older, table.definition()):
        row = pa.table({"id": pa.array([1], pa.int32()), "city": ["a"], "ts": pa.nulls(1, pa.timestamp("us"))})
        [written] = write_files(row, definition, iter([uuid.uuid4()]))
        place = folder / "demo" / "t" / written.data_file.location
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(written.body)
        file = EqualityDeleteFile(**written.data_file.model_dump(exclude={"equality_ids"}), equality_ids=(1,))
        intent = Intent(
            intent_id=str(uuid.uuid4()), table=table.name, kind=IntentKind.ROW_DELTA, add_equality_deletes=(file,)
        )
        before = [row["_spec_id"] for row in by_id(table, "id = 1", ["id", "_spec_id"])]
        with lake.producer() as producer:
            verdict = producer.publish(intent).verdict(timeout_s=30)
        assert verdict.kind is VerdictKind.COMMITTED, verdict.message
        left = [row["_spec_id"] for row in by_id(table, "id = 1", ["id", "_spec_id"])]
        assert left == [spec for spec in before if spec != written.data_file.partition_spec_id]
    assert [row["id"] for row in by_id(table)] == [2]


def stored(folder: Path, table: TableHandle, column: str) -> list[list[object]]:
    """`column` of every data file, in the order of the file."""
    found = sorted((folder / "demo" / "t" / "data").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    return [pq.read_table(path, partitioning=None).column(column).to_pylist() for path in found]


def test_rows_are_sorted_in_the_tables_order_and_files_say_so(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.t", {"id": "int not null", "x": "double"}, sort_by=["-x", "id"])
    values = [1.0, None, float("nan"), -0.0, 0.0, float("inf")]
    table.append([{"id": number, "x": value} for number, value in enumerate(values)])
    assert stored(folder, table, "id") == [[2, 5, 0, 4, 3, 1]], "NaN is the greatest, and nulls are last"
    with table.alter() as change:
        change.set_sort_order(["x nulls last"])
    table.append([{"id": number, "x": value} for number, value in enumerate(values)])
    assert stored(folder, table, "id")[1] == [3, 4, 0, 5, 2, 1]
    with table.alter() as change:
        change.set_sort_order([])
    table.append([{"id": number, "x": value} for number, value in enumerate(values)])
    assert stored(folder, table, "id")[2] == list(range(6))
    assert [file.sort_order_id for file in live_files(lake)] == [1, 2, None]
    definition = lake.table("demo.t").definition()
    assert [order.order_id for order in definition.sort_orders] == [0, 1, 2]


def live_files(lake: Lake) -> list[object]:
    from rootline.client.time_travel import read_head
    from rootline.schemas.identifiers import TableName

    root = lake.holder.run(lambda session: read_head(session.store, TableName("demo.t")))
    rows = sorted(root.rows, key=lambda row: row.entry.version_info.sequence_number or 0)
    return [row.entry for row in rows if row.entry.version_info.status != 2]


def test_an_order_is_given_in_words_or_as_pyicebergs(lake: Lake) -> None:
    words = ["city", "-day(ts)", "bucket(16, id) nulls last", "-id nulls first"]
    table = lake.create_table("demo.t", COLUMNS, sort_by=words)
    [_, order] = table.definition().sort_orders
    assert [(f.source_id, f.transform, f.direction, f.null_order) for f in order.fields] == [
        (2, "identity", "asc", "nulls-first"),
        (3, "day", "desc", "nulls-last"),
        (1, "bucket[16]", "asc", "nulls-last"),
        (1, "identity", "desc", "nulls-first"),
    ]
    given = IcebergOrder(
        IcebergField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
        IcebergField(3, DayTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    )
    other = lake.create_table("demo.u", COLUMNS, sort_by=given)
    assert other.definition().sort_orders[1].fields == order.fields[:2]
    with table.alter() as change:
        change.set_sort_order(given)
    assert table.definition().sort_orders[2].fields == order.fields[:2]


def test_thirty_two_who_alter_specs_orders_and_columns_at_once_all_get_theirs(lake: Lake, table: TableHandle) -> None:
    failed: list[BaseException] = []

    def change_it(number: int) -> None:
        try:
            with lake.table("demo.t").alter(timeout_s=200) as change:
                if number % 4 == 0:
                    change.add_column(f"c{number}", "long")
                elif number % 4 == 1:
                    change.set_sort_order([f"bucket({number}, id)"])
                else:
                    change.add_partition_field(f"bucket({number}, id) as b{number}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=change_it, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    definition = lake.table("demo.t").definition()
    assert {field.name for field in definition.schema.fields} >= {f"c{number}" for number in range(0, 32, 4)}
    assert set(spec_names(definition)) == {"city", *(f"b{number}" for number in range(32) if number % 4 > 1)}
    orders = {order.fields[0].transform for order in definition.sort_orders[1:]}
    assert orders == {f"bucket[{number}]" for number in range(1, 32, 4)}
    ids = [one.expr_id for one in definition.expressions] + [field.field_id for field in definition.schema.fields]
    assert len(set(ids)) == len(ids)
    lake.table("demo.t").append([{"id": 9, "city": "z"}])
    assert len(by_id(table)) == 3
