"""PyIceberg appends through the catalog, on a folder and on a bucket."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from rootline.client.lake import Lake
from rootline.connect import connect
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.catalog.served_catalog import served
from tests.services.s3_service import S3Service

BY_CARRIER = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "carrier"))
ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("carrier", pa.string())])


@contextmanager
def _engines(warehouse: str, log: str, engines: int = 1) -> Iterator[tuple[Lake, list[RestCatalog]]]:
    """A lake, and several clients of its catalog, each with connections of its own."""
    with ExitStack() as around:
        lake = around.enter_context(connect(warehouse) if not log else connect(warehouse, log=log))
        lake.create_namespace("demo")
        url = around.enter_context(served(warehouse, log=log))
        token = os.environ.get("ROOTLINE_CATALOG__TOKEN")
        options = {} if token is None else {"token": token}
        yield lake, [around.enter_context(catalog_at(url, "v2", **options)) for _ in range(engines)]


@pytest.fixture(params=["folder", pytest.param("s3", marks=[pytest.mark.services, pytest.mark.slow])])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A warehouse and its log."""
    if request.param == "folder":
        yield str(tmp_path / "lake"), ""
        return
    s3: S3Service = request.getfixturevalue("s3_service")
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", s3.endpoint)
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", s3.access_key_id)
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", s3.secret_access_key)
    monkeypatch.setenv("ROOTLINE_CATALOG__SHARE_S3_KEYS", "true")
    monkeypatch.setenv("ROOTLINE_CATALOG__TOKEN", "a-word")
    # the tests' store does not read the checksums that Arrow 26 sends behind a body
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    from tests.cli.test_service_commands import service

    warehouse, log = f"s3://{s3.bucket}/appends-{uuid.uuid4().hex}", f"sqlite://{tmp_path}/log"
    with service("coordinator", "--warehouse", warehouse, "--log", log):
        yield warehouse, log


def _some(*ids: int, carrier: str = "UA") -> pa.Table:
    return pa.table({"id": list(ids), "carrier": [carrier] * len(ids)}, schema=ROWS)


def _ids(lake: Lake, name: str) -> list[int]:
    found: list[int] = sorted(lake.table(name).scan().to_arrow().column("id").to_pylist())
    return found


def test_an_append_is_a_version_of_the_table_with_the_clients_words(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        table.append(_some(1, 2), snapshot_properties={"job": "nightly"})
        table.append(_some(3))
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3]
        assert _ids(lake, "demo.t") == [1, 2, 3]
        assert [each.summary["added-data-files"] for each in table.metadata.snapshots if each.summary][-1] == "1"
        [first] = [each for each in lake.table("demo.t").history() if each.snapshot.summary.get("job") == "nightly"]
        assert (first.snapshot.operation, first.snapshot.summary["added-records"]) == ("append", "2")


def test_the_statistics_of_a_file_prune_it(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        for first in (1, 1_000):
            table.append(_some(*range(first, first + 10)))
        found = lake.table("demo.t").scan("id > 1005")
        assert len(found.plan()) == 1
        assert found.to_arrow().num_rows == 4


def test_a_partition_value_with_characters_of_a_url_is_read_back_by_everyone(place: tuple[str, str]) -> None:
    odd = ["x?", "a b", "a/b", "ü", "100%", "http://host/?a=b#c"]
    with _engines(*place) as (lake, [engine]):
        columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "carrier", StringType()))
        table = engine.create_table("demo.t", columns, partition_spec=BY_CARRIER)
        table.append(pa.table({"id": list(range(len(odd))), "carrier": odd}, schema=ROWS))
        for number, value in enumerate(odd):
            quoted = value.replace("'", "''")
            [file] = lake.table("demo.t").scan(f"carrier = '{quoted}'").plan()
            assert "carrier=" in file.location
            assert lake.table("demo.t").scan(f"carrier = '{quoted}'").to_arrow().column("id").to_pylist() == [number]
            theirs = table.scan(row_filter=EqualTo("carrier", value)).to_arrow()
            assert theirs.to_pylist() == [{"id": number, "carrier": value}]


def test_an_append_after_an_evolution_has_the_new_column(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        table.append(_some(1))
        with table.update_schema() as change:
            change.add_column("delay", LongType())
        table.append(pa.table({"id": [2], "carrier": ["AA"], "delay": [5]}))
        assert lake.table("demo.t").scan("id = 2").to_arrow().to_pylist() == [{"id": 2, "carrier": "AA", "delay": 5}]


def test_columns_and_rows_of_one_transaction_are_one_version(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        before = lake.table("demo.t").head().version
        with table.transaction() as both:
            with both.update_schema() as change:
                change.add_column("note", StringType())
            both.append(pa.table({"id": [1], "carrier": ["UA"], "note": ["x"]}))
        found = lake.table("demo.t")
        assert found.head().version == before + 1
        assert found.scan().to_arrow().to_pylist() == [{"id": 1, "carrier": "UA", "note": "x"}]


def test_several_snapshots_of_one_transaction_are_one_version(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        before = lake.table("demo.t").head().version
        with table.transaction() as several:
            for number in range(3):
                several.append(_some(number))
        assert _ids(lake, "demo.t") == [0, 1, 2]
        assert lake.table("demo.t").head().version == before + 1


def test_two_clients_that_append_to_one_snapshot_both_succeed(place: tuple[str, str]) -> None:
    with _engines(*place, engines=2) as (lake, [one, other]):
        first = one.create_table("demo.t", ROWS, properties={"commit.retry.num-retries": "0"})
        second = other.load_table("demo.t")
        first.append(_some(1))
        second.append(_some(2))  # its base had no snapshot
        tables: list[Table] = [one.load_table("demo.t"), other.load_table("demo.t")]
        failed: list[BaseException] = []

        def append(number: int) -> None:
            try:
                for each in range(3):
                    tables[number].append(_some(10 * (number + 1) + each))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert _ids(lake, "demo.t") == [1, 2, 10, 11, 12, 20, 21, 22]


def test_an_append_fits_over_changes_that_others_made_meanwhile(place: tuple[str, str]) -> None:
    with _engines(*place) as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        table.append(_some(1, 2))
        stale = engine.load_table("demo.t")
        lake.table("demo.t").delete_where("id = 1")
        lake.table("demo.t").rewrite()
        lake.table("demo.t").append(_some(3))
        stale.append(_some(4))
        assert _ids(lake, "demo.t") == [2, 3, 4]


def test_rows_for_the_columns_before_a_replace_are_refused(tmp_path: Path) -> None:
    with _engines(str(tmp_path / "lake"), "") as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        table.append(_some(1))
        stale = engine.load_table("demo.t")
        lake.table("demo.t").replace(pa.table({"id": [7]}))
        with pytest.raises(BadRequestError, match="table-replaced"):
            stale.append(_some(2))
        assert _ids(lake, "demo.t") == [7]


def test_an_overwrite_of_rows_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with _engines(str(tmp_path / "lake"), "") as (lake, [engine]):
        table = engine.create_table("demo.t", ROWS)
        table.append(_some(1))
        with pytest.raises(BadRequestError, match="does not take"):
            table.overwrite(_some(2))
        assert _ids(lake, "demo.t") == [1]
        with pytest.raises(BadRequestError, match="does not take"):
            engine.load_table("demo.t").delete("id = 1")
        table = engine.load_table("demo.t")
        table.append(_some(3))
        assert _ids(lake, "demo.t") == [1, 3]
