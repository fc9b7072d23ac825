"""The smallest coordinator: commits what is on a log, root by root, with a `TableBuilder` for each table."""

from __future__ import annotations

from rootline.ports.intent_log import IntentLog
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.identifiers import by_name
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import Record
from tests.maintenance.table_builder import TableBuilder


class LogCoordinator:
    """Decides the intents of `builders` in the log's order."""

    def __init__(self, log: IntentLog, *builders: TableBuilder) -> None:
        self._log = log
        self._builders = {str(builder.table): builder for builder in builders}
        self._next = 0

    async def publish(self, intent: Intent) -> None:
        await self._log.publish(intent.table.encode(), encode_intent(intent))

    async def decide(self, *, wait_s: float = 0.0) -> list[Verdict]:
        """One root for each intent that is there, or comes within `wait_s`; their verdicts, published."""
        verdicts: list[Verdict] = []
        for record in await self._log.read(self._next, limit=100, wait_s=wait_s):
            self._next = record.position.offset + 1
            intent = decode_intent(record.value, by_name(record.headers))
            builder = self._builders[intent.table]
            verdicts += await builder.apply_records([Record(record.position, intent, len(record.value))])
        await self._log.publish_verdicts(verdicts, [])
        return verdicts

    async def serve(self) -> None:
        """Decide until cancelled."""
        while True:
            await self.decide(wait_s=60.0)
