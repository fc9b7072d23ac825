"""Rootline as a Spark data source: `spark.dataSource.register(rootline.spark.RootlineDataSource)`.

Owns: `format("rootline")` for batch reads, batch writes and streaming writes; appends; changes of rows; maintenance on
the cluster. Does not own: planning, statistics, publishing (the library's own rooms do it).
Invariants: importing this package imports Spark only when one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rootline.spark.data_source import RootlineDataSource, register
    from rootline.spark.maintenance.added_folder import AddedFolder, add_folder
    from rootline.spark.maintenance.compaction import compact
    from rootline.spark.maintenance.group_runs import Compaction
    from rootline.spark.parquet_sink.append import append
    from rootline.spark.parquet_sink.stream_batches import batch_appender
    from rootline.spark.row_changes.change_job import RowsChanged
    from rootline.spark.row_changes.statements import delete_where, merge_into, update_where
    from rootline.spark.table_frame import table

__all__ = [
    "AddedFolder",
    "Compaction",
    "RootlineDataSource",
    "RowsChanged",
    "add_folder",
    "append",
    "batch_appender",
    "compact",
    "delete_where",
    "merge_into",
    "register",
    "table",
    "update_where",
]
_PLACES = {
    "AddedFolder": "maintenance.added_folder",
    "Compaction": "maintenance.group_runs",
    "RootlineDataSource": "data_source",
    "RowsChanged": "row_changes.change_job",
    "add_folder": "maintenance.added_folder",
    "append": "parquet_sink.append",
    "batch_appender": "parquet_sink.stream_batches",
    "compact": "maintenance.compaction",
    "delete_where": "row_changes.statements",
    "merge_into": "row_changes.statements",
    "register": "data_source",
    "table": "table_frame",
    "update_where": "row_changes.statements",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"rootline.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
