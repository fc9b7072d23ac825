"""Rules of the commits of Iceberg clients: the word `rootline.client`, and the progress of streaming jobs.

Owns: which intents may carry the word, the fence of a job, the next progress, the words for the root's summary. Does
not own: the word (`rootline.schemas.client_commits`), how many jobs the header keeps (`rootline.tree.parts.progress`),
the order of the steps (`rootline.tree.commit.decide`).
Invariants: If a job moved after its client read, that client's commit does not move it, also within one batch.
The newest job always fits in the header.

Source: intents page, "Commits of Iceberg clients". Decisions 0134 and 0135.
"""

from __future__ import annotations

from rootline.schemas.client_commits import CLIENT, CLIENT_WRITER_PREFIX, ClientCommit
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import CLIENT_KINDS
from rootline.schemas.parts.progress import PROGRESS, JobProgress
from rootline.tree.draft.draft import Draft
from rootline.tree.parts.progress import with_moved


def client_commit_of(intent: Intent) -> ClientCommit | None:
    """The client's commit that an intent states, or `None`. Raises `Invalid` (`intent-malformed`)."""
    commit = ClientCommit.of(intent.summary)
    if commit is None:
        return None
    if intent.kind not in CLIENT_KINDS:
        raise Invalid(
            "intent-malformed", f"summary: {CLIENT} does not belong to an intent of kind {intent.kind}: omit it"
        )
    writer = f"{CLIENT_WRITER_PREFIX}{commit.snapshots[0].snapshot_id}"
    if (intent.writer_id, intent.writer_sequence) != (writer, 0):
        raise Invalid(
            "intent-malformed",
            f"summary: {CLIENT} is of writer {writer!r} with sequence 0, the intent's writer is "
            f"{intent.writer_id!r:.80} with {intent.writer_sequence}: set both as the word requires",
        )
    return commit


def check_progress(draft: Draft, intent: Intent, commit: ClientCommit) -> None:
    """Check that no job of the commit moved since its client read.

    Raises:
        Invalid: `progress-moved`; `version-unknown`, it cannot have read that.
    """
    read = intent.read_sequence_number
    if read is None or read > draft.read_number_max:
        raise Invalid(
            "version-unknown",
            f"read_sequence_number {read} is not one that a client with progress can have read: the table is at "
            f"{draft.read_number_max}",
        )
    for job in draft.parts.of(PROGRESS):
        if job.sequence_number > read and job.identity in commit.progress:
            raise Invalid(
                "progress-moved",
                f"{draft.table}: job {job.identity!r:.80} moved at sequence number {job.sequence_number}, after "
                f"{read}, which its client read: reload the table, and continue after the job's newest commit",
            )


def move_jobs(draft: Draft, intent: Intent, commit: ClientCommit, number: SequenceNumber) -> list[str]:
    """Record the progress of a commit that was accepted with sequence `number`.

    Returns the jobs for whose progress there is no room any more.
    """
    dropped: list[str] = []
    for identity, names in commit.progress.items():
        words = {name: intent.summary[name] for name in names}
        job = JobProgress(identity, number, commit.snapshots[-1], words)
        before = draft.parts.of(PROGRESS)
        after = with_moved(before, job)
        draft.parts = draft.parts.having(PROGRESS, after)
        kept = {each.identity for each in after}
        dropped += (each.identity for each in before if each.identity not in kept)
    return dropped


def words_for_root(intent: Intent, commit: ClientCommit) -> dict[str, str]:
    """The words of a client's commit that the root's summary has: without the client's own and those of progress."""
    moved = {CLIENT, *(name for names in commit.progress.values() for name in names)}
    return {name: value for name, value in intent.summary.items() if name not in moved}
