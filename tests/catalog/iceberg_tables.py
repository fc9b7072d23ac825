"""Tables that PyIceberg writes into a folder, as any of its catalogs would have it write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import update_table_metadata


class FolderCatalog(NoopCatalog):
    """Of one table at a time: each commit writes the next metadata JSON into the table's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("folder")
        self.folder = folder
        self._written = 0

    def make(
        self,
        name: str,
        schema: Schema,
        *,
        format_version: int,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """An empty table in a folder of its own."""
        location = (self.folder / name).as_uri()
        given = {**(properties or {}), TableProperties.FORMAT_VERSION: str(format_version)}
        metadata = new_table_metadata(schema, spec, order, location, given)
        return Table(("db", name), metadata, self._write(metadata), load_file_io({}, location), self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        return CommitTableResponse(metadata=metadata, metadata_location=self._write(metadata))

    def _write(self, metadata: TableMetadata) -> str:
        self._written += 1
        location = f"{metadata.location}/metadata/{self._written:05}.metadata.json"
        io = load_file_io({}, location)
        ToOutputFile.table_metadata(metadata, io.new_output(location))
        return location


def rows_of(table: pa.Table, key: str = "id") -> dict[Any, dict[str, Any]]:
    """Row by its key; a key that occurs twice is a bug of the reader."""
    found = {row[key]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found
