"""The part `progress`: the progress of the streaming jobs of Iceberg clients, in their own words.

A job looks for its newest words among the snapshots, also after days. So the newest ones stay in the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of, list_in, string_of

PROGRESS_KEY: Final = "rootline.progress"


class ClientSnapshot(NamedTuple):
    """A snapshot by its client's own id. `operation` is in Iceberg's words, as the client gave it."""

    snapshot_id: int
    operation: str


class JobProgress(NamedTuple):
    """The newest words of one job.

    `identity`: of the job, such as the id of a streaming query. `sequence_number`: of the commit that stated them.
    `snapshot`: the client's last snapshot of that commit. `words`: key → value of its summary.
    """

    identity: str
    sequence_number: SequenceNumber
    snapshot: ClientSnapshot
    words: Mapping[str, str]


Progress = tuple[JobProgress, ...]
"""The jobs in the order in which they moved last, the one that was idle longest first."""


def _encode(progress: Progress) -> bytes | None:
    if not progress:
        return None
    return json_of([[job, number, list(snapshot), dict(words)] for job, number, snapshot, words in progress])


def _decode(metadata: Mapping[str, bytes]) -> Progress:
    if PROGRESS_KEY not in metadata:
        return ()
    return tuple([_job(*each) for each in list_in(metadata, PROGRESS_KEY)])


def _job(identity: Any, number: Any, snapshot: Any, words: Any) -> JobProgress:
    snapshot_id, operation = snapshot
    return JobProgress(
        string_of(identity),
        SequenceNumber(count_of(number)),
        ClientSnapshot(count_of(snapshot_id), string_of(operation)),
        {string_of(key): string_of(value) for key, value in words.items()},
    )


PROGRESS: Final[HeaderPart[Progress]] = HeaderPart("progress", {PROGRESS_KEY: _encode}, _decode)
