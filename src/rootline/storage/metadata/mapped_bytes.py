"""Bytes of leaves that stay for long, out of the process's own memory.

Owns: a nameless temporary file for each, mapped. Does not own: what the bytes mean.
Invariants: the bytes are those that were given; the operating system may drop pages that no one reads and read them
again; the file goes with the last reference, and with the process; without room for it the bytes stay where they are.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import Final

import pyarrow as pa
import structlog

LEAST_BYTES: Final = 65_536
"""What is smaller stays in memory: a file and a mapping cost more."""


def mapped(body: bytes) -> bytes | pa.Buffer:
    """`body`, in a file if it is large; blocks while it is written."""
    if len(body) < LEAST_BYTES:
        return body
    try:
        with tempfile.TemporaryFile(prefix="rootline-leaf-") as file:
            file.write(body)
            file.flush()
            return pa.py_buffer(mmap.mmap(file.fileno(), len(body), prot=mmap.PROT_READ))
    except OSError as error:
        structlog.get_logger().warning(
            "no room for leaves on the temporary disk, so they stay in memory",
            action="free disk space, or set TMPDIR to another disk",
            folder=tempfile.gettempdir(),
            reason=str(error),
        )
        return body
