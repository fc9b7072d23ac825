"""The commit of an Iceberg client: the word of an intent that states it, and the list of its snapshots in a root.

Owns: the words `rootline.client` and `rootline.refused` of an intent's summary, the ids of such intents, the key
`rootline.client-snapshots` of a snapshot's summary.
Does not own: the difference that a client made (`rootline.rest`), what is kept of its progress
(`rootline.schemas.parts.progress`), how exports show it (`rootline.catalog`).
Invariants: a decoded value has the right types and signs, and any other input is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.schemas.errors import Invalid
from rootline.schemas.parts.header_part import count_of, digest_of, encode_json, string_of
from rootline.schemas.parts.progress import ClientSnapshot

CLIENT: Final = "rootline.client"
"""The word of an intent's summary with its `ClientCommit`. Every other word that begins with `rootline.` is refused."""
REFUSED: Final = "rootline.refused"
"""The word of an intent that is always rejected: the reason for which a catalog refuses a client's request."""
CLIENT_SNAPSHOTS: Final = "rootline.client-snapshots"
"""Key of a snapshot's summary: the snapshots that clients made, and that the root commits. `[[id, operation], …]`."""
CLIENT_WRITER_PREFIX: Final = "rest/"
"""The prefix of the writer ids of clients' commits, before the id of the client's first snapshot."""
SNAPSHOTS_MAX: Final = 100
MOVED_JOBS_MAX: Final = 8
JOB_BYTES_MAX: Final = 8 * 1024
"""The most snapshots of one commit, jobs whose progress it states, and bytes of a job's name and words as JSON."""
_OPERATIONS: Final = ("append", "delete", "overwrite", "replace")


@dataclass(frozen=True, slots=True)
class ClientCommit:
    """One commit of a client.

    * `snapshots`: what the client made on its base, in order. 1 to `SNAPSHOTS_MAX`, of different ids above 0.
    * `digest`: of the files that it adds, 64 hexadecimal digits. Two commits under one id are the same if it is equal.
    * `progress`: identity of a streaming job → the words of the intent's summary that state its progress. At most
    `MOVED_JOBS_MAX` jobs of `JOB_BYTES_MAX` bytes.
    """

    snapshots: tuple[ClientSnapshot, ...]
    digest: str
    progress: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """The value of the word."""
        body: dict[str, Any] = {"snapshots": self.snapshots, "digest": self.digest}
        if self.progress:
            body["progress"] = dict(self.progress)
        return encode_json(body)

    @staticmethod
    def of(summary: Mapping[str, str]) -> ClientCommit | None:
        """The commit in an intent's summary, or `None` without the word. Raises `Invalid` (`intent-malformed`)."""
        text = summary.get(CLIENT)
        if text is None:
            return None
        try:
            body = json.loads(text)
            if not body["snapshots"] or body.keys() - {"snapshots", "digest", "progress"}:
                raise ValueError("it has no snapshot, or a member that is unknown")
            progress = {job: _words_in(job, words, summary) for job, words in body.get("progress", {}).items()}
            if len(progress) > MOVED_JOBS_MAX:
                raise ValueError(f"it has the progress of {len(progress)} jobs, at most {MOVED_JOBS_MAX} are allowed")
            return ClientCommit(_checked(_snapshots(body["snapshots"])), digest_of(body["digest"]).hex(), progress)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            next_step = "state it as docs/intents.md describes, or omit it"
            raise Invalid("intent-malformed", f"summary: {CLIENT} is wrong: {error!s:.150}: {next_step}") from None


def request_of(intent_id: str) -> str:
    """The digest of the client's request that an intent commits. Its id is the digest, a slash, and what it was planned
    on. The id of an intent that refuses the request is the digest.
    """
    return intent_id.partition("/")[0]


def client_snapshots_in(summary: Mapping[str, str]) -> tuple[ClientSnapshot, ...]:
    """The clients' snapshots that a root commits, by its snapshot's summary. Raises `ValueError` or `TypeError`."""
    text = summary.get(CLIENT_SNAPSHOTS)
    return () if text is None else _snapshots(json.loads(text))


def client_snapshots_word(snapshots: Iterable[ClientSnapshot]) -> str:
    """The value of `CLIENT_SNAPSHOTS`."""
    return encode_json([list(each) for each in snapshots])


def _snapshots(items: Any) -> tuple[ClientSnapshot, ...]:
    return tuple([ClientSnapshot(count_of(each), string_of(operation)) for each, operation in items])


def _checked(snapshots: tuple[ClientSnapshot, ...]) -> tuple[ClientSnapshot, ...]:
    if len(snapshots) > SNAPSHOTS_MAX:
        raise ValueError(f"it has {len(snapshots)} snapshots, at most {SNAPSHOTS_MAX} are allowed")
    ids = {snapshot_id for snapshot_id, operation in snapshots if operation in _OPERATIONS}
    if len(ids) < len(snapshots) or 0 in ids:
        raise ValueError("two snapshots have one id, or a snapshot has id 0 or an unknown operation")
    return snapshots


def _words_in(job: str, words: Any, summary: Mapping[str, str]) -> tuple[str, ...]:
    missing = [word for word in words if word == CLIENT or word not in summary]
    if missing or not isinstance(words, list) or not words:
        raise ValueError(f"the summary has no such words of progress: {words!r:.60}")
    size = len(encode_json([job, {word: summary[word] for word in words}]))
    if size > JOB_BYTES_MAX:
        raise ValueError(f"job {job!r:.60} has {size} bytes, at most {JOB_BYTES_MAX} are allowed")
    return tuple(words)
