"""Rows as a data frame of a library that the user may have or not."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    import pandas
    import polars


def pandas_frame(rows: Callable[[], pa.Table]) -> pandas.DataFrame:
    """`rows` for pandas. Raises `Invalid` (`setting-invalid`) before they are read: it is not installed."""
    _installed("pandas")
    frame: pandas.DataFrame = rows().to_pandas()
    return frame


def polars_frame(rows: Callable[[], pa.Table]) -> polars.DataFrame:
    """`rows` for Polars. Raises `Invalid` (`setting-invalid`) before they are read: it is not installed."""
    library = _installed("polars")
    frame: polars.DataFrame = library.DataFrame(rows())
    return frame


def _installed(library: str) -> ModuleType:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Invalid(
            "setting-invalid",
            f"to_{library} needs {library}, which is not installed: {install_command(library)}",
        ) from error
