"""The two table formats as one Spark session uses them: Rootline's data source, and Iceberg's runtime.

Owns: how each makes, writes, streams into and reads a table; what proves that two tables have the same rows. Does not
own: the session, what is timed.
Invariants: each side is used as its own pages say, with its defaults, but for what a `name` says.

They do not promise alike: ours syncs files, folders and its log before a commit is told, Iceberg on a local folder
syncs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import rootline
import rootline.spark
from benchmarks.iceberg_runtime.places import FLIGHTS, Places
from benchmarks.scan_speed import flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

HADOOP: Final = "iceberg"
IN_MEMORY: Final = "memory"
REST: Final = "lake"
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"


def session_settings(jar: str, places: Places, address: str) -> dict[str, str]:
    """Iceberg's runtime and its catalogs; `address`: of our catalog. Each query asks for the newest version."""
    found = {
        "spark.driver.extraClassPath": jar,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # an error says which of Iceberg's exceptions caused it
        "spark.sql.pyspark.jvmStacktrace.enabled": "true",
    }
    catalogs = {
        HADOOP: {"type": "hadoop", "warehouse": places.iceberg.as_uri()},
        IN_MEMORY: {
            "catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "warehouse": places.iceberg_in_memory.as_uri(),
        },
        REST: {"type": "rest", "uri": address, "warehouse": "v3"},
    }
    for name, options in catalogs.items():
        found[f"spark.sql.catalog.{name}"] = _CATALOG
        for option, value in {"cache-enabled": "false", **options}.items():
            found[f"spark.sql.catalog.{name}.{option}"] = value
    return found


class Side(Protocol):
    """A table format."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    def create(self, table: str) -> None:
        """An empty table of flights."""
        ...

    def append(self, frame: DataFrame, table: str) -> None:
        """One batch, committed."""
        ...

    def start(self, writer: DataStreamWriter, table: str) -> StreamingQuery:
        """A stream into the table."""
        ...

    def read(self, table: str) -> DataFrame:
        """Its newest version."""
        ...


@dataclass(frozen=True, slots=True)
class RootlineSide:
    """`format("rootline")`; a coordinator runs in another process."""

    spark: SparkSession
    places: Places
    name: str = 'format("rootline")'

    def create(self, table: str) -> None:
        """As `Side.create`."""
        with rootline.connect(str(self.places.lake), coordinator="elsewhere") as lake:
            lake.create_table(table, flights(1, 0).schema)

    def append(self, frame: DataFrame, table: str) -> None:
        """As `Side.append`."""
        frame.write.format("rootline").option("warehouse", str(self.places.lake)).mode("append").save(table)

    def start(self, writer: DataStreamWriter, table: str) -> StreamingQuery:
        """As `Side.start`."""
        return writer.format("rootline").option("warehouse", str(self.places.lake)).start(table)

    def read(self, table: str) -> DataFrame:
        """As `Side.read`."""
        return rootline.spark.table(self.spark, table, warehouse=str(self.places.lake))


@dataclass(frozen=True, slots=True)
class SparkWriterSide(RootlineSide):
    """`rootline.spark.append`, in streams by `foreachBatch`."""

    name: str = "rootline.spark.append"

    def append(self, frame: DataFrame, table: str) -> None:
        """As `Side.append`."""
        rootline.spark.append(frame, table, warehouse=str(self.places.lake))

    def start(self, writer: DataStreamWriter, table: str) -> StreamingQuery:
        """As `Side.start`; each batch lands once."""
        appender = rootline.spark.batch_appender(table, warehouse=str(self.places.lake))
        return writer.foreachBatch(appender).start()


@dataclass(frozen=True, slots=True)
class IcebergSide:
    """Iceberg's runtime; `properties` of the tables that it makes."""

    spark: SparkSession
    places: Places
    catalog: str = HADOOP
    name: str = "Iceberg"
    properties: Mapping[str, str] = field(default_factory=dict)

    def create(self, table: str) -> None:
        """As `Side.create`."""
        namespace = table.rpartition(".")[0]
        self.spark.sql(f"create namespace if not exists {self.catalog}.{namespace}")
        empty = self.spark.read.parquet(self.places.data_of(FLIGHTS)[0]).limit(0)
        writer = empty.writeTo(f"{self.catalog}.{table}").using("iceberg")
        for name, value in self.properties.items():
            writer = writer.tableProperty(name, value)
        writer.create()

    def append(self, frame: DataFrame, table: str) -> None:
        """As `Side.append`."""
        frame.writeTo(f"{self.catalog}.{table}").append()

    def start(self, writer: DataStreamWriter, table: str) -> StreamingQuery:
        """As `Side.start`."""
        return writer.format("iceberg").toTable(f"{self.catalog}.{table}")

    def read(self, table: str) -> DataFrame:
        """As `Side.read`."""
        return self.spark.table(f"{self.catalog}.{table}")

    def attempts(self, table: str) -> list[int]:
        """The attempts that each commit of the table took: the names of manifest lists count them."""
        found = self.spark.sql(f"select manifest_list from {self.catalog}.{table}.snapshots").collect()
        return [int(row[0].rsplit("/", 1)[1].split("-")[2]) for row in found]


def rows_of(frame: DataFrame) -> dict[str, Any]:
    """Number and sums of hashes of whole rows: equal for two tables only if they have the same rows."""
    hashes = "sum(cast(xxhash64(*) as decimal(38, 0))) as hashes"
    return frame.selectExpr("count(*) as rows", hashes, "sum(id) as ids").collect()[0].asDict()
