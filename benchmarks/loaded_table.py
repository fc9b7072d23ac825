"""`python -m benchmarks.loaded_table FOLDER`: load a table as a coordinator does, print how much memory is its own.

Owns: the load, in a process of its own. Does not own: the table (`large_table`).
Invariants: pages of mapped files are not counted, because the operating system takes them back when it needs them.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.sample_table import TABLE
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.coordinator.app import settle_memory
from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.storage.metadata.root_reader import find_head
from rootline.storage.metadata.table_loader import load_to_build_on


def anonymous_bytes(folder: Path) -> int:
    """The memory of a process that has loaded the table in `folder`."""
    command = [sys.executable, "-m", "benchmarks.loaded_table", str(folder)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}  # as in `deploy`
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


async def _loaded(folder: Path) -> int:
    store = LocalObjectStore(folder)
    head = await find_head(store, TABLE)
    assert head is not None
    state = await load_to_build_on(store, TABLE, head.version)
    assert state.find(EntryPlace(ContentType.DATA, "data/none.parquet")) is None
    held = _held_now()
    await store.close()
    return held


def _held_now() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    (held,) = (int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    return held


if __name__ == "__main__":
    settle_memory()  # like a coordinator's process
    print(asyncio.run(_loaded(Path(sys.argv[1]))))
