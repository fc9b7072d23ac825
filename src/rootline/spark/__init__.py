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
    name: module
    for module, names in {
        "added_folder": ["AddedFolder", "add_folder"],
        "compaction": ["Compaction", "compact"],
        "data_source": ["RootlineDataSource", "register"],
        "merge_statement": ["Merge", "merge", "merge_into"],
        "parquet_append": ["append", "batch_appender"],
        "row_change_job": ["RowsChanged"],
        "statements": ["delete_where", "update_where"],
        "stream_metrics": ["serve_metrics"],
        "table_frame": ["table"],
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ImportError as error:
        from rootline.schemas.distribution import install_command
        from rootline.schemas.errors import Invalid

        needed = f"rootline.spark needs PySpark 4.1 to 4.3 and pandas ({error}): {install_command('spark')}"
        raise Invalid("setting-invalid", needed) from error
