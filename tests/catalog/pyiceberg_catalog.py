"""PyIceberg's client of a REST catalog, for tests.

Owns: opening it so that nothing is left open. Does not own: the catalog.
Invariants: format 3 unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog


@contextmanager
def catalog_at(url: str, warehouse: str = "v3", **options: str) -> Iterator[RestCatalog]:
    """PyIceberg's catalog, closed at the end."""
    catalog = RestCatalog("rootline", uri=url, warehouse=warehouse, **options)
    try:
        yield catalog
    finally:
        catalog.close()
        catalog._session.close()


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Its rows, in an order of their own."""
    return sorted(table.to_pylist(), key=lambda row: row["id"])
