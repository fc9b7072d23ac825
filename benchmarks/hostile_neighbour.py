"""A neighbour that sends what no one should send, all the time.

Owns: what is sent, how often. Does not own: what others wait meanwhile (`thousand_tables`).
Invariants: it sends until it is cancelled, about as often in each phase; nothing that it sends is committed; what it
sends is made before, so that it takes no time of the writers beside it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Final

from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile
from tests.kafka.hostile_batches import CODECS, MEBIBYTE, batch_of, compressed, put, record_of_zeros

_PAUSE_S: Final = 0.1
_BOMB_EVERY: Final = 10
_BOMB_MIB: Final = 200
_LARGE_BYTES: Final = 900_000
_FILES: Final = 1_000
_MARK: Final = "<<number>>"
_DIGITS: Final = len(_MARK)


class Hostile:
    """Sends junk, intents that are rejected, large ones, tables that do not exist, and batches that are bombs.

    `table` exists and is its own: what it sends there is rejected for a wrong schema, for files that are not in the
    table, for a sequence that changed its content.
    """

    def __init__(self, settings: KafkaSettings, table: TableName) -> None:
        self._settings, self._table = settings, table
        self._log = KafkaWriterLog(settings)
        self._numbers = itertools.count()
        self._records = _records(table)
        self._large = os.urandom(_LARGE_BYTES)
        zstd = CODECS["zstd"]
        self._bomb = batch_of(zstd, compressed(zstd, record_of_zeros(_BOMB_MIB * MEBIBYTE, key=b"bomb")))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            number = next(self._numbers)
            own = f"{number:0{_DIGITS}d}".encode()
            for key, value in self._records:
                await self._log.publish(key.replace(_MARK.encode(), own), value.replace(_MARK.encode(), own))
            if number % _BOMB_EVERY == _BOMB_EVERY // 2:
                await self._log.publish(self._table.encode(), self._large)
            if number % _BOMB_EVERY == 0:
                await put(self._settings, (self._bomb, 1), partition=number % 4)
            await asyncio.sleep(_PAUSE_S)

    async def close(self) -> None:
        """Give back connections."""
        await self._log.close()


def _records(own: TableName) -> list[tuple[bytes, bytes]]:
    """Of one round; a number takes the place of `_MARK`."""
    absent = tuple(RemovedFile(location=f"data/absent-{_MARK}-{each}.parquet") for each in range(_FILES))
    intents = [
        _append(TableName(f"nowhere.table{_MARK}")),
        _append(own, schema_id=9),
        _append(own, kind=IntentKind.OVERWRITE, remove_files=absent),
        _append(own, schema_id=9, writer_id="hostile", writer_sequence=1),
    ]
    records = [(intent.table.encode(), encode_intent(intent)) for intent in intents]
    return [*records, (own.encode(), records[1][1][:-7]), (b"junk", os.urandom(200))]


def _append(table: TableName, **changes: object) -> Intent:
    added = DataFile(location=f"data/hostile-{_MARK}.parquet", record_count=10, file_size_in_bytes=100)
    usual = {"intent_id": f"hostile-{_MARK}", "table": table, "kind": IntentKind.APPEND, "add_data_files": (added,)}
    return Intent.model_validate(usual | changes)
