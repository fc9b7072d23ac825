"""Rootline as a Spark data source: `spark.dataSource.register(rootline.spark.RootlineDataSource)`.

Owns: `format("rootline")` for batch reads, batch writes and streaming writes, appends, changes of rows, maintenance on
the cluster. Does not own: planning, statistics, publishing (other packages of the library).
Invariants: importing this package imports Spark only when one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rootline.spark.added_folder import AddedFolder, add_folder
    from rootline.spark.compaction import Compaction, compact
    from rootline.spark.data_source import RootlineDataSource, register
    from rootline.spark.merge_statement import Merge, merge, merge_into
    from rootline.spark.parquet_append import append, batch_appender
    from rootline.spark.row_change_job import RowsChanged
    from rootline.spark.statements import delete_where, update_where
    from rootline.spark.stream_metrics import serve_metrics
    from rootline.spark.table_frame import table

__all__ = [
    "AddedFolder",
    "Compaction",
    "Merge",
    "RootlineDataSource",
    "RowsChanged",
    "add_folder",
    "append",
    "batch_appender",
    "compact",
    "delete_where",
    "merge",
    "merge_into",
    "register",
    "serve_metrics",
    "table",
    "update_where",
]
_PLACES = {
    "AddedFolder": "added_folder",
    "Compaction": "compaction",
    "Merge": "merge_statement",
    "RootlineDataSource": "data_source",
    "RowsChanged": "row_change_job",
    "add_folder": "added_folder",
    "append": "parquet_append",
    "batch_appender": "parquet_append",
    "compact": "compaction",
    "delete_where": "statements",
    "merge": "merge_statement",
    "merge_into": "merge_statement",
    "register": "data_source",
    "serve_metrics": "stream_metrics",
    "table": "table_frame",
    "update_where": "statements",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"rootline.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
