"""Tables that Iceberg wrote are adopted, read, changed and exported; rows agree before and after, in every engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rootline.catalog.export_keys import FormatVersion
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.identifiers import TableName
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import FLUSH, maintain
from tests.catalog.served_catalog import served
from tests.engines.duckdb_reader import open_duckdb
from tests.engines.iceberg_spark import IcebergSpark
from tests.engines.iceberg_tables import COLUMNS, WrittenTable
from tests.engines.pyiceberg_reader import pyiceberg_rows
from tests.engines.same_rows import plain

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

NAMES = ("v1", "v2_positions", "v2_equality", "v3", "upgraded")
FORMATS = (FormatVersion.V2, FormatVersion.V3)
ROWS = COLUMNS.split(", ")
DEAD = "id = 13 or (carrier = 'UA' and day < '2013-02-02') or note = 'y' or minutes = 25.5"


@dataclass(frozen=True)
class AdoptedTable:
    """One of them in our lake, before and after it was changed."""

    written: WrittenTable
    table: TableHandle
    before: pa.Table
    after: pa.Table
    lineage: pa.Table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adopted")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def adopted(lake: Lake, folder: Path, written_tables: dict[str, WrittenTable]) -> dict[str, AdoptedTable]:
    return {name: adopt_and_change(lake, written_tables[name]) for name in NAMES}


def adopt_and_change(lake: Lake, written: WrittenTable) -> AdoptedTable:
    """The new name is how the old table's folder ends, so that no location may be taken for one of ours."""
    name = TableName(f"db.{written.name}")
    assert written.metadata_location.rsplit("/metadata/", 1)[0].endswith(name.replace(".", "/"))
    lake.adopt(written.metadata_location, name)
    table = lake.table(name)
    before = table.scan(columns=ROWS).to_arrow()
    lineage = table.scan(columns=["id", "_row_id", "_last_updated_sequence_number"]).to_arrow()
    newer = before.slice(0, 3).set_column(
        0, before.schema.field("id"), pa.array([900, 901, 902], before.schema.field("id").type)
    )
    table.append(newer)
    flush(lake, name)
    table.delete_where(DEAD)
    assert table.rewrite() is not None
    return AdoptedTable(written, table, before, table.scan(columns=ROWS).to_arrow(), lineage)


def flush(lake: Lake, name: TableName) -> None:
    async def work(session: Session) -> None:
        report = await maintain(session.store, session.log, session.environment, name, FLUSH, dry_run=False)
        assert report.outcome is JobOutcome.COMMITTED, report

    lake.holder.run(work)


@pytest.mark.parametrize("name", NAMES)
def test_an_adopted_table_has_the_rows_that_spark_read_of_it(adopted: dict[str, AdoptedTable], name: str) -> None:
    found = adopted[name]
    assert plain(found.before) == plain(found.written.rows)
    assert list(found.table.check()) == []
    if found.written.lineage is not None:
        assert plain(found.lineage) == plain(found.written.lineage, found.lineage.column_names)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_does_what_it_does_to_a_list_of_rows(adopted: dict[str, AdoptedTable], name: str) -> None:
    found = adopted[name]
    rows = found.before.to_pylist()
    newer = [{**row, "id": 900 + number} for number, row in enumerate(rows[:3])]
    kept = [row for row in (*rows, *newer) if not is_dead(row)]
    assert 3 < len(kept) < len(rows) + 3
    assert plain(found.after) == plain(pa.Table.from_pylist(kept, found.after.schema))


def is_dead(row: dict[str, object]) -> bool:
    """What `DEAD` says."""
    day = row["day"]
    is_early = isinstance(day, date) and day < date(2013, 2, 2)
    return row["id"] == 13 or (row["carrier"] == "UA" and is_early) or row["note"] == "y" or row["minutes"] == 25.5


@pytest.mark.parametrize("format_version", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_duckdb_and_pyiceberg_read_the_exports_of_before_and_after(
    adopted: dict[str, AdoptedTable], name: str, format_version: FormatVersion
) -> None:
    found = adopted[name]
    with open_duckdb() as reader:
        for version, rows in ((0, found.before), (None, found.after)):
            location = found.table.export(format_version, version).metadata_location
            assert plain(reader.rows(location, columns=ROWS)) == plain(rows)
            assert plain(pyiceberg_rows(location), ROWS) == plain(rows)


@pytest.mark.parametrize("format_version", FORMATS)
def test_spark_reads_them_and_their_snapshots_of_before_the_adoption_through_rest(
    adopted: dict[str, AdoptedTable], folder: Path, iceberg_spark: IcebergSpark, format_version: FormatVersion
) -> None:
    catalog = f"adopted_v{format_version}"
    lineage = ["_row_id", "_last_updated_sequence_number"] if format_version is FormatVersion.V3 else []
    with served(folder) as address:
        iceberg_spark.rest_catalog(catalog, address, warehouse=f"v{format_version}")
        for name, found in adopted.items():
            theirs = iceberg_spark.rows(f"select {', '.join([*ROWS, *lineage])} from {catalog}.db.{name}")
            assert plain(theirs) == plain(found.table.scan(columns=[*ROWS, *lineage]).to_arrow()), name
            assert plain(theirs, ROWS) == plain(found.after)
            if found.written.format_version <= format_version:
                [(snapshot_id, ids)] = found.written.earlier.items()
                then = iceberg_spark.rows(f"select id from {catalog}.db.{name} version as of {snapshot_id}")
                assert sorted(then.column("id").to_pylist()) == ids


@pytest.mark.parametrize("name", NAMES)
def test_the_old_table_stays_as_it_was(
    adopted: dict[str, AdoptedTable], name: str, iceberg_spark: IcebergSpark
) -> None:
    written = adopted[name].written
    assert plain(iceberg_spark.rows(f"select {COLUMNS} from written.db.{name}")) == plain(written.rows)
    if name in ("v1", "v2_positions", "v3"):
        for snapshot_id, ids in written.earlier.items():
            found = pyiceberg_rows(written.metadata_location, snapshot_id=snapshot_id)
            assert sorted(found.column("id").to_pylist()) == ids


@pytest.mark.parametrize("name", ["v2_equality", "upgraded"])
def test_duckdb_breaks_on_equality_deletes_of_nulls_and_of_promoted_columns(
    written_tables: dict[str, WrittenTable], name: str
) -> None:
    """So they are never exported. When this fails, a newer DuckDB has learnt it: say so in docs/other-engines.md.

    Its threads read several delete files at once: which of the two it stumbles over first is chance.
    """
    why = "NULL values|vector of type INT64"
    with open_duckdb() as reader, pytest.raises(duckdb.InternalException, match=why):
        reader.rows(written_tables[name].metadata_location)


def test_pyiceberg_refuses_equality_deletes(written_tables: dict[str, WrittenTable]) -> None:
    """So they are never exported. When this fails, a newer PyIceberg has learnt it: say so in docs/other-engines.md."""
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        pyiceberg_rows(written_tables["v2_equality"].metadata_location)
