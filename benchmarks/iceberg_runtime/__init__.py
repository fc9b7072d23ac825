"""What `benchmarks.spark_iceberg` measures, in a process of its own, in a Spark 4.1 that has Iceberg's runtime."""
