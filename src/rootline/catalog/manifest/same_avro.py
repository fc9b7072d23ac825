"""Whether two Avro files say the same.

Owns: the comparison. Does not own: what the files mean (the encoders).
Invariants: a file that cannot be read is never the same as another; how blocks are cut and compressed does not count.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro


def same_avro(stored: bytes, made: bytes) -> bool:
    """Whether both have the same schema, the same metadata and the same records."""
    try:
        return _said(stored) == _said(made)
    except Exception:  # fastavro raises anything on foreign bytes
        return False


def _said(body: bytes) -> tuple[Any, ...]:
    reader = fastavro.reader(io.BytesIO(body))
    metadata = {key: value for key, value in reader.metadata.items() if key != "avro.codec"}
    return metadata, [repr(record) for record in reader]  # the text of NaN equals itself
