"""Which writer an intent is of, and its number among that writer's intents for the table: what makes a retry safe.

Owns: making writer ids and counting per table. Does not own: the ledger that the pair is checked against
(`rootline.tree.ledger.ledger`).
Invariants: a number is never given twice under one id; an intent that carries a pair keeps it; a forked child writes
under an id of its own.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import defaultdict

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import PROCESS_WRITER_PREFIX, Intent


class WriterStamp:
    """Stamps intents; thread-safe. With a supplied `writer_id` the caller counts, without one this does, from 0."""

    def __init__(self, writer_id: str | None = None) -> None:
        if writer_id is not None and not 1 <= len(writer_id) <= 256:
            raise Invalid("setting-invalid", f"writer_id must have 1 to 256 characters, not {len(writer_id)}")
        if writer_id is not None and writer_id.startswith(PROCESS_WRITER_PREFIX):
            raise _reserved(writer_id)
        self._supplied = writer_id
        self._mint()

    @property
    def is_supplied(self) -> bool:
        """Whether the caller named the writer, and counts."""
        return self._supplied is not None

    def _mint(self) -> None:
        self._guard = threading.Lock()
        self._minted = f"{PROCESS_WRITER_PREFIX}{uuid.uuid4()}"
        self._next: defaultdict[str, int] = defaultdict(int)
        self._process = os.getpid()

    def stamp(self, intent: Intent, writer_sequence: int | None = None) -> Intent:
        """`intent` with a writer and a sequence.

        Raises:
            Invalid: `setting-invalid`, the id was supplied without a sequence, or the other way round, or the intent
                carries another pair, or a `process/` id that no producer made.

        """
        if intent.writer_id is not None:
            _check_minted(intent.writer_id)
            self._check_carried(intent, writer_sequence)
            return intent
        if self._supplied is None:
            if writer_sequence is not None:
                raise Invalid(
                    "setting-invalid",
                    "writer_sequence needs a writer_id: open the producer with one, or leave the sequence out",
                )
            writer_id, writer_sequence = self._count(intent.table)
        elif writer_sequence is None:
            raise Invalid(
                "setting-invalid",
                f"writer {self._supplied!r}: give the intent's number: publish(intent, writer_sequence=n)",
            )
        else:
            writer_id = self._supplied
        if not 0 <= writer_sequence < 2**63:
            raise Invalid("setting-invalid", f"writer_sequence {writer_sequence} is outside 0..2^63-1")
        return intent.model_copy(update={"writer_id": writer_id, "writer_sequence": writer_sequence})

    def _check_carried(self, intent: Intent, writer_sequence: int | None) -> None:
        if self._supplied not in (None, intent.writer_id) or writer_sequence not in (None, intent.writer_sequence):
            raise Invalid(
                "setting-invalid",
                f"intent {intent.intent_id} carries writer {intent.writer_id!r}, sequence {intent.writer_sequence}, "
                f"not {self._supplied!r}, {writer_sequence}; publish it under its own pair",
            )

    def _count(self, table: str) -> tuple[str, int]:
        if self._process != os.getpid():
            self._mint()  # a forked child: the parent goes on counting under its id, and may have held the lock
        with self._guard:
            number = self._next[table]
            self._next[table] = number + 1
            return self._minted, number


def _check_minted(writer_id: str) -> None:
    """An intent that was stamped before may carry a `process/` id; one that a caller chose would be forgotten."""
    if not writer_id.startswith(PROCESS_WRITER_PREFIX):
        return
    name = writer_id.removeprefix(PROCESS_WRITER_PREFIX)
    try:
        is_minted = str(uuid.UUID(name)) == name
    except ValueError:
        is_minted = False
    if not is_minted:
        raise _reserved(writer_id)


def _reserved(writer_id: str) -> Invalid:
    return Invalid(
        "setting-invalid",
        f"writer_id {writer_id!r:.80}: ids that begin with {PROCESS_WRITER_PREFIX} are made by Rootline and forgotten "
        "after seven idle days; choose another",
    )
