"""A coordinator or a worker whose clock and whose log's append times run fast: a process of its own.

Owns: composing the service from the product's parts, as `rootline coordinator` and `rootline worker` do, with another
clock behind the port. Does not own: the store's dates (`fast_dates`).
Invariants: the services, their rules and their retentions are the product's own; it ends cleanly when it is asked to.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog
from rootline.adapters.open import kafka_settings, open_log_keeps, open_remover, open_store, open_writer_log
from rootline.adapters.settings import KafkaSettings
from rootline.cli.service_process import log_to_stderr, signals
from rootline.client.data_file_writer import write_rewritten_files
from rootline.coordinator.app import CoordinatorService
from rootline.ports.intent_feed import Delivered, FeedEvent, Reread
from rootline.schemas.identifiers import LogRecord
from rootline.schemas.parts.log import PartitionOffset
from rootline.workers.app import WorkerService
from tests.services.constant_ingest.fast_clock import FastClock, FastEnvironment

CLOCK: Final = "CONSTANT_INGEST_CLOCK"
"""The variable that names the clock's file."""


class FastLog(KafkaCoordinatorLog):
    """Kafka, whose broker appends by the fast clock."""

    def __init__(self, settings: KafkaSettings, clock: FastClock) -> None:
        super().__init__(settings)
        self._clock = clock

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """As `IntentFeed.next`."""
        event = await super().next(wait_s=wait_s, deliver=deliver)
        if not isinstance(event, Delivered):
            return event
        return Delivered(self._dated(event.records), event.at_end, event.passed)

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """As `IntentFeed.read_again`."""
        found = await super().read_again(reader, start, limit=limit)
        return Reread(self._dated(found.records), found.next_offset)

    def _dated(self, records: tuple[LogRecord, ...]) -> tuple[LogRecord, ...]:
        return tuple(record._replace(appended_ms=self._clock.at(record.appended_ms)) for record in records)


async def serve(role: str) -> None:
    """Until a signal."""
    warehouse, url = os.environ["ROOTLINE_WAREHOUSE"], os.environ["ROOTLINE_LOG"]
    clock = FastClock(Path(os.environ[CLOCK]))
    environment = FastEnvironment(clock)
    store = open_store(warehouse)
    service: CoordinatorService | WorkerService
    if role == "coordinator":
        service = CoordinatorService(store=store, log=FastLog(kafka_settings(url), clock), environment=environment)
    else:
        service = WorkerService(
            store=store,
            log=open_writer_log(url, warehouse),
            environment=environment,
            remover=open_remover(warehouse, store),
            keeps=open_log_keeps(url),
            write_rows=write_rewritten_files,
        )
    stop = asyncio.Event()
    with signals(stop):
        running, stopping = asyncio.ensure_future(service.run()), asyncio.ensure_future(stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        service.request_stop()
        await running


if __name__ == "__main__":
    log_to_stderr("info")
    asyncio.run(serve(sys.argv[1]))
