"""PyIceberg's own client of the REST catalog reads what Rootline holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError, UnauthorizedError

from rootline.connect import connect
from tests.catalog.pyiceberg_catalog import catalog_at, rows
from tests.catalog.served_catalog import served

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    with connect(folder) as opened:
        table = opened.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
        table.append({"id": [1, 2, 3], "carrier": ["UA", "UA", "AA"], "delay": [5.0, 70.0, None]})
        table.append({"id": [4], "carrier": ["DL, Inc"], "delay": [0.0]})
        table.delete_where("id = 2")
        opened.create_table("other.empty", SCHEMA)
    return folder


@pytest.fixture(scope="module")
def url(lake: Path) -> Iterator[str]:
    with served(lake) as found:
        yield found


def test_namespaces_and_tables_are_found(url: str) -> None:
    with catalog_at(url, **{"rest-page-size": "1"}) as catalog:
        assert catalog.list_namespaces() == [("demo",), ("other",)]
        assert catalog.list_namespaces("demo") == []
        assert catalog.list_tables("demo") == [("demo", "flights")]
        assert catalog.list_views("demo") == []
        assert catalog.namespace_exists("demo")
        assert not catalog.namespace_exists("absent")
        assert catalog.load_namespace_properties("demo") == {}
        assert catalog.table_exists("demo.flights")
        assert not catalog.table_exists("demo.absent")
        assert not catalog.view_exists("demo.absent")
        with pytest.raises(NoSuchTableError, match=r"demo\.absent"):
            catalog.load_table("demo.absent")
        with pytest.raises(NoSuchNamespaceError, match="absent"):
            catalog.list_tables("absent")


@pytest.mark.parametrize("warehouse", ["v2", "v3"])
def test_rows_are_those_that_rootline_reads_and_follow_the_next_commit(lake: Path, url: str, warehouse: str) -> None:
    with connect(lake) as opened, catalog_at(url, warehouse) as catalog:
        ours = opened.table("demo.flights")
        theirs = catalog.load_table("demo.flights")
        assert theirs.metadata.format_version == int(warehouse[1])
        assert rows(theirs.scan().to_arrow()) == rows(ours.scan().to_arrow())
        assert theirs.scan(row_filter="carrier = 'UA'").to_arrow().num_rows == ours.scan("carrier = 'UA'").count()
        ours.append({"id": [100 + int(warehouse[1])], "carrier": ["UA"], "delay": [1.5]})
        theirs.refresh()
        assert rows(theirs.scan().to_arrow()) == rows(ours.scan().to_arrow())
        before = theirs.scan(snapshot_id=theirs.metadata.snapshots[-2].snapshot_id).to_arrow()
        assert before.num_rows == ours.scan().count() - 1


def test_a_table_without_rows_is_read(url: str) -> None:
    with catalog_at(url) as catalog:
        assert catalog.load_table("other.empty").scan().to_arrow().num_rows == 0


def test_only_named_snapshots_are_loaded_when_asked(url: str) -> None:
    with catalog_at(url, **{"snapshot-loading-mode": "refs"}) as catalog:
        table = catalog.load_table("demo.flights")
        assert len(table.metadata.snapshots) == 1
        assert table.scan().to_arrow().num_rows > 0


def test_a_token_is_sent_and_a_wrong_one_refused(lake: Path) -> None:
    with served(lake, token="a-word") as url:
        with catalog_at(url, token="a-word") as catalog:
            assert catalog.list_tables("demo") == [("demo", "flights")]
        with pytest.raises(UnauthorizedError, match="ROOTLINE_CATALOG__TOKEN"), catalog_at(url, token="another"):
            pass


def test_a_commit_through_the_catalog_is_refused_and_changes_nothing(lake: Path, url: str) -> None:
    with connect(lake) as opened, catalog_at(url, "v2") as catalog:
        before = opened.table("other.empty").head()
        with pytest.raises((RESTError, NotImplementedError)):
            catalog.load_table("other.empty").append(pa.table({"id": [9], "carrier": ["UA"], "delay": [0.0]}))
        assert opened.table("other.empty").head() == before
