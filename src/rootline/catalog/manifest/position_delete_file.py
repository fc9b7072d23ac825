"""Position delete files as V2 has them, each of one data file.

Owns: the bytes. Does not own: which rows are deleted (`converted_deletes`), reading such files
(`rootline.storage.rows.row_deletes`).
Invariants: the columns carry the reserved ids and are required; rows are sorted by path, then position, and none occurs
twice; the same rows and the same library make the same bytes; footers hold the full path as both bounds.

Source: the Iceberg specification, "Position Delete Files".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rootline.schemas.field_ids import DELETE_FILE_PATH, DELETE_FILE_POS
from rootline.storage.rows.arrow_types import FIELD_ID_KEY

ROW_GROUP_ROWS: Final = 1_048_576
_PATHS: Final = pa.dictionary(pa.int32(), pa.string())
"""In memory only, where the one path is held once; the file's column is of strings."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", _PATHS, nullable=False, metadata={FIELD_ID_KEY: str(DELETE_FILE_PATH).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID_KEY: str(DELETE_FILE_POS).encode()}),
    ]
)


def encode_position_deletes(path: str, positions: BitMap64) -> bytes:
    """The file that deletes the rows `positions`, at least one, of the data file `path`."""
    numbers = np.asarray(positions.to_array(), dtype=np.int64)  # ascending
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["file_path"],
        write_statistics=True,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for start in range(0, len(numbers), ROW_GROUP_ROWS):
            part = numbers[start : start + ROW_GROUP_ROWS]
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(part), dtype=np.int32), pa.array([path], pa.string()))
            writer.write_table(pa.Table.from_arrays([paths, pa.array(part)], schema=_SCHEMA), ROW_GROUP_ROWS)
    body: bytes = sink.getvalue().to_pybytes()
    return body
