"""Ingest by real processes on real Kafka, S3 and Valkey, while Valkey is killed, hung and poisoned in turn."""
