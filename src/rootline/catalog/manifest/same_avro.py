"""The comparison of the contents of two Avro files.

Owns: the comparison. Does not own: taking files apart (`foreign_avro`), what the files mean (the encoders).
Invariants: a file that cannot be read is never the same as another; how blocks are cut and compressed does not count.
"""

from __future__ import annotations

from typing import Any

from rootline.schemas.bytes.foreign_avro import BROKEN, ForeignAvro


def same_avro(stored: bytes, made: bytes) -> bool:
    """Whether both have the same schema, the same metadata and the same records."""
    try:
        return _said(stored) == _said(made)
    except BROKEN:
        return False


def _said(body: bytes) -> tuple[Any, ...]:
    file = ForeignAvro.of(body)
    metadata = {key: value for key, value in file.metadata.items() if key != "avro.codec"}
    return metadata, [repr(record) for records in file.blocks() for record in records]  # the text of NaN equals itself
