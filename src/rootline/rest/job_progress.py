"""The progress of clients' streaming jobs, by the words of their snapshots' summaries.

Owns: the words of each engine, the identity of a job, the rule that its number increases. Does not own: where the
newest words are kept (`rootline.tree.parts.progress`).
Invariants: pure. A job's identity follows from its words alone, so every commit of one job has the same.

Source: the sink of Iceberg for Flink, its sink for Kafka Connect, its streaming writes of Spark.
"""

from __future__ import annotations

import json
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
    table: str, words: Mapping[str, str], identities: Iterable[str], known: Iterable[JobProgress], seen: int
) -> None:
    """Check that each job's number is above its committed one, and no offset of Kafka Connect below its own.

    Raises `Refusal`. A second instance of a job, which reloads the table and repeats its commit, is refused so. Before
    it reloads, the coordinator rejects it (`progress-moved`), because Kafka Connect compares its offsets after that.

    `seen`: the sequence number of the client's base.
    """
    committed = {job.identity: job.words for job in known}
    moved = {job.identity for job in known if job.sequence_number > seen}
    for identity in identities:
        before = committed.get(identity, {})
        if identity.startswith(_OFFSETS) and identity in before and identity not in moved:
            _check_offsets(table, identity, _offsets(before[identity]), _offsets(words[identity]))
        for word, what in _NUMBERS.items():
            old, new = before.get(word), words.get(word)
            if old is not None and new is not None and _number(new) <= _number(old):
                raise bad_request(
                    f"{table}: {what} {new[:40]} of {identity[:120]!r} is not above {old[:40]}, which is committed: "
                    "reload the table, and continue after the committed one"
                )


def _check_offsets(table: str, identity: str, old: Mapping[str, int], new: Mapping[str, int]) -> None:
    lower = [partition for partition, offset in old.items() if new.get(partition, offset) < offset]
    if lower or (old and not any(offset > old.get(partition, -1) for partition, offset in new.items())):
        raise bad_request(
            f"{table}: the offsets of {identity[:120]!r} are not above the committed ones: another instance of the job "
            "committed them; reload the table, and continue after them"
        )


def _offsets(text: str) -> dict[str, int]:
    """The offset of each partition. Empty if the text is not such an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {key: each for key, each in found.items() if type(each) is int} if isinstance(found, dict) else {}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20 else -1
