"""Where each block of code in the documents is run, or why it is not.

Owns: the lists. Does not own: running. Invariants: a block that is in no list is an error (`test_every_block.py`), and
so is an entry without a block. A block is named by its page and by how its first line begins.
"""

from __future__ import annotations

from tests.documents.blocks import Block

Named = tuple[str, str]
KAFKA = "tests/kafka/stories/test_pages_on_kafka.py"
PAGES = "tests/documents/test_pages.py"
HERE = "tests/documents/test_every_block.py"
README = "tests/house/test_readme.py"
SPARK = "tests/spark/test_pages.py"
SQL = "tests/engines/test_sql_pages.py"
FOREIGN = "tests/kafka/stories/test_foreign_clients.py"

RUN_WHOLE = {
    "docs/quickstarts/python.md": PAGES,
    "docs/quickstarts/ten-tasks.md": PAGES,
    "docs/quickstarts/ten-tasks-compared.md": "tests/documents/test_ten_tasks_compared.py",
    "docs/quickstarts/operator.md": PAGES,
    "docs/quickstarts/kafka-producer.md": KAFKA,
    "docs/quickstarts/spark.md": SPARK,
    "docs/from-delta.md": SPARK,
    "docs/from-iceberg-on-spark.md": SPARK,
    "docs/spark-sql.md": SQL,
}
"""Pages whose blocks of Python and of shell are run in their order, in one folder, by that file."""

RUN_BY: dict[Named, str] = {
    ("README.md", "import pyarrow as pa"): README,
    ("README.md", "rootline history demo.flights"): README,
    ("README.md", "rootline catalog serve"): PAGES,
    ("README.md", "export ROOTLINE_LOG=kafka"): KAFKA,
    ("README.md", 'echo \'{"intent_id": "sensor-7/0"'): KAFKA,
    ("README.md", "INSTALL iceberg; LOAD iceberg;"): PAGES,
    ("docs/deploy.md", "python deploy/policies/fill.py"): "tests/deploy/test_bucket_policies.py",
    ("docs/foreign-clients.md", "rootline table create demo.trips"): PAGES,
    ("docs/foreign-clients.md", 'echo \'{"intent_id": "7c1e-kcat-1"'): FOREIGN,
    ("docs/foreign-clients.md", 'echo \'{"intent_id": "7c1e-kcat-2"'): FOREIGN,
    ("docs/foreign-clients.md", "import io, json, uuid"): FOREIGN,
    ("docs/foreign-clients.md", "import io, json, sys, time"): FOREIGN,
    ("docs/foreign-clients.md", "import hashlib, hmac"): "tests/coordinator/test_principals.py",
    ("docs/intents.md", '{"intent_id": "…", "table": "demo.flights", "kind": "alter"'): HERE,
    ("docs/intents.md", '{"intent_id": "…", "table": "demo.flights", "kind": "append"'): HERE,
    ("docs/operations.md", "export ROOTLINE_WAREHOUSE=s3"): KAFKA,
    ("docs/operations.md", "rootline topics accept"): KAFKA,
    ("docs/operations.md", "rootline quarantine list"): KAFKA,
    ("docs/operations.md", "rootline status"): KAFKA,
    ("docs/operations.md", "rootline dlq list"): KAFKA,
    ("docs/operations.md", "rootline check demo.flights"): KAFKA,
    ("docs/operations.md", "rootline maintenance run"): KAFKA,
    ("docs/other-engines.md", "rootline catalog serve"): PAGES,
    ("docs/other-engines.md", "from pyiceberg.catalog import load_catalog"): PAGES,
    ("docs/other-engines.md", "INSTALL iceberg; LOAD iceberg;"): PAGES,
    ("docs/reading.md", "dep_delay > 60 and"): README,
    ("docs/reading.md", "import duckdb, pandas as pd"): README,
    ("docs/reading.md", "import pyarrow.compute as pc"): README,
    ("docs/reading.md", "trips = lake.create_table("): README,
    ("README.md", "import rootline.spark"): SPARK,
    ("docs/spark-sql.md", "CREATE NAMESPACE IF NOT EXISTS lake.shop;"): SQL,
    ("docs/spark-sql.md", "CREATE TABLE lake.shop.cities_"): SQL,
    ("docs/spark-sql.md", "ALTER TABLE lake.shop.orders"): SQL,
    ("docs/spark-sql.md", "SELECT city, count(*)"): SQL,
    ("docs/spark-sql.md", "import rootline"): SPARK,
    ("docs/from-iceberg-on-spark.md", "arrivals = spark.readStream"): SQL,
    ("docs/spark.md", "import rootline"): SPARK,
    ("docs/spark.md", "late = rootline.spark.table("): SPARK,
    ("docs/spark.md", "log = spark.createDataFrame("): SPARK,
    ("docs/spark.md", "def doubles()"): SPARK,
    ("docs/spark.md", "flights = spark.readStream"): SPARK,
    ("docs/spark.md", "def each(frame"): SPARK,
    ("docs/spark.md", "appending = stream.writeStream.foreachBatch("): SPARK,
    ("docs/spark.md", 'spark.conf.set("spark.sql.parquet.outputTimestampType"'): SPARK,
}
"""Single blocks, and the file that runs them."""

_BUCKET = "names a bucket and brokers; tests/spark/test_stream_kafka.py makes the same calls"
_CLONE = "makes an environment; CI begins with the same command"
NOT_RUN: dict[Named, str] = {
    ("README.md", "python3 -m venv .venv"): "makes an environment; `make release` tries the wheel with every extra",
    ("README.md", "make demo-fast"): "targets of the Makefile: CI runs them, a test runs what demo-kafka runs",
    ("CONTRIBUTING.md", "make setup"): _CLONE,
    ("docs/quickstarts/python.md", "make setup"): _CLONE,
    ("docs/quickstarts/spark.md", "make setup"): _CLONE,
    ("docs/quickstarts/operator.md", "make setup"): _CLONE,
    ("docs/spark.md", 'spark.conf.set("spark.rootline.warehouse", "s3'): _BUCKET,
    (
        "docs/spark.md",
        "spark-submit --packages",
    ): "it fetches jars; tests/spark/machine/s3a_software.py fetches the same",
    ("docs/spark.md", "PYTHONPATH=build/rootline.zip spark-submit"): "tests/spark/cluster submits a job like it",
    ("docs/spark.md", "spark-submit --master"): "tests/spark/cluster submits a job like it, on ports of its own",
    ("docs/operations.md", "[keys.ingest]"): "a file of keys, not a command",
    (
        "docs/operations.md",
        "ROOTLINE_REDIS__URL=",
    ): "names a cache; tests/cli/test_task_commands.py runs both `tasks` commands on a real one",
    ("docs/console.md", "rootline up --root"): "with ports of its own in tests/services/console",
    ("docs/adoption.md", "rootline adopt s3://"): "a table of the reader's; tests/cli/test_adopt_command.py adopts one",
    ("docs/other-engines.md", "CREATE SECRET (TYPE s3"): "keys of the reader's bucket",
    (
        "docs/other-engines.md",
        "spark.jars.packages",
    ): "settings for a jar; tests/engines/iceberg_spark.py sets the same",
    (
        "docs/other-engines.md",
        "SELECT * FROM lake.demo.flights VERSION",
    ): "needs that jar: tests/engines/test_spark_rest.py",
    (
        "docs/other-engines.md",
        "[principals.flights-etl]",
    ): "tests/rest/test_principals.py reads such files",
    ("docs/other-engines.md", "connector.name=iceberg"): "Trino's, which the page says is not tested",
}
"""Blocks that no test runs, and why."""


def is_listed(block: Block, listed: Named) -> bool:
    """Whether an entry names the block."""
    page, begins = listed
    return block.page == page and block.first_line.startswith(begins)


def left_out(block: Block) -> bool:
    """Whether the block is in `NOT_RUN`."""
    return any(is_listed(block, listed) for listed in NOT_RUN)
