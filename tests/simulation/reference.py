"""The reference: a table is a dictionary from file to deleted rows. Too simple to be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind


@dataclass(slots=True)
class Reference:
    """`files`: location → deleted positions."""

    files: dict[str, set[int]] = field(default_factory=dict)
    committed: dict[tuple[str, int], str] = field(default_factory=dict)

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


def replay(
    verdicts: Sequence[Verdict],
    intents: Sequence[Intent | None],
    vectors: Mapping[tuple[str, int], frozenset[int]],
) -> Reference:
    """Apply the accepted intents in the log's order; `intents[i]` is the record at offset i (`None`: not a writer's).

    Raises:
        AssertionError: a (writer, sequence) was committed twice, or a duplicate was called so without a commit.
    """
    reference = Reference()
    for verdict, intent in zip(verdicts, intents, strict=True):
        if intent is None or intent.writer_id is None or intent.writer_sequence is None:
            continue
        place = (intent.writer_id, intent.writer_sequence)
        match verdict.kind:
            case VerdictKind.COMMITTED:
                assert place not in reference.committed, f"{place} was committed twice"
                reference.committed[place] = intent.intent_id
                reference.apply(intent, vectors)
            case VerdictKind.DUPLICATE:
                assert place in reference.committed, f"{place} was called a duplicate, but never committed"
            case VerdictKind.REJECTED:
                pass
    return reference
