"""`rootline.spark.compact` writes the files of a table again on Spark, and no row changes."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rootline.spark
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY
from tests.client.change.test_rewrite import files_of

pytestmark = pytest.mark.spark
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("key", pa.uuid()),
        ("at", pa.timestamp("ns")),
        ("code", pa.binary(3)),
        ("plane", pa.struct([("seats", pa.int32()), ("tags", pa.list_(pa.string()))])),
    ]
)


def rows(*ids: int) -> pa.Table:
    """Rows of types that Spark has no value for."""
    keys = pa.array([uuid.UUID(int=id_).bytes for id_ in ids], pa.binary(16))
    return pa.table(
        {
            "id": ids,
            "carrier": ["UA"] * len(ids),
            "delay": [float(id_ % 7) for id_ in ids],
            "key": pa.ExtensionArray.from_storage(pa.uuid(), keys),
            "at": pa.array([10**18 + id_ for id_ in ids], pa.timestamp("ns")),
            "code": [b"%03d" % (id_ % 1_000) for id_ in ids],
            "plane": [{"seats": id_ * 7_919 % 6_000, "tags": ["a", None]} for id_ in ids],
        },
        SCHEMA,
    )


def everything(table: TableHandle) -> pa.Table:
    names = [field.name for field in table.definition().schema.fields]
    return table.scan(None, [*names, "_row_id", "_last_updated_sequence_number"]).to_arrow().sort_by("_row_id")


def opened(table: TableHandle, where: str) -> int:
    return len(table.scan(where).plan())


def test_small_files_of_evolved_schemas_with_a_deleted_row_become_one(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    table = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"], sort_by=["-id"])
    table.append(rows(*range(6)))
    with table.alter() as change:
        change.rename_column("delay", "late").add_column("more", "int")
    new = rows(*range(6, 9)).rename_columns([*SCHEMA.names[:2], "late", *SCHEMA.names[3:]])
    table.append(new.append_column("more", pa.array([1, 2, 3], pa.int32())))
    table.delete_where("id = 4")
    before, head = everything(table), table.head().version
    done = rootline.spark.compact(spark, "demo.flights", warehouse=str(folder), summary={"why": "a test"})
    assert (done.groups, done.files_before, done.files_after, done.rows, done.refused) == (1, 2, 1, 8, 0)
    assert everything(table) == before
    assert table.scan(None, ["id"]).to_arrow().column("id").to_pylist() == [8, 7, 6, 5, 3, 2, 1, 0]
    assert not table.changes(from_version=head, to_version=done.commits[0].version)
    assert list(table.check(data_files="all")) == []
    assert rootline.spark.compact(spark, "demo.flights", warehouse=str(folder)).groups == 0


def test_sorted_files_and_those_in_z_order_are_pruned_where_none_were_before(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    table = lake.create_table("demo.flights", SCHEMA)
    ids = np.random.default_rng(3).permutation(6_000).tolist()
    for start in range(0, 6_000, 1_000):
        table.append(rows(*ids[start : start + 1_000]))
    table.delete_where("id in (7, 1007, 2007)")
    before, target = everything(table), sum(task.data.file_size_in_bytes or 0 for task in table.scan().plan()) // 8
    assert opened(table, "id = 4242") == 6
    how = {"warehouse": str(folder), "target_file_size_bytes": target}
    done = rootline.spark.compact(spark, "demo.flights", strategy="sort", sort_by=["id"], **how)
    assert (done.files_before, done.rows, len(done.commits)) == (6, 5_997, 1)
    assert files_of(table) >= 6
    assert opened(table, "id = 4242") == 1
    assert opened(table, "plane.seats = 242") >= 6
    assert everything(table) == before
    shown = table.scan(None, ["id"]).to_arrow().column("id").to_pylist()
    assert shown == sorted(shown), "files, and rows in them, follow each other"
    done = rootline.spark.compact(spark, "demo.flights", strategy="z-order", sort_by=["id", "plane.seats"], **how)
    files = files_of(table)
    assert done.files_after == files
    assert opened(table, "id = 4242") <= files // 2 + 1
    assert opened(table, "plane.seats = 242") <= files // 2 + 1
    assert everything(table) == before
    assert list(table.check(data_files="all")) == []


def test_what_cannot_be_done_is_refused_before_a_job_starts(spark: SparkSession, lake: Lake, folder: Path) -> None:
    lake.create_table("demo.flights", SCHEMA)
    how = {"warehouse": str(folder)}
    for given, code in (
        ({"strategy": "shuffle"}, "setting-invalid"),
        ({"sort_by": ["id"]}, "setting-invalid"),
        ({"strategy": "sort"}, "setting-invalid"),
        ({"strategy": "sort", "sort_by": ["plane"]}, "definition-invalid"),
        ({"where": "nothing > 1"}, "filter-invalid"),
        ({"tries": 0}, "setting-invalid"),
        ({"groups_at_once": True}, "setting-invalid"),
    ):
        with pytest.raises(Invalid) as error:
            rootline.spark.compact(spark, "demo.flights", **how, **given)  # type: ignore[arg-type]
        assert error.value.code == code, given
    with pytest.raises(Invalid) as unknown:
        rootline.spark.compact(spark, "demo.nothing", **how)
    assert unknown.value.code == "table-unknown"
    assert rootline.spark.compact(spark, "demo.flights", **how).groups == 0


def test_files_of_a_folder_are_added_once_in_one_commit_with_statistics_of_their_rows(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    columns = pa.schema([("id", pa.int64()), ("carrier", pa.string())])
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["carrier"]}]'
    properties = {"schema.name-mapping.default": mapping, "rootline.append.leaf-files": "3"}
    table = lake.create_table("demo.flights", columns, partition_by=["carrier"], properties=properties)
    place = folder / "demo" / "flights" / "backfill"
    (place / "_temporary").mkdir(parents=True)
    for at in range(3):
        rows_of_file = pa.table({"id": [at, 10 + at], "carrier": ["UA"] * 2}, columns)
        pq.write_table(rows_of_file, place / f"part-{at}.parquet")
    pq.write_table(rows_of_file, place / "_temporary" / "part.parquet")
    (place / "_SUCCESS").write_bytes(b"")
    for added in (3, 0):
        done = rootline.spark.add_folder(spark, "demo.flights", "backfill", warehouse=str(folder))
        assert (done.files, done.known, done.rows) == (added, 3 - added, 2 * added)
    assert sorted(table.scan(None, ["id"]).to_arrow().column("id").to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert opened(table, "id = 12 and carrier = 'UA'") == 1
    assert opened(table, "carrier = 'AA'") == 0
    assert table.head().totals.data_manifests == 1
    assert list(table.check(data_files="all")) == []
    table.rewrite()
    pq.write_table(pa.table({"id": [20], "carrier": ["AA"]}, columns), place / "part-3.parquet")
    done = rootline.spark.add_folder(spark, "demo.flights", "backfill", warehouse=str(folder))
    assert (done.files, done.rows, done.known, done.left) == (1, 1, 0, 3)
    assert sorted(table.scan(None, ["id"]).to_arrow().column("id").to_pylist()) == [0, 1, 2, 10, 11, 12, 20]
    for elsewhere in ("data", "data/x", "metadata", "", "../other", "a//b", "back-fill"):
        with pytest.raises(Invalid) as error:
            rootline.spark.add_folder(spark, "demo.flights", elsewhere, warehouse=str(folder))
        assert error.value.code == "setting-invalid", elsewhere


def test_partition_columns_of_a_folder_of_sparks_are_read_from_its_paths_or_refused(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    rows = spark.sql("values (1, 'a/b', date'2024-02-29'), (2, null, date'2024-03-01') as t(id, carrier, day)")
    mapping = json.dumps([{"field-id": at, "names": [name]} for at, name in enumerate(("id", "carrier", "day"), 1)])
    columns = pa.schema([("id", pa.int32()), ("carrier", pa.string()), ("day", pa.date32())])
    for name, terms in (("hive", ["carrier", "day"]), ("months", ["carrier", "month(day)"])):
        table = lake.create_table(
            f"demo.{name}", columns, partition_by=terms, properties={NAME_MAPPING_PROPERTY: mapping}
        )
        place = folder / "demo" / name / "backfill"
        rows.write.partitionBy("carrier", "day").parquet(str(place))
        if name == "hive":
            assert rootline.spark.add_folder(spark, "demo.hive", "backfill", warehouse=str(folder)).rows == 2
            expected = [(1, "a/b", dt.date(2024, 2, 29)), (2, None, dt.date(2024, 3, 1))]
            found = table.scan().to_arrow().to_pylist()
            assert sorted(tuple(row.values()) for row in found) == expected
            read = spark.read.format("rootline").option("warehouse", str(folder)).load("demo.hive")
            assert sorted(map(tuple, read.collect())) == expected
            assert [opened(table, where) for where in ("carrier = 'a/b'", "carrier is null", "day is null")] == [
                1,
                1,
                0,
            ]
            assert list(table.check(data_files="all")) == []
        else:
            with pytest.raises(Invalid, match="only if it is partitioned by day itself"):
                rootline.spark.add_folder(spark, "demo.months", "backfill", warehouse=str(folder))
            assert table.head().version == 0


def test_values_in_paths_have_the_types_of_the_table_or_are_refused_with_the_file(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    """Spark writes the folders, and DuckDB reads them without Rootline."""
    columns = pa.schema(
        [
            ("id", pa.int32()),
            ("n", pa.int64()),
            ("money", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us")),
            ("x", pa.string()),
        ]
    )
    mapping = json.dumps([{"field-id": at, "names": [name]} for at, name in enumerate(columns.names, 1)])
    properties = {NAME_MAPPING_PROPERTY: mapping}
    terms = ["n", "money", "at", "x"]
    table = lake.create_table("demo.typed", columns, partition_by=terms, properties=properties)
    place = folder / "demo" / "typed" / "backfill"
    rows = spark.sql(
        "values (1, 7L, 1.50bd, timestamp_ntz'2024-02-29 12:30:00', '01'), (2, null, -3bd, null, 'a=%/:é')"
        " as t(id, n, money, at, x)"
    )
    rows.write.partitionBy(*terms).parquet(str(place))
    (place / "n=7").rename(place / "n=07")
    assert rootline.spark.add_folder(spark, "demo.typed", "backfill", warehouse=str(folder)).rows == 2
    found = sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
    assert found == [
        (1, 7, Decimal("1.50"), dt.datetime(2024, 2, 29, 12, 30), "01"),
        (2, None, Decimal("-3.00"), None, "a=%/:é"),
    ]
    types = "hive_types = {'n': bigint, 'money': 'decimal(9, 2)', 'at': timestamp, 'x': varchar}"
    files = f"read_parquet('{place}/**/*.parquet', hive_partitioning = true, {types})"
    assert duckdb.sql(f'select id, n, money, "at", x from {files} order by id').fetchall() == found
    assert list(table.check(data_files="all")) == []

    (place.parent / "wrong" / "n=7x").mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), place.parent / "wrong" / "n=7x" / "part.parquet")
    with pytest.raises(Invalid, match=r"wrong/n=7x/.*states n='7x'.*The text is not a long"):
        rootline.spark.add_folder(spark, "demo.typed", "wrong", warehouse=str(folder))
    assert table.head().version == 1
