"""Spark's drivers die while streams, changes of rows, batch deletes and compactions run on Kafka and S3."""
