"""A data file to add, described from an existing Parquet file.

Owns: reading such a file for its statistics and partition values. Does not own: writing files (`data_file_writer`),
adding them to a table.
Invariants: statistics are exact, gathered from every row, never taken from the file's own footer; a file whose rows
are of several partitions is refused.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client import checks
from rootline.client.write.column_statistics import ColumnPath, column_paths
from rootline.client.write.data_file_writer import FileDescriber, split_offsets_of
from rootline.client.write.partition_split import split_by_partition
from rootline.schemas import intent
from rootline.schemas.bytes.log.generic_statistics import to_generic
from rootline.schemas.errors import Invalid
from rootline.schemas.statistics import Bound
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.field_matching import finder_for
from rootline.storage.rows.parquet_file import open_parquet
from rootline.storage.rows.row_projection import RowProjection, initial_default


class DataFile(intent.DataFile):
    """A file to add to a table; its location is relative to the table's folder."""

    @classmethod
    def from_parquet(
        cls, location: str, schema: TableDefinition | Schema, *, source: str | Path | bytes | None = None
    ) -> DataFile:
        """Describe the Parquet file at `location`: rows, size, partition, and the statistics of every column.

        Args:
            location: the file's place below the table's folder, such as `data/one.parquet`.
            schema: the table's definition (`table.definition()`), or only its schema if the table is not partitioned.
            source: where to read the file from: a local path, or its bytes; without it, `location` is a local path.

        Returns:
            What `TableHandle.add_files` and an intent's `add_data_files` take. The file itself is not stored.

        Raises:
            Invalid: `file-unreadable`, it is no Parquet file of this schema; `rows-invalid`, its rows are not of one
                partition.

        """
        checks.text(location, "location")
        definition = schema if isinstance(schema, TableDefinition) else _unpartitioned(schema)
        if isinstance(source, bytes):
            body = source
        else:
            body = _read(Path(location if source is None else checks.place(source, "source")))
        parquet = open_parquet(body, location)
        fields = definition.schema.fields
        projection = RowProjection(
            finder_for(parquet.schema_arrow, definition.properties), initial_default, "file-unreadable", location
        )
        try:
            batches = [projection.columns(batch, fields) for batch in parquet.iter_batches()]
        except (pa.ArrowException, OSError) as error:
            raise Invalid("file-unreadable", f"{location}: cannot be decoded: {error}") from error
        rows = pa.Table.from_batches(batches, arrow_schema_of(definition.schema))
        paths = column_paths(definition.schema)
        values = _partition_of(rows, definition, paths, location)
        describer = FileDescriber(definition, paths)
        offsets = split_offsets_of(parquet.metadata)
        if isinstance(schema, TableDefinition):
            described = describer.data_file(location, rows, len(body), values, None, offsets)
            return cls(**{name: getattr(described, name) for name in type(described).model_fields})
        return cls(
            location=location,
            record_count=rows.num_rows,
            file_size_in_bytes=len(body),
            statistics=to_generic(describer.statistics(rows, values), definition.tracked_by_id),
            split_offsets=offsets or None,
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid("file-unreadable", f"{path}: {error.strerror or error}") from error


def _unpartitioned(given: Schema) -> TableDefinition:
    schema = checks.one_of(given, Schema, "schema", "the table's definition, or an Iceberg schema")
    return TableDefinition(
        table_uuid=uuid.UUID(int=0),
        schemas=(schema,),
        current_schema_id=schema.schema_id,
        expressions=(),
        partition_specs=(PartitionSpec(0),),
        default_spec_id=0,
        sort_orders=(),
        default_sort_order_id=0,
        last_column_id=schema.highest_field_id,
        properties={},
    )


def _partition_of(
    rows: pa.Table, definition: TableDefinition, paths: dict[int, ColumnPath], location: str
) -> dict[int, Bound | None]:
    spec = definition.spec_by_id(definition.default_spec_id)
    if not spec.expr_ids:
        return {}
    parts = list(split_by_partition(rows, definition, spec, paths))
    if len(parts) != 1:
        raise Invalid("rows-invalid", f"{location}: its rows are of {len(parts)} partitions; write one file for each")
    return parts[0].values
