"""Taking a table back to an earlier version, and what that would change.

Owns: the intent, and the preview. Does not own: the change itself (`rootline.tree.intents.restore`; the preview asks it
too).
Invariants: a preview publishes nothing; it shows what a restore of the head that it saw would do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyroaring import BitMap64

from rootline.client.read.changes import TableChanges, changes_of_net
from rootline.client.read.time_travel import PointInTime, read_head, resolve
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.storage.metadata.object_reader import read_leaves, read_pages
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.metadata.table_loader import load_state, read_manifest_vectors
from rootline.tree.check.net_changes import NetChanges
from rootline.tree.check.root_diff import Changes
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.version_difference import OlderVersion, manifest_vectors_in_files
from rootline.tree.intents.restore import restore
from rootline.tree.rules.vector_merge import place_of_vector


async def restore_version(
    session: Session, stamp: WriterStamp, table: TableName, point: PointInTime, *, timeout_s: float
) -> Commit:
    """Restore the version that `point` means now.

    Raises:
        Invalid: `version-unknown`, `tag-unknown`; `restore-impossible` and what else rejects the intent.
        OutcomeUnknown: `verdict-timeout`.

    """
    head = await read_head(session.store, table)
    version = await resolve(session.store, table, head, point)
    intent = _intent(head, version, session.environment.fresh_id())
    return await commit_intent(session, stamp, intent, timeout_s=timeout_s)


async def preview_restore(store: ObjectStore, table: TableName, point: PointInTime) -> TableChanges:
    """What restoring the version that `point` means would change; from the head's version to that of `point`.

    Raises:
        Invalid: `version-unknown`, `tag-unknown`, `restore-impossible`.
        Corrupt: an object is not what was written.

    """
    head = await read_head(store, table)
    version = await resolve(store, table, head, point)
    change, leaves = await _change(store, head, version)
    changes = NetChanges()
    changes.take(Changes((), tuple(live.entry for live in change.removed)))
    for location, ordinals in change.removed_from.items():
        changes.take(Changes((), tuple(leaves[location].entries_at(list(ordinals)))))
    changes.take(Changes(tuple(row.entry for row in change.added), ()))
    for incoming in change.incoming:
        changes.take(Changes(tuple(incoming.lookup.leaf.entries()), ()))
    return await changes_of_net(store, table, head.header.version, version, changes.net())


async def _change(store: ObjectStore, head: Root, version: Version) -> tuple[Change, Mapping[str, Leaf]]:
    """What the restore would do to the head, and the head's leaves."""
    state = await load_state(store, head)
    state = replace(state, pages=await read_pages(store, head.header))
    older = head if version == head.header.version else await read_root(store, head.header.table, version)
    draft = Draft.on(state)
    stored = await read_manifest_vectors(store, older)
    apart = OlderVersion(older, stored).leaves_apart(draft)
    leaves = await read_leaves(store, head.header.table, apart, state.leaves)
    vectors = {
        at: BitMap64(stored[at.location, at.offset]) for at in map(place_of_vector, manifest_vectors_in_files(older))
    }
    named = older.header.definition
    definitions = {} if named == head.header.definition else {named: await read_definition(store, older.header)}
    fetched = FetchedObjects(dict(leaves), vectors, roots={version: older}, definitions=definitions)
    found = restore(draft, _intent(head, version, "preview"), fetched)
    assert isinstance(found, Change), "everything that it can need is at hand"
    return found, state.leaves


def _intent(head: Root, version: Version, intent_id: str) -> Intent:
    return Intent(
        intent_id=intent_id,
        table=head.header.table,
        table_uuid=head.header.table_uuid,
        kind=IntentKind.RESTORE,
        read_version=head.header.version,
        ref=VersionReference(version=version),
    )
