"""What the newest intents of a table held, as their writers said: so that a sequence used again for other data shows.

Owns: which are remembered. Does not own: what follows (`rootline.tree.commit.decide`), what a writer says
(`rootline.schemas.bytes.record_headers`), the bytes (`header_codec`).
Invariants: at most `CONTENTS_MAX`, the newest; of what is forgotten, or was never said, nothing is claimed.

Source: decision 0012.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.bytes.record_headers import kept_of, said_in
from rootline.schemas.identifiers import Headers
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import ContentDigest

CONTENTS_MAX: Final = 64


class ContentDraft:
    """The contents while a batch is applied: the parent's, and those of the batch."""

    def __init__(self, parent: tuple[ContentDigest, ...]) -> None:
        self._kept = parent

    def committed(self, intent: Intent, headers: Headers) -> None:
        """Remember what a committed intent said that it holds, if it did."""
        new = _kept(intent, headers)
        if new is not None:
            self._kept = (*self._kept, new)[-CONTENTS_MAX:]

    def is_another(self, intent: Intent, headers: Headers) -> bool:
        """Whether the pair of `intent` was committed with another content than the one that this record says."""
        new = _kept(intent, headers)
        return new is not None and any(old.pair == new.pair and old != new for old in self._kept)

    def finished(self) -> tuple[ContentDigest, ...]:
        """The next root's."""
        return self._kept


def _kept(intent: Intent, headers: Headers) -> ContentDigest | None:
    value = said_in(headers) if headers else None
    if value is None or intent.writer_id is None or intent.writer_sequence is None:
        return None
    return ContentDigest(*kept_of(intent.writer_id, intent.writer_sequence, value))
