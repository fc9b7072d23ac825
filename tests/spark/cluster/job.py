"""What the test of a cluster submits: writes and reads a table, and says where its tasks ran, with which code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rootline
import rootline.spark


def place(_: int) -> tuple[str, str]:
    """Of one task: where the library came from, and the folder of its executor."""
    import rootline

    return str(rootline.__file__), str(Path.cwd())


def main(warehouse: str) -> None:
    """Write, read by both ways, and print what came out."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("rootline on a cluster").getOrCreate()
    spark.conf.set("spark.rootline.warehouse", warehouse)
    rootline.spark.register(spark)
    rows = spark.range(1_000, numPartitions=4).selectExpr("id", "concat('C', id % 5) AS carrier")
    rows.write.format("rootline").mode("append").options(createTable=True, partitionedBy="carrier").save("demo.flights")
    read = spark.read.format("rootline").load("demo.flights")
    quick = rootline.spark.table(spark, "demo.flights", where="carrier = 'C2'")
    places = spark.sparkContext.parallelize(range(4), 4).map(place).collect()
    said = {
        "carriers": {row["carrier"]: row["count"] for row in read.groupBy("carrier").count().collect()},
        "sum of C2": quick.selectExpr("sum(id) AS total").collect()[0]["total"],
        "driver": str(rootline.__file__),
        "code": sorted({code for code, _ in places}),
        "executors": sorted({folder for _, folder in places}),
    }
    spark.stop()
    print("said: " + json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
