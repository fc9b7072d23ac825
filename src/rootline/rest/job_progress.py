"""The progress of clients' streaming jobs, by the words of their snapshots' summaries.

Owns: the words of each engine, the identity of a job, the rule that its number increases. Does not own: where the
newest words are kept (`rootline.tree.parts.progress`).
Invariants: pure. A job's identity follows from its words alone, so every commit of one job has the same.

Source: the sink of Iceberg for Flink, its sink for Kafka Connect, its streaming writes of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from rootline.catalog.rest.responses import bad_request
from rootline.schemas.parts.progress import JobProgress

PROGRESS_KEYS_PROPERTY: Final = "rootline.rest.progress-keys"
"""Table property: further words, separated by commas, each the progress of another job."""
_FLINK: Final = ("flink.job-id", "flink.operator-id", "flink.max-committed-checkpoint-id")
_SPARK: Final = ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId")
_KAFKA: Final = "kafka.connect."
_OFFSETS: Final = "kafka.connect.offsets."
_NUMBERS: Final[Mapping[str, str]] = MappingProxyType({_FLINK[2]: "checkpoint", _SPARK[1]: "epoch"})
"""The words whose number increases with each commit of a job, and what they number."""


def progress_in(words: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Identity of a job → its words among `words`. `properties`: of the table."""
    found: dict[str, tuple[str, ...]] = {}
    if _FLINK[0] in words:
        found[f"flink {words[_FLINK[0]]} {words.get(_FLINK[1], '')}"] = tuple(word for word in _FLINK if word in words)
    if _SPARK[0] in words:
        found[f"spark {words[_SPARK[0]]}"] = tuple(word for word in _SPARK if word in words)
    beside = sorted(word for word in words if word.startswith(_KAFKA) and not word.startswith(_OFFSETS))
    found |= {word: (word, *beside) for word in sorted(words) if word.startswith(_OFFSETS)}
    named = [word.strip() for word in properties.get(PROGRESS_KEYS_PROPERTY, "").split(",")]
    return found | {word: (word,) for word in named if word in words}


def check_increases(
    table: str, words: Mapping[str, str], identities: Iterable[str], known: Iterable[JobProgress]
) -> None:
    """Check that each job's number is above its committed one. Raises `Refusal`."""
    committed = {job.identity: job.words for job in known}
    for identity in identities:
        before = committed.get(identity, {})
        for word, what in _NUMBERS.items():
            old, new = before.get(word), words.get(word)
            if old is not None and new is not None and _number(new) <= _number(old):
                raise bad_request(
                    f"{table}: {what} {new[:40]} of {identity[:120]!r} is not above {old[:40]}, which is committed: "
                    "reload the table, and continue after the committed one"
                )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) <= 20 else -1
