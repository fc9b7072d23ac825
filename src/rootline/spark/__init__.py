"""Rootline as a Spark data source: `spark.dataSource.register(rootline.spark.RootlineDataSource)`.

Owns: `format("rootline")` for batch reads, batch writes and streaming writes; changes of rows. Does not own: planning,
statistics, publishing (the library's own rooms do it).
Invariants: importing this package imports Spark only when one of its names is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rootline.spark.data_source import RootlineDataSource, register
    from rootline.spark.row_changes.statements import RowsChanged, delete_where, merge_into, update_where

__all__ = ["RootlineDataSource", "RowsChanged", "delete_where", "merge_into", "register", "update_where"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rootline.spark import data_source
        from rootline.spark.row_changes import statements

        return getattr(data_source, name, None) or getattr(statements, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
