"""Run by the Python that has Spark 4.1 and Iceberg: does what is asked for, line by line, until its input ends.

Each line of input is a JSON object with `do`, each line of output the JSON answer to it. Nothing of ours is imported.

Owns: the Spark session. Does not own: what is asked.
Invariants: what Spark and Java print goes to stderr, never between the answers.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

NAMES: dict[str, Any] = {"__name__": "__main__"}
"""Of the programs."""


def session(settings: dict[str, str]) -> SparkSession:
    """A local Spark."""
    builder = SparkSession.builder.master("local[2]").appName("rootline engines")
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def catalog(spark: SparkSession, name: str, options: dict[str, str]) -> None:
    """A catalog of Iceberg's. What it answered a moment ago is not kept."""
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for option, value in {"cache-enabled": "false", **options}.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{option}", value)


def sql(spark: SparkSession, statements: list[str], into: str | None) -> None:
    """Run statements; the rows of the last one go to the Arrow file `into`."""
    *before, last = statements
    for statement in before:
        spark.sql(statement)
    found = spark.sql(last)
    if into is not None:
        rows = found.toArrow()
        with pa.OSFile(into, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)


def at_once(spark: SparkSession, statements: list[str]) -> None:
    """Run all statements at the same time, each in a thread of its own."""
    with ThreadPoolExecutor(len(statements)) as threads:
        list(threads.map(lambda statement: spark.sql(statement), statements))


def program(spark: SparkSession, text: str) -> None:
    """Run a program that has the session as `spark`, and the names of the programs before it."""
    NAMES["spark"] = spark
    exec(compile(text, "a program", "exec"), NAMES)


def stream(spark: SparkSession, source: str, schema: str, table: str, checkpoint: str) -> None:
    """Append the JSON files in `source` that the checkpoint does not know yet, one file in each epoch, and end."""
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(source)
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.toTable(table).awaitTermination()


def equality_delete(
    spark: SparkSession, table: str, columns: list[str], rows: list[list[Any]], partition: list[Any] | None
) -> None:
    """Commit an equality delete file of `rows`, which Spark cannot write; `partition`: values in the newest spec.

    Without a partition it is written under the table's unpartitioned spec, which it must have: so it is global.
    """
    java: Any = spark._jvm
    iceberg = java.org.apache.iceberg
    found = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    schema = found.schema().select(columns)
    specs = [found.spec()] if partition is not None else [s for s in found.specs().values() if s.isUnpartitioned()]
    spec, key = specs[0], None
    if partition is not None:
        key = iceberg.data.GenericRecord.create(spec.partitionType())
        for at, value in enumerate(partition):
            key.set(at, value)
    field_ids = spark.sparkContext._gateway.new_array(java.int, len(columns))
    for at, column in enumerate(columns):
        field_ids[at] = found.schema().findField(column).fieldId()
    parquet = iceberg.FileFormat.PARQUET
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(found).deleteFileFormat(parquet)
    factory = builder.equalityFieldIds(field_ids).equalityDeleteRowSchema(schema).build()
    folder = found.locationProvider().newDataLocation(f"equality-{uuid.uuid4()}.parquet")
    output = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(found.io().newOutputFile(folder))
    writer = factory.newEqualityDeleteWriter(output, spec, key)
    for row in rows:
        record = iceberg.data.GenericRecord.create(schema)
        for at, field in enumerate(schema.columns()):
            value = row[columns.index(field.name())]
            if value is not None and field.type().toString() == "long":
                set_long(spark, record, at, value)
            elif value is not None:
                record.set(at, value)
        writer.write(record)
    writer.close()
    found.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def set_long(spark: SparkSession, record: Any, at: int, value: int) -> None:
    """`record.set(at, value)` with a Long: py4j makes an Integer of every small number."""
    java: Any = spark._jvm
    new_array = spark.sparkContext._gateway.new_array
    types = new_array(java.java.lang.Class, 2)
    types[0], types[1] = java.java.lang.Integer.TYPE, java.java.lang.Class.forName("java.lang.Object")
    values = new_array(java.java.lang.Object, 2)
    values[0] = at
    boxed = java.java.util.stream.LongStream.of(value).boxed().toArray()
    java.java.lang.System.arraycopy(boxed, 0, values, 1, 1)
    record.getClass().getMethod("set", types).invoke(record, values)


def changes(spark: SparkSession, table: str, into: str) -> None:
    """For each snapshot, by its id: the data files that Java finds as added and removed, and those with new deletes."""
    java: Any = spark._jvm
    found = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    answer = {}
    for snapshot in found.snapshots():
        answer[str(snapshot.snapshotId())] = {
            "added": [file.location() for file in snapshot.addedDataFiles(found.io())],
            "removed": [file.location() for file in snapshot.removedDataFiles(found.io())],
            "deleted_in": [file.referencedDataFile() for file in snapshot.addedDeleteFiles(found.io())],
        }
    Path(into).write_text(json.dumps(answer))


DO = {
    "catalog": catalog,
    "sql": sql,
    "at_once": at_once,
    "program": program,
    "stream": stream,
    "equality_delete": equality_delete,
    "changes": changes,
}


def failure(error: Exception) -> dict[str, str]:
    """What Spark said: the name of the condition where it has one, and the first line."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return {"condition": condition or type(error).__name__, "message": str(error).split("\n\tat ")[0][:2000]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(json.loads(sys.stdin.readline()))
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            DO[asked.pop("do")](spark, **asked)
            answer = {}
        except Exception as error:  # the tests say which ones they expect
            answer = failure(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # Java may have its classes to archive


if __name__ == "__main__":
    main()
