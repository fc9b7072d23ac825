"""Appends whose files Spark's own Parquet writer writes: `rootline.spark.append`."""
