"""The extra `spark`: Spark appends to a table and reads it."""

from pathlib import Path

from pyspark.sql import SparkSession

import rootline
import rootline.spark

folder = str(Path("lake").absolute())
with rootline.connect(folder) as lake:
    trips = lake.create_table("demo.trips", {"id": "long", "city": "string"})
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.rootline.warehouse", folder)
    rootline.spark.register(spark)
    rows = spark.createDataFrame([(1, "Kyiv"), (2, "Oslo")], "id long, city string")
    rows.write.format("rootline").mode("append").save("demo.trips")
    assert spark.read.format("rootline").load("demo.trips").count() == trips.scan().count() == 2
    spark.stop()
