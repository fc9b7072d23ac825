"""The access that manual maintenance needs: a remover of the warehouse, the retention of its log, and a writer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from rootline.adapters.open import open_log_keeps, open_remover
from rootline.client.data_file_writer import write_rewritten_files
from rootline.ports.object_store import ObjectStore
from rootline.workers.kinds import Rights


@contextlib.asynccontextmanager
async def rights_of(warehouse: str, log: str | None, store: ObjectStore) -> AsyncIterator[Rights]:
    """Open the rights for a warehouse whose `store` is open. Raises `Invalid` (`setting-invalid`)."""
    remover = open_remover(warehouse, store)
    try:
        yield Rights(remover, open_log_keeps(log), write_rewritten_files)
    finally:
        await remover.close()
