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
reads it reads that version. `versions_of` returns the versions that `with_clients` was called with, except that older
ones lack the list of their clients' commits. Later exports do not list those commits either.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rootline.schemas.client_commits import CLIENT_SNAPSHOTS, client_snapshots_in
from rootline.schemas.identifiers import SnapshotId, Version, snapshot_id_of
from rootline.schemas.parts.progress import ClientSnapshot, Progress
from rootline.schemas.root_header import Operation

SnapshotJson = Mapping[str, Any]
VERSION: Final = "rootline.version"
EARLIER_MAX: Final = 32
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
    commits = _listed_commits(versions)
    beside = list(_beside(versions, commits, taken))
    older = len(versions) - len(commits)
    linked = [*map(_without_commits, versions[:older]), *versions[older:]]
    if behind:
        linked[start] = {**linked[start], _PARENT: behind[0]["snapshot-id"]}
    return [*reversed(behind), *reversed(beside), *linked]


def versions_of(
    table_uuid: uuid.UUID, snapshots: Mapping[SnapshotId, SnapshotJson]
) -> Mapping[SnapshotId, SnapshotJson]:
    """The versions of a table among the snapshots in its folder, with the parents that they have without clients."""
    own = {at: each for at, each in snapshots.items() if _is_version(each, table_uuid)}
    return {at: _unlinked(each, snapshots, own) for at, each in own.items()}


def with_commits(versions: Iterable[SnapshotJson]) -> list[SnapshotJson]:
    """The versions of an export that have the list of their clients' commits, ascending. Older ones may lack it."""
    ordered = sorted(versions, key=version_of_snapshot)
    return ordered[len(ordered) - len(_listed_commits(ordered)) :]


def _behind(oldest: SnapshotJson, progress: Progress, taken: Collection[int]) -> Iterator[SnapshotJson]:
    words: dict[int, dict[str, str]] = {}
    for job in reversed(progress):
        if job.snapshot.snapshot_id not in taken:
            words.setdefault(job.snapshot.snapshot_id, {}).update(sorted(job.words.items()))
    parents = [*[*words][1:], oldest.get(_PARENT)]
    for place, (snapshot_id, stated) in enumerate(words.items()):
        summary = {**stated, VERSION: oldest["summary"][VERSION]}
        yield _named(oldest, snapshot_id, Operation.REPLACE, summary, parents[place])


def _listed_commits(versions: Sequence[SnapshotJson]) -> list[Sequence[ClientSnapshot]]:
    """The commits of clients to list, the newest first, for each version from the newest one down.

    It ends with the version that uses up the number, so later exports need the commits of no older one.
    """
    found: list[Sequence[ClientSnapshot]] = []
    room = EARLIER_MAX
    for version in reversed(versions):
        commits = client_snapshots_in(version["summary"])[::-1]
        if found:
            commits = commits[:room]
            room -= len(commits)
        found.append(commits)
        if not room:
            break
    return found


def _beside(
    versions: Sequence[SnapshotJson], commits: Sequence[Sequence[ClientSnapshot]], taken: Collection[int]
) -> Iterator[SnapshotJson]:
    listed = set(taken)
    for version, of_version in zip(reversed(versions), commits, strict=False):
        for snapshot_id, operation in of_version:
            if snapshot_id not in listed:
                listed.add(snapshot_id)
                summary = {VERSION: version["summary"][VERSION]}
                yield _named(version, snapshot_id, _operation_of(operation, version), summary, version.get(_PARENT))


def _without_commits(version: SnapshotJson) -> SnapshotJson:
    """The version without the list of its clients' commits, which no client reads."""
    summary = version["summary"]
    if CLIENT_SNAPSHOTS not in summary:
        return version
    return {**version, "summary": {key: text for key, text in summary.items() if key != CLIENT_SNAPSHOTS}}


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
