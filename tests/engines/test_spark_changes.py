"""Spark 4.1 with Iceberg's runtime creates, alters and drops namespaces, tables and views of a lake through REST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.schemas.errors import Invalid
from tests.engines.iceberg_spark import IcebergSpark, SparkRefused
from tests.rest.writing_catalog import writing_catalog

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

NO_REMOVALS = "does not take|not taken yet"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Changed:
    """A lake that Spark changes: its catalog is `own` there, and has the namespace `demo`."""

    lake: Lake
    folder: Path
    spark: IcebergSpark

    def columns(self, table: str) -> list[tuple[int, str, str]]:
        """Id, name and type of each column."""
        fields = self.lake.table(table).definition().schema.fields
        return [(field.field_id, field.name, str(field.field_type)) for field in fields]

    def partitioning(self, table: str) -> list[str]:
        """The names of the fields by which new files are partitioned."""
        definition = self.lake.table(table).definition()
        return list(definition.spec_by_id(definition.default_spec_id).names)

    def properties(self, table: str) -> dict[str, str]:
        return dict(self.lake.table(table).definition().properties)

    def files(self) -> set[Path]:
        """The files of all tables, without exports and Hadoop's checksums."""
        found = {path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()}
        return {
            path for path in found if path.suffix != ".crc" and not {".rootline", "export"}.intersection(path.parts)
        }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, iceberg_spark: IcebergSpark) -> Iterator[Changed]:
    folder = tmp_path_factory.mktemp("changed") / "lake"
    with writing_catalog(folder) as catalog:
        iceberg_spark.rest_catalog("own", catalog.url, warehouse="own")
        yield Changed(catalog.lake, folder, iceberg_spark)


def flights(*ids: int, **columns: list[object]) -> dict[str, list[object]]:
    return {"id": list(ids), "ts": [NOON] * len(ids), "legs": [[{"origin": "SFO", "miles": 1}]] * len(ids), **columns}


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_table_is_altered_by_spark_between_our_appends(own: Changed, format_version: int) -> None:
    name = f"demo.flights_{format_version}"
    own.spark.run(
        f"create table own.{name} (id bigint not null, carrier string comment 'who', ts timestamp, "
        "legs array<struct<origin: string, miles: int>>, plane struct<tail: string>, extra int) using iceberg "
        "partitioned by (bucket(4, id), days(ts)) "
        f"tblproperties ('format-version' = '{format_version}', 'team' = 'one', 'note' = 'x')"
    )
    table = own.lake.table(name)
    assert own.partitioning(name) == ["id_bucket", "ts_day"]
    assert table.definition().schema.find_field("legs.element.miles").field_id > 6
    expected = {"team": "one", "note": "x", "rootline.export.format": str(format_version)}
    assert expected.items() <= own.properties(name).items()
    table.append(pa.table(flights(1, 2, carrier=["UA", "AA"], plane=[{"tail": "N1"}, None], extra=[7, 8])))

    own.spark.run(
        f"alter table own.{name} add column delay int after id",
        f"alter table own.{name} add column plane.seats int",
        f"alter table own.{name} rename column carrier to airline",
        f"alter table own.{name} alter column delay type bigint",
        f"alter table own.{name} alter column airline first",
        f"alter table own.{name} alter column id drop not null",
        f"alter table own.{name} drop column extra",
    )
    assert [column for _, column, _ in own.columns(name)] == ["airline", "id", "delay", "ts", "legs", "plane"]
    schema = table.definition().schema
    assert (schema.find_field("airline").field_id, schema.find_field("airline").doc) == (2, "who")
    assert (str(schema.find_field("delay").field_type), schema.find_field("id").required) == ("long", False)
    own.spark.run(
        f"alter table own.{name} drop partition field bucket(4, id)",
        f"alter table own.{name} add partition field truncate(1, airline) as initial",
        f"alter table own.{name} write ordered by airline desc, id",
    )
    assert own.partitioning(name) == ["ts_day", "initial"]
    definition = table.definition()
    [order] = [each for each in definition.sort_orders if each.order_id == definition.default_sort_order_id]
    assert len(order.fields) == 2
    own.spark.run(
        f"alter table own.{name} set tblproperties ('team' = 'two')",
        f"alter table own.{name} unset tblproperties ('note')",
    )
    assert own.properties(name)["team"] == "two"
    assert "note" not in own.properties(name)
    planes: list[object] = [{"tail": "N2", "seats": 9}]
    table.append(pa.table(flights(3, airline=["UA"], delay=[2**40], plane=planes)))

    rows = own.spark.rows(f"select id, airline, delay, plane.seats, legs[0].origin, ts from own.{name} order by id")
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (1, "UA", None, None, "SFO", NOON),
        (2, "AA", None, None, "SFO", NOON),
        (3, "UA", 2**40, 9, "SFO", NOON),
    ]
    with pytest.raises(SparkRefused, match="a table cannot be renamed"):
        own.spark.run(f"alter table own.{name} rename to {name}_other")


def test_a_table_is_replaced_and_dropped(own: Changed) -> None:
    own.spark.run("create table own.demo.short (id bigint, name string) using iceberg")
    table = own.lake.table("demo.short")
    table.append(pa.table({"id": [1], "name": ["a"]}))
    own.spark.run(
        "create or replace table own.demo.short (id bigint, other string) using iceberg partitioned by (other)"
    )
    assert own.columns("demo.short") == [(1, "id", "long"), (3, "other", "string")]
    assert own.partitioning("demo.short") == ["other"]
    assert own.spark.rows("select * from own.demo.short").num_rows == 0
    table.append(pa.table({"id": [2], "other": ["b"]}))
    assert own.spark.rows("select * from own.demo.short").to_pylist() == [{"id": 2, "other": "b"}]
    with pytest.raises(SparkRefused, match=r"column 'id' .* cannot change from long to int"):
        own.spark.run("create or replace table own.demo.short (id int) using iceberg")
    with pytest.raises(SparkRefused, match="Cannot purge table: GC is disabled"):  # Spark would delete files itself
        own.spark.run("drop table own.demo.short purge")
    assert "demo.short" in own.lake.list_tables()
    own.spark.run("drop table own.demo.short")
    assert "demo.short" not in own.lake.list_tables()
    assert own.lake.restore_table("demo.short").scan().to_arrow().to_pylist() == [{"id": 2, "other": "b"}]


def test_namespaces_are_created_altered_and_dropped(own: Changed) -> None:
    own.spark.run(
        "create namespace own.air comment 'flights'",
        "create namespace own.air.deep",
        "alter namespace own.air set properties ('team' = 'one', 'note' = 'x')",
        "alter namespace own.air unset properties ('note')",
    )
    properties = own.lake.namespace_properties("air")
    assert (properties["comment"], properties["team"], "note" in properties) == ("flights", "one", False)
    with pytest.raises(SparkRefused, match="Namespace is not empty: air"):
        own.spark.run("drop namespace own.air")
    own.spark.run("drop namespace own.air.deep", "drop namespace own.air")
    assert not {"air", "air.deep"}.intersection(own.lake.namespaces())


def test_a_view_is_created_replaced_read_and_dropped(own: Changed) -> None:
    own.spark.run("create table own.demo.base (id bigint, name string) using iceberg")
    own.lake.table("demo.base").append(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    own.spark.run(
        "create view own.demo.seen (n comment 'number', name) tblproperties ('team' = 'one') "
        "as select id, name from own.demo.base where id > 1"
    )
    view = own.lake.view("demo.seen")
    assert view.sql("spark") == "select id, name from own.demo.base where id > 1"
    assert "'doc': 'number'" in str(view.metadata().schemas)
    assert own.spark.rows("select n, name from own.demo.seen").to_pylist() == [{"n": 2, "name": "b"}]
    own.spark.run("alter view own.demo.seen set tblproperties ('note' = 'x')")
    own.spark.run("alter view own.demo.seen unset tblproperties ('team')")
    properties = view.metadata().properties or {}
    assert (properties["note"], "team" in properties) == ("x", False)
    own.spark.run("create or replace view own.demo.seen as select id + 1 as more from own.demo.base")
    assert len(view.history()) == 2
    assert sorted(own.spark.rows("select more from own.demo.seen").column("more").to_pylist()) == [2, 3]
    with pytest.raises(SparkRefused, match=r"Cannot rename demo\.seen to demo\.saw"):
        own.spark.run("alter view own.demo.seen rename to own.demo.saw")
    listed = own.spark.rows("show views in own.demo").column("viewName").to_pylist()
    assert listed == ["seen"]
    own.spark.run("drop view own.demo.seen")
    with pytest.raises(Invalid) as absent:
        own.lake.view("demo.seen")
    assert absent.value.code == "view-unknown"


def test_rows_are_appended_and_a_select_creates_a_table(own: Changed) -> None:
    own.spark.run("create table own.demo.rows (id bigint, name string) using iceberg partitioned by (name)")
    table = own.lake.table("demo.rows")
    own.spark.run("insert into own.demo.rows values (1, 'a/b'), (2, 'x=1')")
    table.append(pa.table({"id": [3], "name": ["c"]}))
    own.spark.run("insert into own.demo.rows values (4, 'a/b')")
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]
    assert sorted(table.scan("name = 'a/b'").to_arrow().column("id").to_pylist()) == [1, 4]
    own.spark.run("create table own.demo.filled using iceberg as select 1L as id")
    assert own.lake.table("demo.filled").scan().to_arrow().to_pylist() == [{"id": 1}]


def test_removed_rows_are_refused_and_only_a_select_that_replaces_leaves_its_file_behind(own: Changed) -> None:
    own.spark.run("create table own.demo.whole (id bigint, name string) using iceberg")
    table = own.lake.table("demo.whole")
    table.append(pa.table({"id": [1], "name": ["a"]}))
    head = table.head()
    for statement, left in {
        "insert overwrite own.demo.whole values (2, 'b')": [],
        "delete from own.demo.whole where id = 1": [],
        "truncate table own.demo.whole": [],
        "create or replace table own.demo.whole using iceberg as select 2L as id, 'b' as name": ["demo/whole/data"],
    }.items():
        before = own.files()
        with pytest.raises(SparkRefused, match=NO_REMOVALS):
            own.spark.run(statement)
        new = {str(path.parent) for path in own.files() - before}
        assert sorted(new - {"demo/whole/metadata/roots"}) == left, statement  # the root records that it was refused
    assert (table.head().totals, table.head().definition) == (head.totals, head.definition)
    with pytest.raises(SparkRefused, match="sets no branch or tag"):
        own.spark.run("alter table own.demo.whole create tag kept")
    with pytest.raises(SparkRefused, match=r"gc\.enabled is always false"):
        own.spark.run("alter table own.demo.whole set tblproperties ('gc.enabled' = 'true')")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
