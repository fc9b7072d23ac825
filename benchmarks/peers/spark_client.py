"""The driver of Spark with Iceberg's runtime, which inserts through a REST catalog: a client, and no peer of its own.

Options: `uri` and `warehouse` are the catalog's; `jars` go on Spark's class path; `threads` may insert at once;
`retries` raises `commit.retry.num-retries`. It imports nothing but PySpark and the protocol.
"""

from __future__ import annotations

import pyspark
from pyspark.sql import SparkSession

from benchmarks.peers.protocol import Peer, Place, serve


class Spark:
    """One session, and one table of it."""

    version = pyspark.__version__

    def open(self, place: Place) -> None:
        options = place["options"]
        catalog = {
            "type": "rest",
            "uri": options["uri"],
            "warehouse": options["warehouse"],
            "cache-enabled": "false",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": place["endpoint"],
            "s3.access-key-id": place["access_key"],
            "s3.secret-access-key": place["secret_key"],
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.driver.extraClassPath": options["jars"],
            "spark.sql.leafNodeDefaultParallelism": "1",  # a file for each insert
            "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
            **{f"spark.sql.catalog.rest.{name}": value for name, value in catalog.items() if value},
        }
        builder = SparkSession.builder.master(f"local[{options['threads']}]").appName("rootline benchmarks")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        namespace = f"rest.{options.get('schema', 'bench')}"
        self._table = f"{namespace}.{place['table']}"
        if place["creates"]:
            self._spark.sql(f"create namespace {namespace}")
            properties = f"'commit.retry.num-retries' = '{options['retries']}', 'commit.retry.max-wait-ms' = '1000'"
            if "snapshots" in options:
                properties += f", 'rootline.export.snapshots' = '{options['snapshots']}'"
            columns = "id bigint, name string"
            self._spark.sql(f"create table {self._table} ({columns}) using iceberg tblproperties ({properties})")

    def prepare(self, numbers: range) -> None:
        """Nothing: it inserts rows only."""

    def commit(self, numbers: range) -> None:
        raise NotImplementedError("Spark inserts rows")

    def plan(self, between: tuple[int, int] | None) -> int:
        raise NotImplementedError("Spark inserts rows")

    def append(self, number: int, rows: int) -> None:
        values = ", ".join(f"({one}, 'row {one}')" for one in range(number, number + rows))
        self._spark.sql(f"insert into {self._table} values {values}")

    def upkeep(self) -> None:
        """Nothing."""

    def close(self) -> None:
        self._spark.stop()


if __name__ == "__main__":
    peer: Peer = Spark()
    serve(peer)
