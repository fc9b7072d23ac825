"""The catalog of a bucket: engines are told how it is reached, and read it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import connect
from tests.catalog.pyiceberg_catalog import catalog_at, rows
from tests.catalog.served_catalog import asked
from tests.cli.test_service_commands import service
from tests.services.s3_service import S3Service

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
pytestmark = [pytest.mark.services, pytest.mark.slow]


@pytest.fixture
def warehouse(s3_service: S3Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh prefix of the test's bucket, reached as the environment says."""
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", s3_service.endpoint)
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", s3_service.access_key_id)
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", s3_service.secret_access_key)
    return f"s3://{s3_service.bucket}/catalog-{uuid.uuid4().hex}"


def test_an_engine_with_the_token_reads_a_bucket_without_keys_of_its_own(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTLINE_CATALOG__TOKEN", "a-word")
    monkeypatch.setenv("ROOTLINE_CATALOG__SHARE_S3_KEYS", "true")
    log = f"sqlite://{tmp_path}/log"
    with (
        service("coordinator", "--warehouse", warehouse, "--log", log) as (_, said),
        connect(warehouse, log=log) as lake,
    ):
        table = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
        table.append({"id": [1, 2], "carrier": ["UA", "AA"], "delay": [5.0, None]})
        for name in ("ROOTLINE_S3__ACCESS_KEY_ID", "ROOTLINE_S3__SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        with catalog_at(said["url"], token="a-word") as catalog:
            found = catalog.load_table("demo.flights")
            assert found.metadata_location.startswith(f"{warehouse}/demo/flights/export/v3/")
            assert rows(found.scan().to_arrow()) == rows(table.scan().to_arrow())
            table.append({"id": [3], "carrier": ["DL"], "delay": [1.0]})
            assert rows(found.refresh().scan().to_arrow()) == rows(table.scan().to_arrow())


def test_keys_are_kept_unless_a_setting_says_otherwise(warehouse: str, s3_service: S3Service, tmp_path: Path) -> None:
    log = f"sqlite://{tmp_path}/log"
    with service("coordinator", "--warehouse", warehouse, "--log", log), connect(warehouse, log=log) as lake:
        lake.create_table("demo.t", pa.schema([("id", pa.int64())]))
    with asked(warehouse) as client:
        answer = client.get("/v1/v3/namespaces/demo/tables/t")
        assert answer.json()["config"] == {
            "s3.endpoint": s3_service.endpoint,
            "s3.path-style-access": "true",
            "s3.region": "us-east-1",
            "client.region": "us-east-1",
            "s3.delete-enabled": "false",
        }
        assert s3_service.secret_access_key not in answer.text
