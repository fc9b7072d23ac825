"""Simulated commits of Iceberg clients: appends of writers that state a client's snapshot and the progress of its job.

Owns: making them, and what must hold of them. Does not own: the catalog between a client and the log.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.client_commits import CLIENT, ClientCommit, client_snapshots_in
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_rules import BEGINNING_KINDS
from rootline.schemas.parts.progress import ClientSnapshot
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict
from rootline.storage.metadata.root_reader import read_root

_OF_CLIENTS: Final = 0.6
"""How many of the appends are a client's, where there are clients."""
_JOBS: Final = 3


def as_client(intent: Intent, head: RootHeader) -> Intent:
    """Now and then the same append as a client makes it that has loaded `head`."""
    rng = random.Random(f"client of {intent.intent_id}")
    if intent.kind is not IntentKind.APPEND or rng.random() > _OF_CLIENTS:
        return intent
    snapshot_id, job = 1 + rng.getrandbits(62), f"job-{rng.randrange(_JOBS)}"
    commit = ClientCommit((ClientSnapshot(snapshot_id, "append"),), "ab" * 32, {job: ("step",)})
    return intent.model_copy(
        update={
            "writer_id": f"rest/{snapshot_id}",
            "writer_sequence": 0,
            "read_sequence_number": head.snapshot.sequence_number,
            "summary": {"step": intent.intent_id, CLIENT: commit.to_json()},
        }
    )


@dataclass(slots=True)
class ClientHistory:
    """`jobs`: job → the number that moved it last, and its words. `snapshots`: those of clients, and their versions.

    `of_table`: those of the table that the name has now. A client may use an id again for another one.
    """

    jobs: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    of_table: set[int] = field(default_factory=set)

    def accept(self, verdict: Verdict, intent: Intent) -> None:
        """Take in an intent that was committed. In the order of the sequence numbers."""
        if intent.kind in BEGINNING_KINDS:
            self.jobs, self.of_table = {}, set()
        commit = ClientCommit.of(intent.summary)
        if commit is None:
            return
        for job, words in commit.progress.items():
            number, _ = self.jobs.pop(job, (0, {}))
            read = intent.read_sequence_number or 0
            assert number <= read, f"{job} moved at {number}, unseen by {intent.intent_id}"
            self.jobs[job] = verdict.sequence_number or 0, {word: intent.summary[word] for word in words}
        for snapshot in commit.snapshots:
            assert snapshot.snapshot_id not in self.of_table, f"snapshot {snapshot.snapshot_id} was committed twice"
            self.of_table.add(snapshot.snapshot_id)
            self.snapshots.append((snapshot.snapshot_id, verdict.version or 0))

    async def compare(self, store: ObjectStore, table: TableName, head: RootHeader) -> None:
        """Every root that is left lists the snapshots that it committed, and no job goes back."""
        if not self.snapshots:
            return
        roots = [
            (await read_root(store, table, Version(version))).header
            for version in range(head.versions.oldest, head.version + 1)
        ]
        listed = [
            (each.snapshot_id, root.version) for root in roots for each in client_snapshots_in(root.snapshot.summary)
        ]
        expected = [item for item in self.snapshots if item[1] >= head.versions.oldest]
        assert sorted(listed) == sorted(expected), f"{table}: other snapshots of clients are listed than were committed"
        for before, after in pairwise(roots):
            now = {job.identity: job.sequence_number for job in after.progress}
            if after.table_uuid == before.table_uuid:
                for job in before.progress:
                    assert now.get(job.identity, 0) >= job.sequence_number, f"{table}: {job.identity} went back"
        jobs = [(job.identity, (job.sequence_number, dict(job.words))) for job in head.progress]
        assert jobs == list(self.jobs.items()), f"{table}: the progress is not that of the accepted intents"
