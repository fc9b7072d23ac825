"""The metadata.json of an export: its snapshots, their JSON, and the check that a stored one is intact.

Owns: the table metadata's members apart from the definition's, the snapshots' JSON, the digest in it. Does not own:
schemas and specs (`exported_definition`), manifest lists (`manifest_list_encoder`), the location of the object
(`export_keys`).
Invariants: pure. The same roots make the same bytes. The snapshot log has no gap and ends in the current snapshot. The
snapshot of every tag is among the snapshots. The last update is the version, which may be newer than the snapshot. No
export allows an engine to delete a file.

Source: the Iceberg specification, "Table Metadata Fields", "Snapshots", "Row Lineage", Appendix C.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rootline.catalog.adoption_plan import NO_HISTORY, AdoptedHistory
from rootline.catalog.client_snapshots import (
    VERSION,
    SnapshotJson,
    chain_start,
    version_of_snapshot,
    versions_of,
    with_clients,
)
from rootline.catalog.export_keys import HANDED_ON, METADATA_PATH, ExportFolder, FormatVersion, version_of_metadata
from rootline.catalog.exported_definition import Meaning, stated_specs
from rootline.catalog.metadata_log import LogLimits, StoredLog
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import SnapshotId, Version, snapshot_id_of
from rootline.schemas.root_header import RootHeader

__all__ = ["VERSION", "SnapshotJson", "version_of_snapshot"]

TABLE: Final = "rootline.table"
DIGEST: Final = "rootline.export-digest"
"""The property with the SHA-256 of the metadata.json, computed with 64 zeros in its own place."""
DEFINITION: Final = "rootline.definition-digest"
"""The property with the SHA-256 of the definition. The metadata log names the last version of each."""
GC: Final = "gc.enabled"
NO_SNAPSHOT: Final = -1
"""The current snapshot of a table without one. Older clients need the number."""
_MAIN: Final = "main"
_ZEROS: Final = "0" * 64
_STATED: Final = re.compile(rb'("rootline\.export-digest":")([0-9a-f]{64})"')

Specs = frozenset[tuple[int, Meaning]]
"""Partition specs: the id and the meaning of each."""
NOTHING_LOGGED: Final[Mapping[Version, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """An intact metadata.json: its bytes, and the parts that an exporter reads.

    * `current`: the current snapshot, `None` for a table that never had a file.
    * `snapshots`: the versions of this table.
    * `in_folder`: all snapshots whose manifest lists are in the folder, of clients too. Others are from before an
    adoption. If an older release adopted a Rootline export, the table may assign their ids a second time.
    * `log`: `None` if the metadata does not state its definition.
    """

    body: bytes
    table_uuid: uuid.UUID
    version: Version
    timestamp_ms: int
    snapshots: Mapping[SnapshotId, SnapshotJson]
    in_folder: Sequence[SnapshotJson]
    log: StoredLog | None
    current: SnapshotJson | None
    specs: Specs

    @property
    def is_of_its_table(self) -> bool:
        """Whether the current snapshot is the table's own. Older releases may have used another (decision 0004)."""
        return self.current is None or self.current["snapshot-id"] in self.snapshots


def snapshot_json(
    header: RootHeader,
    *,
    parent_id: SnapshotId | None,
    parent_next_row_id: int,
    manifest_list: str,
    schema_id: int,
    format_version: FormatVersion,
) -> SnapshotJson:
    """One version as a snapshot.

    Args:
        header: the header of the version's root.
        parent_id: the id of the newest earlier version that is a snapshot.
        parent_next_row_id: the next row id of the root before it, 0 if there is none. V2 does not state it.
        manifest_list: absolute location.
        schema_id: the schema that was current.
        format_version: the format of the export.
    """
    snapshot = header.snapshot
    summary = {**dict(sorted(snapshot.summary.items())), VERSION: str(int(header.version))}
    parent = {} if parent_id is None else {"parent-snapshot-id": parent_id}
    lineage = {"first-row-id": parent_next_row_id, "added-rows": header.row_ids.next - parent_next_row_id}
    return {
        "snapshot-id": snapshot.snapshot_id,
        **parent,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "manifest-list": manifest_list,
        "summary": {"operation": snapshot.operation.value, **summary},
        "schema-id": schema_id,
        **(lineage if format_version is FormatVersion.V3 else {}),
    }


def next_row_id_after(snapshot: SnapshotJson) -> int | None:
    """The next free row id after a snapshot, or `None` if its JSON does not state it."""
    first, added = snapshot.get("first-row-id"), snapshot.get("added-rows")
    return None if first is None or added is None else int(first) + int(added)


def metadata_json(
    header: RootHeader,
    stated: Mapping[str, Any],
    folder: ExportFolder,
    snapshots: Sequence[SnapshotJson],
    tagged: Mapping[str, Version],
    before: AdoptedHistory = NO_HISTORY,
    logged: Mapping[Version, int] = NOTHING_LOGGED,
) -> bytes:
    """The metadata.json of `header`'s version.

    Args:
        header: the header of the version's root.
        stated: `ExportedDefinition.metadata` of its definition.
        folder: the folder to store it in.
        snapshots: ascending. The last is the current one. They include the `tagged` versions.
        tagged: tag → version of its snapshot.
        before: the history before the table's adoption.
        logged: the versions of the metadata log, ascending, and their commit times (ms).
    """
    current = snapshots[-1]["snapshot-id"] if snapshots else None
    main = {} if current is None else {_MAIN: {"snapshot-id": current, "type": "branch"}}
    own = {name: value for name, value in stated.items() if name != "properties"}
    tags = {
        name: {"snapshot-id": snapshot_id_of(header.table_uuid, Version(version)), "type": "tag"}
        for name, version in sorted(tagged.items())
        if name != _MAIN
    }
    properties = {
        **_handed_on(stated["properties"], folder),
        DEFINITION: header.definition.digest.hex(),
        TABLE: header.table,
        VERSION: str(int(header.version)),
        DIGEST: _ZEROS,
    }
    lineage = {"next-row-id": header.row_ids.next} if folder.format_version is FormatVersion.V3 else {}
    metadata = {
        "format-version": int(folder.format_version),
        "table-uuid": str(header.table_uuid),
        "location": folder.base,
        "last-sequence-number": header.snapshot.sequence_number,
        "last-updated-ms": header.snapshot.timestamp_ms,
        **own,
        **lineage,
        "current-snapshot-id": NO_SNAPSHOT if current is None else current,
        "refs": {**main, **tags},
        "snapshots": [
            *_apart(before.snapshots, snapshots),
            *with_clients(snapshots, header.progress, [each["snapshot-id"] for each in before.snapshots]),
        ],
        "snapshot-log": _log(snapshots, before),
        "metadata-log": [
            {"timestamp-ms": time_ms, "metadata-file": folder.absolute(folder.metadata(version))}
            for version, time_ms in logged.items()
        ],
        "statistics": [],
        "partition-statistics": [],
        "properties": properties,
    }
    body = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
    return _with_digest(body, hashlib.sha256(body).hexdigest())


def staged_metadata(
    table_uuid: uuid.UUID, stated: Mapping[str, Any], folder: ExportFolder, now_ms: int
) -> Mapping[str, Any]:
    """The metadata of a table that is described, but not created yet. It is never stored.

    `stated`: `ExportedDefinition.metadata` of its definition.
    """
    is_v3 = folder.format_version is FormatVersion.V3
    return {
        "format-version": int(folder.format_version),
        "table-uuid": str(table_uuid),
        "location": folder.base,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        **stated,
        **({"next-row-id": 0} if is_v3 else {}),
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "properties": _handed_on(stated["properties"], folder),
    }


def _handed_on(properties: Mapping[str, str], folder: ExportFolder) -> dict[str, str]:
    """The table's properties with those that clients need besides."""
    own = dict(sorted({**HANDED_ON, **properties}.items()))
    return {**own, GC: "false", METADATA_PATH: folder.clients_metadata}


def _apart(before: Sequence[SnapshotJson], snapshots: Sequence[SnapshotJson]) -> list[SnapshotJson]:
    """The snapshots from before the adoption, except those whose ids the table has assigned too.

    The same id occurs twice if an older release adopted a Rootline export.
    """
    own = {each["snapshot-id"] for each in snapshots}
    return [each for each in before if each["snapshot-id"] not in own]


def _log(snapshots: Sequence[SnapshotJson], before: AdoptedHistory) -> list[dict[str, int]]:
    """The snapshot log, which must not have gaps: for a time, engines choose the last entry before it.

    So the log begins after the last gap between versions, even if tagged or adopted snapshots are older.
    """
    if not snapshots:
        return []
    start = chain_start(snapshots)
    log = [{"timestamp-ms": each["timestamp-ms"], "snapshot-id": each["snapshot-id"]} for each in snapshots[start:]]
    if version_of_snapshot(snapshots[start]) > 0:
        return log
    own = {each["snapshot-id"] for each in snapshots}
    older = [dict(entry) for entry in before.log if entry["timestamp-ms"] <= log[0]["timestamp-ms"]]
    return [*(entry for entry in older if entry["snapshot-id"] not in own), *log]


def read_metadata(body: bytes, folder: ExportFolder, version: Version, table_uuid: uuid.UUID | None) -> StoredMetadata:
    """The content of a stored metadata.json, after a check that it is intact and belongs to this export.

    Args:
        body: the object.
        folder: the folder that it was found in.
        version: the version in its name.
        table_uuid: the table's UUID, if known.

    Raises:
        Corrupt: `export-corrupt`.
    """
    name = folder.key(folder.metadata(version))
    stated = _STATED.findall(body)
    zeroed = _with_digest(body, _ZEROS)
    if len(stated) != 1 or hashlib.sha256(zeroed).hexdigest().encode() != stated[0][1]:
        raise damaged(name, "its bytes do not match its digest")
    try:
        found = json.loads(body)
        snapshots = {SnapshotId(snapshot["snapshot-id"]): snapshot for snapshot in found["snapshots"]}
        own, current = f"{folder.base}/{folder.relative}", SnapshotId(found["current-snapshot-id"])
        there = {at: each for at, each in snapshots.items() if str(each.get("manifest-list")).startswith(own)}
        of_table = uuid.UUID(found["table-uuid"])
        read = StoredMetadata(
            body,
            of_table,
            version,
            int(found["last-updated-ms"]),
            versions_of(of_table, there),
            tuple(there.values()),
            _stored_log(found, version),
            None if current == NO_SNAPSHOT else snapshots[current],
            stated_specs(found),
        )
        facts = (found["location"], int(found["format-version"]), found["properties"][VERSION])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, f"it is not the metadata of an export: {error!s:.200}") from error
    if facts != (folder.base, int(folder.format_version), str(int(version))):
        raise damaged(name, f"it belongs to {facts[0]}, format {facts[1]}, version {facts[2]}")
    if table_uuid is not None and read.table_uuid != table_uuid:
        raise damaged(name, f"it belongs to table {read.table_uuid}, and this table is {table_uuid}")
    return read


def _stored_log(metadata: Mapping[str, Any], version: Version) -> StoredLog | None:
    properties = metadata["properties"]
    if DEFINITION not in properties:
        return None
    times: dict[Version, int] = {}
    for entry in metadata["metadata-log"]:
        logged = version_of_metadata(entry["metadata-file"])
        if logged is None:
            raise ValueError(f"{entry['metadata-file']:.200} in its metadata log is not an export")
        times[logged] = int(entry["timestamp-ms"])
    return StoredLog(version, times, str(properties[DEFINITION]), LogLimits.of(properties))


def damaged(name: str, reason: str, *, named_by: str | None = None) -> Corrupt:
    """The error for a damaged object of an export. It advises deleting it: exports, and only exports, may be deleted.

    `named_by`: the metadata.json that must be deleted too, so that both are rebuilt.
    """
    what = "this object" if named_by is None else f"this object and {named_by}"
    return Corrupt(
        "export-corrupt", f"{name}: {reason}; delete {what} and export again: an export is made from the table"
    )


def _with_digest(body: bytes, digest: str) -> bytes:
    return _STATED.sub(rb"\g<1>" + digest.encode() + b'"', body)
