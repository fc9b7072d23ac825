"""Whether one root's header follows from the header before it.

Owns: versions, digests, snapshots, from root to root. Does not own: offsets, outcomes, ledger (`progress`),
entries (`live_set`), the header's bytes (`rootline.schemas.bytes.root.root_codec`).
Invariants: pure; says nothing about a root whose parent cannot be read.

Source: invariants page, numbers 6, 7, 17.
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import snapshot_id_of
from rootline.schemas.root_header import RootHeader
from rootline.storage.check.findings import Fault
from rootline.tree.intents.drop import starts_new_table
from rootline.tree.intents.kinds import carried_violations
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT


def faults_of_header(header: RootHeader) -> Iterator[Fault]:
    """What is wrong with a header by itself."""
    snapshot = header.snapshot
    expected = snapshot_id_of(header.table_uuid, header.version)
    if snapshot.snapshot_id != expected:
        yield Fault("snapshot-wrong", f"snapshot id {snapshot.snapshot_id} is not that of its version, {expected}")
    is_first = snapshot.parent_id is None or ADOPTED_SNAPSHOT in snapshot.summary
    may_begin = header.version == 0 or (header.drops and header.oldest_version == header.version)
    if (header.version == 0) != (header.parent_digest is None) or (header.version == 0 or is_first) != is_first:
        yield Fault("parent-mismatch", "only version 0 has no parent")
    elif is_first and not may_begin:
        yield Fault("parent-mismatch", "its snapshot has no parent, and no table begins with it")
    if snapshot.summary.get(ADOPTED_SNAPSHOT, str(snapshot.parent_id)) != str(snapshot.parent_id):
        yield Fault(
            "parent-mismatch", f"its parent, {snapshot.parent_id}, is not the snapshot that it was adopted from"
        )
    if header.oldest_version > header.version:
        yield Fault("snapshot-wrong", f"oldest addressable version {header.oldest_version} is after its own")


def faults_of_step(old: Root, new: Root) -> Iterator[Fault]:
    """What is wrong with the header of `new`, given the root of the version before."""
    before, after = old.header, new.header
    if after.parent_digest != old.digest:
        yield Fault("parent-mismatch", f"its parent digest is not the digest of the stored root {before.version}")
    is_another = starts_new_table(before, after)
    if after.table_uuid != before.table_uuid and not is_another:
        yield Fault("parent-mismatch", f"table uuid {after.table_uuid} is not its parent's, {before.table_uuid}")
    if after.snapshot.parent_id != before.snapshot.snapshot_id and not is_another:
        yield Fault("parent-mismatch", f"parent snapshot id {after.snapshot.parent_id} is not the id of its parent")
    if after.snapshot.sequence_number <= before.snapshot.sequence_number:
        yield Fault(
            "snapshot-wrong",
            f"sequence number {after.snapshot.sequence_number} is not above {before.snapshot.sequence_number}",
        )
    if after.snapshot.timestamp_ms <= before.snapshot.timestamp_ms:
        yield Fault(
            "snapshot-wrong",
            f"timestamp {after.snapshot.timestamp_ms} ms is not after {before.snapshot.timestamp_ms} ms",
        )
    if after.next_row_id < before.next_row_id:
        yield Fault("snapshot-wrong", f"next row id {after.next_row_id} is below {before.next_row_id}")
    if after.oldest_version < before.oldest_version:
        yield Fault("snapshot-wrong", f"oldest addressable version {after.oldest_version} went back")
    if after.parent_next_row_id not in (None, before.next_row_id):
        yield Fault(
            "parent-mismatch",
            f"it says next row id {after.parent_next_row_id} of its parent, which is {before.next_row_id}",
        )
    kept = before.earlier_bytes + old.size_in_bytes
    if after.earlier_bytes != kept:
        yield Fault("totals-wrong", f"it says {after.earlier_bytes} bytes of earlier roots, its parent makes it {kept}")
    for code, sentence in carried_violations(before, after):
        yield Fault(code, sentence)
