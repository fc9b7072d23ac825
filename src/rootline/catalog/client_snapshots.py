"""The further snapshots of an export: commits under their clients' ids, and the newest words of clients' jobs.

Clients look for their own ids among the snapshots. Streaming jobs walk the parents for their own newest words.
Both have ids that clients chose.

* *Beside* the chain of `main` stands each commit of a client: its id, as a second name for the version that has it. No
  snapshot names it as parent.
* *Behind* the oldest version of the chain stand the words of jobs, the newest first. The last names the parent of that
  version, so the chain still ends where it ended without them.

Owns: these snapshots, and removing them from stored metadata. Does not own: the versions (`table_metadata`), the parts
of a root that state them (`rootline.schemas.client_commits`, `rootline.schemas.parts.progress`).
Invariants: pure. Every id is listed once. A client's id is omitted if a version or a version's parent has it. Each of
these snapshots has the manifest list, the schema, the time and the numbers of a version that is listed, so whatever
reads it reads that version. `versions_of` returns the versions that `with_clients` was called with.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from rootline.schemas.client_commits import client_snapshots_in
from rootline.schemas.identifiers import SnapshotId, Version, snapshot_id_of
from rootline.schemas.parts.progress import Progress
from rootline.schemas.root_header import Operation

SnapshotJson = Mapping[str, Any]
VERSION: Final = "rootline.version"
EARLIER_MAX: Final = 100
"""The number of clients' snapshots that an export lists from versions before the newest one."""
_PARENT: Final = "parent-snapshot-id"
_OPERATIONS: Final = frozenset(Operation)


def version_of_snapshot(snapshot: SnapshotJson) -> Version:
    """The version whose manifest list a snapshot names."""
    return Version(int(snapshot["summary"][VERSION]))


def chain_start(versions: Sequence[SnapshotJson]) -> int:
    """The place of the oldest version from which each one is the parent of the next."""
    start = len(versions) - 1
    while start > 0 and versions[start].get(_PARENT) == versions[start - 1]["snapshot-id"]:
        start -= 1
    return start


def with_clients(
    versions: Sequence[SnapshotJson], progress: Progress, others: Collection[int] = ()
) -> list[SnapshotJson]:
    """The snapshots behind and beside the chain, then the versions.

    Args:
        versions: ascending. The chain ends in the last.
        progress: of the exported version's root.
        others: further ids that the export lists.
    """
    if not versions:
        return []
    start = chain_start(versions)
    taken = {*others, *(each[name] for each in versions for name in ("snapshot-id", _PARENT) if name in each)}
    behind = list(_behind(versions[start], progress, taken))
    taken.update(each["snapshot-id"] for each in behind)
    beside = list(_beside(versions, taken))
    linked = [*versions]
    if behind:
        linked[start] = {**versions[start], _PARENT: behind[0]["snapshot-id"]}
    return [*reversed(behind), *reversed(beside), *linked]


def versions_of(
    table_uuid: uuid.UUID, snapshots: Mapping[SnapshotId, SnapshotJson]
) -> Mapping[SnapshotId, SnapshotJson]:
    """The versions of a table among the snapshots in its folder, with the parents that they have without clients."""
    own = {at: each for at, each in snapshots.items() if _is_version(each, table_uuid)}
    return {at: _unlinked(each, snapshots, own) for at, each in own.items()}


def _behind(oldest: SnapshotJson, progress: Progress, taken: Collection[int]) -> Iterator[SnapshotJson]:
    words: dict[int, dict[str, str]] = {}
    for job in reversed(progress):
        if job.snapshot.snapshot_id not in taken:
            words.setdefault(job.snapshot.snapshot_id, {}).update(sorted(job.words.items()))
    parents = [*[*words][1:], oldest.get(_PARENT)]
    for place, (snapshot_id, stated) in enumerate(words.items()):
        summary = {**stated, VERSION: oldest["summary"][VERSION]}
        yield _named(oldest, snapshot_id, Operation.REPLACE, summary, parents[place])


def _beside(versions: Sequence[SnapshotJson], taken: Collection[int]) -> Iterator[SnapshotJson]:
    listed, room = set(taken), EARLIER_MAX
    for version in reversed(versions):
        clients = client_snapshots_in(version["summary"])[::-1]
        fresh = [*dict(client for client in clients if client.snapshot_id not in listed).items()]
        if version is not versions[-1]:
            fresh = fresh[:room]
            room -= len(fresh)
        for snapshot_id, operation in fresh:
            listed.add(snapshot_id)
            summary = {VERSION: version["summary"][VERSION]}
            yield _named(version, snapshot_id, _operation_of(operation, version), summary, version.get(_PARENT))
        if not room:
            return


def _operation_of(stated: str, version: SnapshotJson) -> str:
    """The operation that the client stated, or the version's: PyIceberg refuses metadata with an unknown one."""
    return stated if stated in _OPERATIONS else str(version["summary"]["operation"])


def _named(
    version: SnapshotJson, snapshot_id: int, operation: str, summary: Mapping[str, str], parent: int | None
) -> SnapshotJson:
    """A version under another id."""
    rest = {name: value for name, value in version.items() if name not in ("snapshot-id", _PARENT)}
    return {
        "snapshot-id": snapshot_id,
        **({} if parent is None else {_PARENT: parent}),
        **rest,
        "summary": {"operation": str(operation), **{key: summary[key] for key in summary if key != "operation"}},
    }


def _is_version(snapshot: SnapshotJson, table_uuid: uuid.UUID) -> bool:
    stated = str((snapshot.get("summary") or {}).get(VERSION, ""))
    return stated.isdigit() and snapshot["snapshot-id"] == snapshot_id_of(table_uuid, Version(int(stated)))


def _unlinked(
    version: SnapshotJson,
    snapshots: Mapping[SnapshotId, SnapshotJson],
    own: Mapping[SnapshotId, SnapshotJson],
) -> SnapshotJson:
    stated = parent = version.get(_PARENT)
    while parent is not None and parent in snapshots and parent not in own:
        parent = snapshots[SnapshotId(parent)].get(_PARENT)
    if parent == stated:
        return version
    rest = {name: value for name, value in version.items() if name != _PARENT}
    return rest if parent is None else {**version, _PARENT: parent}
