"""One Spark for the whole session, and a table to use it on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle

FLIGHTS = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, quick_spark: None, warm_workers: str) -> Iterator[SparkSession]:
    """A local Spark with two cores and our data source; its session is in another time zone than UTC."""
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = warm_workers, sys.executable
    for name in ("ROOTLINE_WAREHOUSE", "ROOTLINE_LOG"):
        os.environ.pop(name, None)
    builder = SparkSession.builder.master("local[2]").appName("rootline tests")
    for setting, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "rootline.spark.daemon",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "2",
        # a handful of rows: compiling a plan takes longer than running it as it is; the demos and the cluster compile
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
    }.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    from rootline.spark import register

    register(session)
    yield session
    session.stop()


@pytest.fixture
def flights(lake: Lake) -> TableHandle:
    """An empty table by carrier."""
    return lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"])


@pytest.fixture
def load(spark: SparkSession, folder: Path) -> Callable[..., DataFrame]:
    """`load(versionAsOf=3)`: the table `demo.flights` through Spark."""

    def loaded(table: str = "demo.flights", **options: Any) -> DataFrame:
        return spark.read.format("rootline").option("warehouse", str(folder)).options(**options).load(table)

    return loaded


@pytest.fixture
def save(folder: Path) -> Callable[..., None]:
    """`save(frame, mode="overwrite")`: into the table `demo.flights` through Spark."""

    def saved(frame: DataFrame, mode: str = "append", table: str = "demo.flights", **options: Any) -> None:
        frame.write.format("rootline").option("warehouse", str(folder)).options(**options).mode(mode).save(table)

    return saved


@pytest.fixture(scope="session")
def s3a(spark: SparkSession) -> SparkSession:
    """The same Spark, with Hadoop's S3A on its classpath from now on."""
    from tests.spark.machine.s3a_software import add_s3a

    add_s3a(spark)
    return spark
