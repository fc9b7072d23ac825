"""Looks at the data files of records that still wait, so that none is looked at when its batch closes.

Owns: which files are looked at ahead, and how many. Does not own: looking (`rootline.storage.rows.file_footers`), which
files must be looked at (`rootline.tree.rules.verified_files`).
Invariants: only that a file is sound is remembered; whatever else came of a look is found out again when the batch
needs it, so a file that was stored late, or a store that was away, rejects no intent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.file_footers import FooterReader
from rootline.tree.draft.batch import Record
from rootline.tree.proof.file_verification import StatedFile, verifies_files
from rootline.tree.rules.verified_files import is_in_place, stated

FILES_AHEAD_MAX: Final = 4_096


class FooterPrefetch:
    """The files of one table's waiting records."""

    def __init__(self, store: ObjectStore, table: TableName) -> None:
        self.reader = FooterReader(store, table)
        self._table = table
        self._looks: dict[StatedFile, asyncio.Task[bool]] = {}

    def expect(self, records: Iterable[Record], definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        """Begin to look at the files that `records` name, if the table asks for it and as far as there is room."""
        if definition is None or not verifies_files(definition):
            return
        for record in records:
            for file in map(stated, record.intent.add_data_files):
                if len(self._looks) >= FILES_AHEAD_MAX:
                    return
                if file not in self._looks and is_in_place(file):
                    self._looks[file] = tasks.create_task(self._look(file), name=f"looking at {file.location}")

    def keep(self, records: Sequence[Record]) -> None:
        """Forget files that no record of these names: when none waits any more, or when there is no more room."""
        if not self._looks or (records and len(self._looks) < FILES_AHEAD_MAX):
            return
        named = {stated(file) for record in records for file in record.intent.add_data_files}
        for file in self._looks.keys() - named:
            self._looks.pop(file).cancel()

    async def fault_of(self, file: StatedFile) -> Invalid | None:
        """As the reader says, which is asked only if no look ahead found the file sound. Raises `Unavailable`."""
        look = self._looks.pop(file, None)
        if look is not None:
            await asyncio.wait({look})
            if not look.cancelled() and look.result():
                return None
        return await self.reader.fault_of(file)

    async def _look(self, file: StatedFile) -> bool:
        try:
            return await self.reader.fault_of(file) is None
        except (RootlineError, TimeoutError):
            return False
        except Exception:  # a bug of ours or of a store's must not end the table's task
            structlog.get_logger().exception("file not looked at ahead", action="retry", table=self._table)
            return False


__all__ = ["FILES_AHEAD_MAX", "FooterPrefetch"]
