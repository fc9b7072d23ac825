"""Records for each path on which a verdict can come.

Owns: the records. Does not own: where they are sent, what becomes of them (`test_accounts`).
Invariants: each says what it must hear; records of one table are sent in the order given here.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedLocations
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind, Isolation, RemovedFile, StoredPage
from rootline.schemas.location_hashes import LocationHashes
from rootline.schemas.object_keys import key_of
from tests.coordinator.running_service import append_intent, create_intent

MAIN, DROPPED, OLD = TableName("a.b"), TableName("d.d"), TableName("o.o")
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True)
class Sent:
    """A record, and what it must hear."""

    key: bytes | None
    value: bytes
    expected: str
    oldest_file_ms: int | None = None
    content: bytes | None = None


def uuid_of(table: TableName) -> uuid.UUID:
    """That of `create_intent`."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, table)


def records(page: StoredPage) -> list[Sent]:
    """Everything that a table's own head decides, and what no table is asked about."""
    first = append_intent("first", MAIN, writer_id="w", writer_sequence=1)
    other = append_intent("other", MAIN, writer_id="w", writer_sequence=1)
    gone = {"kind": IntentKind.REMOVE, "remove_files": (RemovedFile(location="data/none.parquet"),)}
    read = {"isolation": Isolation.SERIALIZABLE, "read_sequence_number": 0, "filter": "id > 0"}
    drop = Intent(intent_id="drop", table=DROPPED, kind=IntentKind.DROP, table_uuid=uuid_of(DROPPED), read_version=0)
    made_again = create_intent(DROPPED).model_copy(
        update={"intent_id": "again", "definition": create_intent(TableName("another.one")).definition}
    )
    sweep = Intent(
        intent_id="sweep",
        table=OLD,
        kind=IntentKind.SWEEP,
        page=page,
        made_from_version=0,
        read_sequence_number=0,
    )
    return [
        _sent(first, "committed", content=b"one"),
        _sent(first, "duplicate", content=b"one"),
        _sent(other, "sequence-reused", content=b"two"),
        _sent(append_intent("isolated", MAIN, **read), "isolation-conflict"),
        _sent(Intent(intent_id="gone", table=MAIN, **gone), "file-not-live"),
        _sent(append_intent("outside", MAIN, location="../x"), "location-invalid"),
        _sent(append_intent("elsewhere", MAIN, table_uuid=uuid.UUID(int=1)), "table-uuid-mismatch"),
        _sent(append_intent("lost", "no.such"), "table-unknown"),
        _sent(create_intent(MAIN).model_copy(update={"intent_id": "twice"}), "table-exists"),
        _sent(drop, "committed"),
        _sent(append_intent("dropped", DROPPED), "table-uuid-missing"),
        _sent(made_again, "committed"),
        _sent(append_intent("unnamed", DROPPED), "table-uuid-missing"),
        _sent(sweep, "committed"),
        _sent(append_intent("too-old", OLD), "expired", oldest_file_ms=1),
        Sent(b"a.b", b"junk", "undecodable"),
        Sent(None, b"", "undecodable"),
        Sent(b"d.d", encode_intent(append_intent("wrong-key", MAIN)), "intent-malformed"),
        Sent(b"???", encode_intent(append_intent("no-name", "no name")), "table-name-invalid"),
    ]


async def stored_page(store: ObjectStore) -> StoredPage:
    """A page that sets the horizon of `OLD`, sixty days ago."""
    horizon_ms = int(time.time() * 1000) - 60 * _DAY_MS
    page, body = CONDEMNED_PAGES.encode(uuid_of(OLD), CondemnedLocations(horizon_ms, LocationHashes.of(())))
    reference = page.reference
    await store.put_if_absent(key_of(OLD, reference.location), body)
    return StoredPage(location=reference.location, digest=reference.digest, file_size_in_bytes=len(body))


def _sent(intent: Intent, expected: str, *, oldest_file_ms: int | None = None, content: bytes | None = None) -> Sent:
    return Sent(intent.table.encode(), encode_intent(intent), expected, oldest_file_ms, content)
