"""How far exports are behind, as it is shown to those who watch."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from rootline.catalog.export_memory import ExportCost
from rootline.catalog.rest.catalog import TABLES_MAX, CatalogMetrics
from rootline.schemas.identifiers import TableName, Version

TABLE = TableName("a.b")


@pytest.fixture
def metrics() -> CatalogMetrics:
    return CatalogMetrics(CollectorRegistry())


def exported(metrics: CatalogMetrics, version: int, table: TableName = TABLE, puts: int = 1) -> None:
    metrics.exported(table, Version(version), ExportCost(lists=1, gets=2, puts=puts), 0.5)


def lag(metrics: CatalogMetrics, now_ms: int, table: TableName = TABLE) -> float | None:
    metrics.measure(now_ms)
    return metrics.registry.get_sample_value("rootline_export_lag_seconds", {"table": table})


def test_a_table_that_nobody_reads_has_no_lag(metrics: CatalogMetrics) -> None:
    metrics.head_seen(TABLE, Version(3), 1_000)
    assert lag(metrics, 9_000) is None


def test_the_lag_counts_from_the_first_version_that_was_seen_and_not_exported(metrics: CatalogMetrics) -> None:
    exported(metrics, 3)
    assert lag(metrics, 9_000) == 0
    metrics.head_seen(TABLE, Version(3), 1_000)
    assert lag(metrics, 9_000) == 0
    metrics.head_seen(TABLE, Version(4), 10_000)
    metrics.head_seen(TABLE, Version(5), 11_000)
    assert lag(metrics, 12_000) == 2
    exported(metrics, 4)
    assert lag(metrics, 13_000) == 3, "a newer one waits still"
    exported(metrics, 5)
    assert lag(metrics, 14_000) == 0
    metrics.head_seen(TABLE, Version(5), 11_000)
    assert lag(metrics, 15_000) == 0


def test_a_table_whose_commits_are_not_seen_any_more_has_no_lag(metrics: CatalogMetrics) -> None:
    other = TableName("a.c")
    exported(metrics, 3)
    exported(metrics, 3, other)
    metrics.measure(9_000, {TABLE: (Version(4), 5_000), other: (Version(3), 1_000)})
    sample = metrics.registry.get_sample_value
    assert sample("rootline_export_lag_seconds", {"table": TABLE}) == 4
    metrics.measure(10_000, {other: (Version(3), 1_000)})
    assert sample("rootline_export_lag_seconds", {"table": TABLE}) is None, "another coordinator has it now"
    assert sample("rootline_export_lag_seconds", {"table": other}) == 0


def test_an_export_that_is_ahead_of_what_was_seen_is_not_late(metrics: CatalogMetrics) -> None:
    exported(metrics, 3)
    metrics.head_seen(TABLE, Version(4), 10_000)
    exported(metrics, 6)
    metrics.head_seen(TABLE, Version(5), 11_000)
    assert lag(metrics, 20_000) == 0


def test_a_clock_that_is_behind_the_stores_makes_no_lag_below_zero(metrics: CatalogMetrics) -> None:
    exported(metrics, 3)
    metrics.head_seen(TABLE, Version(4), 10_000)
    assert lag(metrics, 9_000) == 0


def test_only_so_many_tables_have_a_label(metrics: CatalogMetrics) -> None:
    for number in range(TABLES_MAX + 5):
        exported(metrics, 1, TableName(f"a.t{number}"))
    assert lag(metrics, 1, TableName(f"a.t{TABLES_MAX - 1}")) == 0
    assert lag(metrics, 1, TableName(f"a.t{TABLES_MAX}")) is None


def test_only_makings_are_timed_and_all_requests_counted(metrics: CatalogMetrics) -> None:
    exported(metrics, 1, puts=3)
    exported(metrics, 1, puts=0)
    sample = metrics.registry.get_sample_value
    assert sample("rootline_export_seconds_count") == 1
    assert sample("rootline_export_requests_total", {"kind": "list"}) == 2
    assert sample("rootline_export_requests_total", {"kind": "put"}) == 3
