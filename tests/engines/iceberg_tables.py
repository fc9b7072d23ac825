"""Tables that Iceberg itself wrote, of every format version and with every sort of delete, and what is in them.

Each begins unpartitioned, is partitioned by carrier, then by a bucket of the id as well (V1: the carrier becomes void);
a column is renamed, one comes, two are promoted; partitions and columns hold nulls.

Owns: their stories, their rows as Spark reads them. Does not own: Spark.
Invariants: made once in a session, in a temporary folder; no one changes them in place, nor does an adoption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.engines.iceberg_spark import IcebergSpark

COLUMNS = "id, carrier, minutes, day, price, note"
_CATALOG = "written"
_FIRST = """(1, 'UA', 1.5, date'2013-01-01', 1.10), (2, 'UA', null, date'2013-01-02', 2.20),
    (3, 'AA', float('nan'), date'2013-01-01', null), (4, null, 4.5, null, 4.40),
    (5, 'AA', 5.5, date'2013-01-03', 5.50), (6, null, null, date'2013-01-03', 6.60)"""
_SECOND = """(11, 'UA', 11.5, date'2013-02-01', 11.10), (12, 'UA', 12.5, null, 12.20), (13, 'AA', -0.0, null, 13.30),
    (14, null, 14.5, date'2013-02-02', 14.40), (15, null, 15.5, date'2013-02-02', null), (16, 'AA', null, null, 0.00)"""
_THIRD = """(17, 'UA', 17.5, date'2013-02-03', 1.70), (18, null, 18.5, null, 1.80), (19, 'AA', 19.5, null, 1.90)"""
_FOURTH = """(3000000000, 'UA', 1e300, date'2013-03-01', 0.10, 'new'), (22, 'UA', null, null, 0.20, null),
    (23, 'AA', 23.5, null, 0.30, 'AA'), (24, null, 24.5, null, null, ''), (25, null, 25.5, date'2013-03-02', 1.00, 'x'),
    (26, 'AA', 26.5, null, 2.00, 'y'), (34, 'AA', 34.5, null, 3.40, 'z')"""


@dataclass(frozen=True)
class WrittenTable:
    """A table in a folder. `rows`: by id, as Spark reads them; `earlier`: ids by the snapshot that had them."""

    name: str
    format_version: int
    metadata_location: str
    rows: pa.Table
    earlier: Mapping[int, list[int]]
    lineage: pa.Table | None = None


def write_tables(spark: IcebergSpark, folder: Path) -> dict[str, WrittenTable]:
    """All of them, by name."""
    spark.hadoop_catalog(_CATALOG, folder)
    return {name: _written(spark, folder, name, *story) for name, story in _STORIES.items()}


def _written(
    spark: IcebergSpark, folder: Path, name: str, version: int, write: Callable[[IcebergSpark, str], None]
) -> WrittenTable:
    table = f"{_CATALOG}.db.{name}"
    spark.run(
        f"""create table {table} (id int, carrier string, delay float, day date, price decimal(9, 2)) using iceberg
        tblproperties ('format-version' = '{min(version, 2) if name == "upgraded" else version}',
        'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read',
        'write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true')"""
    )
    write(spark, table)
    newest = max(
        (folder / "db" / name / "metadata").glob("v*.metadata.json"), key=lambda at: int(at.name[1:].split(".")[0])
    )
    lineage = ", _row_id, _last_updated_sequence_number" if version == 3 else ""
    found = spark.rows(f"select {COLUMNS}{lineage} from {table} order by id")
    log = spark.rows(f"select snapshot_id from {table}.snapshots order by committed_at").column(0).to_pylist()
    at = log[len(log) // 2]
    ids = spark.rows(f"select id from {table} version as of {at} order by id").column(0).to_pylist()
    rows = found.select(COLUMNS.split(", "))
    return WrittenTable(name, version, f"file://{newest}", rows, {at: ids}, found if lineage else None)


def _begin(spark: IcebergSpark, table: str) -> None:
    spark.run(
        f"insert into {table} values {_FIRST}",
        f"alter table {table} add partition field carrier",
        f"insert into {table} values {_SECOND}",
        f"insert into {table} values {_THIRD}",
    )


def _evolve(spark: IcebergSpark, table: str, spec: str = "add partition field bucket(4, id)") -> None:
    spark.run(
        f"alter table {table} rename column delay to minutes",
        f"alter table {table} add column note string",
        f"alter table {table} alter column id type bigint",
        f"alter table {table} alter column minutes type double",
        f"alter table {table} {spec}",
        f"insert into {table} values {_FOURTH}",
    )


def _rewritten(spark: IcebergSpark, table: str) -> None:
    """V1 has no delete files: Spark writes the files again."""
    spark.run(f"alter table {table} set tblproperties ('write.delete.mode' = 'copy-on-write')")
    _begin(spark, table)
    spark.run(f"delete from {table} where id in (2, 11)")
    _evolve(spark, table, "replace partition field carrier with bucket(4, id)")


def _positions(spark: IcebergSpark, table: str) -> None:
    spark.run(f"alter table {table} set tblproperties ('write.delete.granularity' = 'partition')")
    _begin(spark, table)
    spark.run(f"delete from {table} where id in (2, 4, 12, 14, 17)")
    _evolve(spark, table)
    spark.run(
        f"alter table {table} set tblproperties ('write.delete.granularity' = 'file')",
        f"delete from {table} where id in (5, 13, 15, 26)",
    )


def _equality(spark: IcebergSpark, table: str) -> None:
    _begin(spark, table)
    spark.equality_delete(table, ["id"], [[2], [12], [24]])  # 24 comes later
    spark.equality_delete(table, ["delay"], [[None]], ["AA"])  # not in the unpartitioned files
    spark.equality_delete(table, ["id"], [[18], [11], [4]], [None])  # only 18 is in that partition
    _evolve(spark, table)
    spark.equality_delete(table, ["id", "note"], [[3, None], [22, None], [25, "y"]])


def _vectors(spark: IcebergSpark, table: str) -> None:
    _begin(spark, table)
    spark.run(f"delete from {table} where id in (2, 4, 12, 14)")
    _evolve(spark, table)
    spark.run(
        f"delete from {table} where id in (5, 15, 26)",
        f"update {table} set note = 'seen' where id in (3, 16, 34)",
    )


def _upgraded(spark: IcebergSpark, table: str) -> None:
    spark.run(f"alter table {table} set tblproperties ('write.delete.granularity' = 'partition')")
    _begin(spark, table)
    spark.run(f"delete from {table} where id in (2, 12, 14, 17)")
    spark.equality_delete(table, ["id"], [[5]])
    spark.run(f"alter table {table} set tblproperties ('format-version' = '3')")
    _evolve(spark, table)
    spark.run(f"delete from {table} where id in (11, 26)")


_STORIES: dict[str, tuple[int, Callable[[IcebergSpark, str], None]]] = {
    "v1": (1, _rewritten),
    "v2_positions": (2, _positions),
    "v2_equality": (2, _equality),
    "v3": (3, _vectors),
    "upgraded": (3, _upgraded),
}
