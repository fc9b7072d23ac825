"""The reference: a table is a dictionary from file to deleted rows. Too simple to be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind


@dataclass(slots=True)
class Reference:
    """`files`: location → deleted positions. `committed`: (writer, sequence) → the verdict that said so."""

    files: dict[str, set[int]] = field(default_factory=dict)
    committed: dict[tuple[str, int], Verdict] = field(default_factory=dict)

    def apply(self, intent: Intent, vectors: Mapping[tuple[str, int], frozenset[int]]) -> None:
        """What an accepted intent does."""
        for removed in intent.remove_files:
            del self.files[removed.location]
        for vector in intent.add_vectors:
            self.files[vector.referenced_file] |= vectors[vector.location, vector.offset]
        for added in intent.add_data_files:
            if added.location in self.files:
                raise AssertionError(f"{added.location} was added while it was live")
            self.files[added.location] = set()


def replay(decided: Iterable[tuple[Verdict, Intent]], vectors: Mapping[tuple[str, int], frozenset[int]]) -> Reference:
    """Apply a table's accepted intents in the order of their sequence numbers.

    Raises:
        AssertionError: a (writer, sequence) was committed twice, or a duplicate was called so without a commit.
    """
    reference = Reference()
    own = [
        (verdict, intent, (intent.writer_id, intent.writer_sequence))
        for verdict, intent in decided
        if intent.writer_id is not None and intent.writer_sequence is not None
    ]
    accepted = [item for item in own if item[0].kind is VerdictKind.COMMITTED]
    for verdict, intent, place in sorted(accepted, key=lambda item: item[0].sequence_number or 0):
        assert place not in reference.committed, f"{place} was committed twice"
        reference.committed[place] = verdict
        reference.apply(intent, vectors)
    for verdict, _, place in own:
        if verdict.kind is VerdictKind.DUPLICATE:
            first = reference.committed.get(place)
            assert first is not None, f"{place} was called a duplicate, but never committed"
            is_later = first.partition != verdict.partition or first.offset < verdict.offset
            assert is_later, f"{place} was called a duplicate before it was committed"
    return reference
