"""A lake with a catalog that writes, for tests that change it as engines do.

Owns: both, the shape of requests, the columns of tables in them. Does not own: how a catalog is served
(`tests.catalog.served_catalog`).
Invariants: the lake is open while the catalog runs, because its embedded coordinator commits the catalog's intents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rootline.client.lake import Lake
from rootline.connect import connect
from tests.catalog.served_catalog import served

COLUMNS: list[dict[str, Any]] = [
    {"id": 7, "name": "id", "type": "long", "required": True},
    {"id": 3, "name": "ts", "type": "timestamp", "required": False},
]
SCHEMA: dict[str, Any] = {"type": "struct", "schema-id": 5, "fields": COLUMNS}


@dataclass(frozen=True)
class WritingCatalog:
    """A running catalog, the lake behind it, and a client of its warehouse `own`."""

    url: str
    lake: Lake
    client: httpx.Client

    def create(self, namespace: str, **body: Any) -> httpx.Response:
        """The response for a request to create a table."""
        return self.client.post(f"/namespaces/{namespace}/tables", json=body)

    def commit(self, table: str, updates: list[Any], requirements: list[Any] | None = None) -> httpx.Response:
        """The response for a commit to `namespace.table`."""
        namespace, _, name = table.rpartition(".")
        body = {"requirements": requirements or [], "updates": updates}
        return self.client.post(f"/namespaces/{namespace}/tables/{name}", json=body)

    def load(self, table: str) -> dict[str, Any]:
        """The metadata of `namespace.table`."""
        namespace, _, name = table.rpartition(".")
        found: dict[str, Any] = self.client.get(f"/namespaces/{namespace}/tables/{name}").json()["metadata"]
        return found


@contextmanager
def writing_catalog(folder: Path, *, warehouse: str = "own") -> Iterator[WritingCatalog]:
    """A lake in `folder` with the namespace `demo`, and its catalog."""
    with connect(folder) as lake:
        lake.create_namespace("demo")
        with served(folder, log="") as url, httpx.Client(base_url=f"{url}/v1/{warehouse}", timeout=60) as client:
            yield WritingCatalog(url, lake, client)


def problem(response: httpx.Response) -> tuple[int, str]:
    """The status and the message of an error."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return response.status_code, error["message"]
