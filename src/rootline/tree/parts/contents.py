"""Content digests of a table's newest intents, to detect a sequence that a writer reuses for other data.

Owns: the digests that are recorded. Does not own: the rejection (`rootline.tree.commit.decide`), a writer's header
(`rootline.schemas.bytes.record_headers`), the bytes (`rootline.schemas.parts.ledger`).
Invariants: At most the `CONTENTS_MAX` newest digests are recorded. An intent without a recorded digest is never
reported as reused.

Source: decision 0012.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.bytes.record_headers import kept_of, said_in
from rootline.schemas.identifiers import Headers
from rootline.schemas.intent import Intent
from rootline.schemas.parts.ledger import ContentDigest

CONTENTS_MAX: Final = 64


class ContentDraft:
    """The content digests while a batch is applied: the parent's, and the batch's."""

    def __init__(self, parent: tuple[ContentDigest, ...]) -> None:
        self._kept = parent

    def committed(self, intent: Intent, headers: Headers) -> None:
        """Record the content digest of a committed intent, if its writer stated one."""
        new = _kept(intent, headers)
        if new is not None:
            self._kept = (*self._kept, new)[-CONTENTS_MAX:]

    def is_another(self, intent: Intent, headers: Headers) -> bool:
        """Whether the writer and sequence of `intent` were committed with another content digest than this record's."""
        new = _kept(intent, headers)
        return new is not None and any(old.pair == new.pair and old != new for old in self._kept)

    def finished(self) -> tuple[ContentDigest, ...]:
        """The content digests of the next root."""
        return self._kept


def _kept(intent: Intent, headers: Headers) -> ContentDigest | None:
    value = said_in(headers) if headers else None
    if value is None or intent.writer_id is None or intent.writer_sequence is None:
        return None
    return ContentDigest(*kept_of(intent.writer_id, intent.writer_sequence, value))
