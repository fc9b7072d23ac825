"""Spark 4.1 with Iceberg, and tables that it wrote, once for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.iceberg_spark import IcebergSpark, running_iceberg_spark
from tests.engines.iceberg_tables import WrittenTable, write_tables


@pytest.fixture(scope="session")
def iceberg_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    """Iceberg as its authors make it."""
    with running_iceberg_spark(tmp_path_factory.mktemp("iceberg-spark")) as spark:
        yield spark


@pytest.fixture(scope="session")
def written_tables(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, WrittenTable]:
    """Tables of every format version that Iceberg wrote."""
    return write_tables(iceberg_spark, tmp_path_factory.mktemp("written"))
