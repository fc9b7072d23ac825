"""Draw the tables of the proposal's figures: build them with intents, and say what a stored root holds, row by row."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    EntryPlace,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind, RemovedFile
from rootline.tree.check.root_diff import Changes, diff
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    BY_CARRIER,
    CARRIER,
    Lake,
    append,
    codes,
    create,
    data_file,
    intent,
    new_entry,
    removed,
    seen_vector,
)

EXISTING, ADDED, DELETED = Status
ROWS_OF_A_FILE: Final = 10


@dataclass(frozen=True, order=True)
class Drawn:
    """One row of a root as a figure draws it; `of` is the referenced file, `bits` the ordinals of a vector."""

    content_type: ContentType
    location: str
    status: Status
    sequence_number: int
    file_sequence_number: int
    of: str | None = None
    bits: tuple[int, ...] = ()


def data(name: str, status: Status, number: int) -> Drawn:
    return Drawn(ContentType.DATA, name, status, number, number)


def vector(name: str, of: str, status: Status, number: int, bits: Iterable[int]) -> Drawn:
    return Drawn(ContentType.POSITION_DELETE, name, status, number, number, of, tuple(bits))


def data_manifest(name: str, status: Status, number: int) -> Drawn:
    return Drawn(ContentType.DATA_MANIFEST, name, status, number, number)


def delete_manifest(name: str, status: Status, number: int, of: str | None = None) -> Drawn:
    return Drawn(ContentType.DELETE_MANIFEST, name, status, number, number, of)


def manifest_vector(of: str, status: Status, number: int, bits: Iterable[int]) -> Drawn:
    return Drawn(ContentType.MANIFEST_DV, of, status, number, number, of, tuple(bits))


@dataclass(frozen=True, order=True)
class Listed:
    """One row of a leaf: what it lists, under which status and sequence number."""

    location: str
    status: Status
    sequence_number: int | None
    of: str | None = None


@dataclass
class Figure:
    """One table; names stand for locations in what it is told and in what it draws."""

    lake: Lake = field(default_factory=Lake)
    names: dict[str, str] = field(default_factory=dict)
    leaves: dict[str, AddedManifest] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.put(create())

    def put(self, *intents: Intent) -> None:
        """One root of these intents, all of which are accepted."""
        verdicts = codes(self.lake.put(*intents))
        assert verdicts == [None] * len(intents)
        assert state_violations(self.lake.head) == []

    def fresh(self) -> str:
        self.steps += 1
        return f"step-{self.steps}"

    def appending(self, *names: str) -> Intent:
        for name in names:
            self.names[_path(name)] = name
        return append(self.fresh(), *(_file(name) for name in names))

    def removing(self, *names: str) -> Intent:
        return intent(IntentKind.REMOVE, self.fresh(), remove_files=tuple(self._removed(name) for name in names))

    def overwriting(self, removes: str, adds: str) -> Intent:
        self.names[_path(adds)] = adds
        return intent(
            IntentKind.OVERWRITE,
            self.fresh(),
            read_sequence_number=self.lake.head.header.snapshot.sequence_number,
            remove_files=(self._removed(removes),),
            add_data_files=(_file(adds),),
        )

    def deleting_rows(self, name: str, of: str, bits: Iterable[int], adds: Iterable[str] = ()) -> Intent:
        """A vector `name` with all deleted rows of data file `of`, and data files beside it."""
        target, added = _path(of), list(adds)
        self.names[f"data/{name}.puffin"] = name
        self.names |= {_path(item): item for item in added}
        return intent(
            IntentKind.ROW_DELTA,
            self.fresh(),
            add_vectors=(self.lake.vector(name, target, bits, seen_vector(self.lake.head, target)),),
            add_data_files=tuple(_file(item) for item in added),
        )

    def appending_leaf(self, leaf: str, *names: str) -> Intent:
        """Data files in a leaf that their writer wrote: all ADDED, nothing but null where the commit gives numbers."""
        return intent(IntentKind.APPEND, self.fresh(), add_manifests=(self._data_leaf(leaf, names),))

    def deleting_rows_in_leaves(
        self,
        data: tuple[str, Iterable[str]] | None,
        vectors: tuple[str, Iterable[tuple[str, str, Iterable[int]]]],
        of: str | None = None,
    ) -> Intent:
        """A leaf of data files, and a delete leaf of vectors (name, data file, positions) that may belong to `of`."""
        leaves = [] if data is None else [self._data_leaf(data[0], data[1])]
        entries = []
        for name, target, bits in vectors[1]:
            self.names[f"data/{name}.puffin"] = name
            added = self.lake.vector(name, _path(target), bits)
            values = partition_statistics(new_entry(_file(target)).content_stats, (CARRIER,))
            entries.append(
                ContentEntry(
                    content_type=ContentType.POSITION_DELETE,
                    location=added.location,
                    file_format=FileFormat.PUFFIN,
                    version_info=VersionInfo(Status.ADDED),
                    partition_spec_id=BY_CARRIER,
                    record_count=added.cardinality,
                    file_size_in_bytes=added.file_size_in_bytes,
                    deletion_vector=DeletionVector(added.offset, added.size_in_bytes),
                    referenced_file=added.referenced_file,
                    content_stats=values,
                )
            )
        belongs_to = None if of is None else self.leaves[of].location
        leaves.append(self._named(vectors[0], self.lake.written_leaf(*entries, belongs_to=belongs_to)))
        read = self.lake.head.header.snapshot.sequence_number
        kind = IntentKind.ROW_DELTA
        return intent(kind, self.fresh(), add_manifests=leaves, read_sequence_number=read)

    def compacting(self, name: str, replaces: Iterable[str]) -> Intent:
        """What is live in the leaves `replaces`, in their order, into leaf `name`."""
        old = [self.leaves[leaf].location for leaf in replaces]
        live = [found for found in self.lake.head.live.entries() if found.leaf in old]
        manifest = self.lake.leaf([found.entry for found in live], leaf_uuid=uuid.uuid5(uuid.NAMESPACE_OID, name))
        return self.lake.compaction(self.fresh(), self._named(name, manifest), replaces=old)

    def settle(self) -> None:
        """A root in which nothing happens: an intent is rejected."""
        [name] = [item for item in self.live() if item.startswith("D")][:1]
        assert codes(self.lake.put(append(self.fresh(), _file(name)))) == ["file-already-live"]

    def _data_leaf(self, leaf: str, names: Iterable[str]) -> AddedManifest:
        listed = list(names)
        self.names |= {_path(name): name for name in listed}
        return self._named(leaf, self.lake.written_leaf(*(new_entry(_file(name)) for name in listed)))

    def _named(self, name: str, manifest: AddedManifest) -> AddedManifest:
        self.leaves[name] = manifest
        self.names[manifest.location] = name
        return manifest

    def flushing(self, name: str, lists: Iterable[str], of: str | None = None) -> Intent:
        """Root rows, by their names, into leaf `name`: of data files, or of vectors (belonging to data leaf `of`)."""
        entries = [self._live_root_row(item) for item in lists]
        is_data = entries[0].content_type is ContentType.DATA
        manifest = self.lake.leaf(
            entries,
            content=LeafContent.DATA if is_data else LeafContent.DELETE,
            leaf_uuid=uuid.uuid5(uuid.NAMESPACE_OID, name),
            belongs_to=None if of is None else self.leaves[of].location,
        )
        return self.lake.flush(self.fresh(), self._named(name, manifest))

    def root(self, version: int = -1) -> list[Drawn]:
        """The rows of a root as its bytes have them, in the order of their types and names."""
        return sorted(self._drawn(row.entry) for row in self._stored(version).rows)

    def leaf(self, name: str) -> list[Listed]:
        """What a stored leaf lists, in ordinals' order."""
        location = self.leaves[name].location
        return [
            Listed(
                self.names[entry.location],
                entry.version_info.status,
                entry.version_info.sequence_number,
                None if entry.referenced_file is None else self.names[entry.referenced_file],
            )
            for entry in decode_leaf(self.lake.objects[location], location=location).entries()
        ]

    def changes(self, version: int = -1) -> Changes:
        """What the root alone says that it changed."""
        return diff(self._stored(version), self.lake.leaves)

    def came(self, version: int = -1) -> list[str]:
        return [self.names[entry.location] for entry in self.changes(version).added]

    def went(self, version: int = -1) -> list[str]:
        return [self.names[entry.location] for entry in self.changes(version).removed]

    def live(self) -> list[str]:
        """The data files and vectors that are live, as a reader finds them who has the bytes only."""
        return sorted(self.names[found.entry.location] for found in self.lake.reloaded().live.entries())

    def numbers(self, name: str) -> tuple[int | None, int | None, int | None, int | None]:
        """Snapshot id, both sequence numbers and first row id of a live data file, as its readers see them."""
        found = self.lake.reloaded().find(EntryPlace(ContentType.DATA, _path(name)))
        assert found is not None
        info = found.entry.version_info
        return info.snapshot_id, info.sequence_number, info.file_sequence_number, found.entry.first_row_id

    def _stored(self, version: int) -> Root:
        return decode_root(self.lake.bodies[version], name=f"root {version}")

    def _drawn(self, entry: ContentEntry) -> Drawn:
        info = entry.version_info
        assert info.snapshot_id is not None
        assert info.sequence_number is not None
        assert info.file_sequence_number is not None
        bits: Iterable[int] = ()
        if entry.content_type is ContentType.MANIFEST_DV:
            bits = ordinals_of_vector(entry)
        elif entry.content_type is ContentType.POSITION_DELETE:
            bits = self.lake.positions(entry)
        return Drawn(
            entry.content_type,
            self.names[entry.location],
            info.status,
            info.sequence_number,
            info.file_sequence_number,
            None if entry.referenced_file is None else self.names[entry.referenced_file],
            tuple(bits),
        )

    def _removed(self, name: str) -> RemovedFile:
        return removed(_path(name), seen_vector(self.lake.head, _path(name)))

    def _live_root_row(self, name: str) -> ContentEntry:
        rows = self.lake.head.live.rows
        row = rows.get(EntryPlace(ContentType.DATA, _path(name)))
        return (row or rows[EntryPlace(ContentType.POSITION_DELETE, f"data/{name}.puffin", 4)]).entry


def _file(name: str) -> DataFile:
    return data_file(name, rows=ROWS_OF_A_FILE)


def _path(name: str) -> str:
    return f"data/{name}.parquet"
