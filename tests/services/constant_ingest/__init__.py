"""Constant ingest on real Kafka and S3, with all upkeep on, while hours pass in minutes.

Owns: the proof of `python -m tests.services.constant_ingest`. Does not own: the services, faults (`tests.kafka.chaos`).
Invariants: the product runs as it is; only clocks run faster: the store's dates, the log's append times, and those of
the processes.
"""
