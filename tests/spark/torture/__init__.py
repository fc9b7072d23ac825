"""Spark's drivers and executors die while streams, changes of rows, deletes and compactions run on Kafka and S3."""
