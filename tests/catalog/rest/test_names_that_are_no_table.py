"""Engines ask for a table first, whatever a name is, and for all namespaces, whatever state one is in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rootline.connect import connect
from tests.catalog.served_catalog import asked


def test_a_view_or_a_dropped_table_that_is_asked_for_as_a_table_is_a_404_and_no_failed_export(tmp_path: Path) -> None:
    with connect(tmp_path) as opened:
        opened.create_view("demo.v", "SELECT 1")
        opened.create_table("demo.gone", pa.schema([("id", pa.int64())]))
        opened.drop_table("demo.gone")
    with asked(tmp_path) as client:
        for name in ("v", "gone", "never"):
            assert client.get(f"/v1/v3/namespaces/demo/tables/{name}").status_code == 404
        scraped = client.get("/metrics").text
        assert "rootline_export_failures_total{" not in scraped


def test_a_namespace_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    with connect(tmp_path) as opened:
        opened.create_namespace("bad", {"a": "1"})
        opened.create_namespace("good")
        [record] = (tmp_path / "bad" / ".namespace").glob("*.json")
        record.chmod(0o644)
        record.write_text("{")
        assert opened.namespaces() == ["bad", "good"]
    with asked(tmp_path) as client:
        assert client.get("/v1/namespaces").json()["namespaces"] == [["bad"], ["good"]]
        said = client.get("/v1/namespaces/bad")
        assert (said.status_code, "namespace-unreadable" in said.text) == (500, True)
