"""What a writer says that its intent holds: a digest beside the record, never in it.

Owns: the header's name, how our own clients make its value, what a root keeps of it. Does not own: which roots
remember it (`rootline.tree.ledger.contents`), how logs carry it (a header on Kafka, a column of the embedded log).
Invariants: the same content gives the same value in every version; a record without it is decided as ever; nothing but
equality is read from it.

Source: decision 0057.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from rootline.schemas.intent import Intent
from rootline.schemas.intent_kinds import CARGO
from rootline.schemas.log_position import Headers

CONTENT_HEADER: Final = "rootline.content"
_VALUE_BYTES: Final = 16
_KEPT_BYTES: Final = 8
_WHAT_IT_DOES: Final = {"kind", *CARGO}


def content_of_intent(intent: Intent) -> str:
    """What `intent` does: its kind and what it carries; not its ids, what was read, nor its summary."""
    return intent.model_dump_json(include=_WHAT_IT_DOES, exclude_defaults=True)


def stated(content: str) -> bytes | None:
    """The value for a record whose writer says `content`; `None` where it says nothing."""
    return sha256(content.encode()).digest()[:_VALUE_BYTES].hex().encode() if content else None


def content_headers(value: bytes | None = None) -> Headers:
    """The headers that say it."""
    return ((CONTENT_HEADER, value),) if value else ()


def said_in(headers: Headers) -> bytes | None:
    """What a record says of its content, if it says anything."""
    return next((value for name, value in reversed(headers) if name == CONTENT_HEADER), None) or None


def kept_of(writer: str, sequence: int, value: bytes) -> tuple[bytes, bytes]:
    """(the pair, the content) as a root keeps them, 8 bytes each."""
    pair = sha256(f"{sequence}/{writer}".encode(errors="surrogatepass")).digest()
    return pair[:_KEPT_BYTES], sha256(value).digest()[:_KEPT_BYTES]
