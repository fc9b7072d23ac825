"""Reading and verifying each object of a table once, however many roots name it.

Owns: leaves, vector files, definitions and pages during a check, and the facts that can be derived from one object.
Does not own: the agreement of roots with each other (`header`, `live_set`).
Invariants: bytes never raise an error: a fault becomes a finding that names the object, and the object counts as
unreadable. Every byte of a metadata object is read.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import TYPES_OF, Leaf
from rootline.schemas.bytes.leaf_codec import decode_leaf
from rootline.schemas.bytes.leaf_columns import inherited_from
from rootline.schemas.bytes.manifest_codec import decode_manifest
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, LedgerPage, record_in
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES, OutcomePage, covers_of
from rootline.schemas.bytes.root.page_codec import Page, PageKind, location_of
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, RetainedPage
from rootline.schemas.bytes.vector_codec import decode_puffin
from rootline.schemas.content_entry import ContentEntry, EntryPlace, Status
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.findings import CheckSummary, Fault, FindingBook
from rootline.storage.check.header import faults_of_outcomes, faults_of_record
from rootline.storage.metadata.object_reader import read_manifest_vector
from rootline.storage.stored_objects import stored_key
from rootline.tree.proof.adoption import is_adopted
from rootline.tree.state.aggregates import LeafAggregates, aggregates_of
from rootline.tree.state.table_state import NO_PAGES, PAGE_KINDS, TablePages


class LiveKey(NamedTuple):
    """The key of a live entry: its place, and the commit that added the file there."""

    place: EntryPlace
    file_sequence_number: int | None


def key_of(entry: ContentEntry) -> LiveKey:
    """The key by which checks identify a live entry."""
    return LiveKey(entry.place, entry.version_info.file_sequence_number)


@dataclass(slots=True)
class LeafFacts:
    """The facts of one leaf, equal for every root that names it. `is_all_added`: all entries have the status ADDED."""

    leaf: Leaf
    specs: set[int]
    shown_deleted: BitMap
    targets: dict[str, list[int]]  # data file → ordinals of its vectors
    keys: list[LiveKey]
    problems: list[tuple[str, str]] = field(default_factory=list)
    is_all_added: bool = True
    aggregates: dict[tuple[int, ...], LeafAggregates] = field(default_factory=dict)  # by the spec's ids


@dataclass(frozen=True, slots=True)
class BlobFacts:
    """The facts of one vector in a file."""

    referenced_data_file: str
    size_in_bytes: int
    cardinality: int
    last_position: int


@dataclass(frozen=True, slots=True)
class _VectorFile:
    size_in_bytes: int
    blobs: dict[int, BlobFacts]  # by offset


class ObjectCheck:
    """The objects of one table, each read once. A method returns `None` for an unreadable object and adds a finding."""

    def __init__(self, store: ObjectStore, table: TableName, book: FindingBook, summary: CheckSummary) -> None:
        self._store, self._table, self._book, self._summary = store, table, book, summary
        self._leaves: dict[str, LeafFacts | None] = {}
        self._vector_files: dict[str, _VectorFile | None] = {}
        self._definitions: dict[tuple[str, bytes], TableDefinition | None] = {}
        self._pages: dict[tuple[PageKind[Any], PageReference], Page[Any] | None] = {}
        self.named_locations: set[str] = set()
        """The locations of all metadata objects that roots have named."""

    async def definition(self, header: RootHeader) -> TableDefinition | None:
        """The definition that a root names."""
        reference = header.definition
        known = (reference.location, reference.digest)
        if known not in self._definitions:
            self._definitions[known] = await self._read_definition(header)
        return self._definitions[known]

    async def leaf(self, row: ContentEntry, definition: TableDefinition | None = None) -> LeafFacts | None:
        """The leaf that a row of the root names. Its length is compared each time, because each row states a length.

        `definition`: the table's definition, for a leaf that is an Avro manifest.
        """
        if row.location not in self._leaves:
            self._leaves[row.location] = await self._read_leaf(row, definition)
        facts = self._leaves[row.location]
        if facts is not None and facts.leaf.inherited != inherited_from(row):  # its entries inherit other values now
            facts = self._leaves[row.location] = _facts_of(facts.leaf.of_row(row), row)
        if facts is not None and row.file_size_in_bytes != facts.leaf.size_in_bytes:
            key = stored_key(self._table, row.location)
            reason = f"{facts.leaf.size_in_bytes} bytes are stored, its root row states {row.file_size_in_bytes}"
            self._book.add(key, "length-wrong", reason)
        return facts

    def forget_leaves(self, still_named: set[str]) -> None:
        """Free the leaves that are not in `still_named`. If a later root names one nevertheless, it is re-read."""
        for location in self._leaves.keys() - still_named:
            if self._leaves[location] is not None:
                del self._leaves[location]

    async def pages(self, header: RootHeader) -> TablePages | None:
        """The pages that the header names. Frees the pages of earlier roots that it does not name."""
        known = self._pages
        # the retained page of the newest root is read first, and needed last
        self._pages = {item: page for item, page in known.items() if item[0] is RETAINED_PAGES}
        found = NO_PAGES
        for kind in PAGE_KINDS:
            for reference in kind.named_in(header):
                item = kind, reference
                self._pages[item] = known[item] if item in known else await self._read_page(header, kind, reference)
            read = [self._pages[kind, reference] for reference in kind.named_in(header)]
            found = found.having(kind, [page for page in read if page is not None])
        return found if found.are_those_of(header) else None

    async def kept(self, header: RootHeader) -> RetainedPage | None:
        """The page that lists the versions retained below the oldest one, if the header names such a page."""
        for reference in RETAINED_PAGES.named_in(header):
            item = RETAINED_PAGES, reference
            if item not in self._pages:
                self._pages[item] = await self._read_page(header, *item)
            return self._pages[item]
        return None

    async def vector(self, entry: ContentEntry) -> BlobFacts | None:
        """The blob of the deletion vector that `entry` names. A difference between blob and entry is a finding."""
        if entry.location not in self._vector_files:
            self._vector_files[entry.location] = await self._read_vector_file(entry)
        file = self._vector_files[entry.location]
        place = entry.deletion_vector
        if file is None or place is None or place.offset is None:
            return None
        key = stored_key(self._table, entry.location)
        self._summary.vectors += 1
        if entry.file_size_in_bytes is not None and entry.file_size_in_bytes != file.size_in_bytes:
            reason = f"{file.size_in_bytes} bytes are stored, an entry states {entry.file_size_in_bytes}"
            self._book.add(key, "length-wrong", reason)
        blob = file.blobs.get(place.offset)
        if blob is None:
            self._book.add(
                key, "vector-mismatch", f"an entry names a vector at {place.offset}, the file has none there"
            )
            return None
        if blob.size_in_bytes != place.size_in_bytes or blob.cardinality != entry.record_count:
            self._book.add(
                key,
                "vector-mismatch",
                f"the vector at {place.offset} has {blob.size_in_bytes} bytes and {blob.cardinality} positions, "
                f"its entry states {place.size_in_bytes} and {entry.record_count}",
            )
        target = entry.referenced_file or ""
        if blob.referenced_data_file != target and not blob.referenced_data_file.endswith(f"/{target}"):
            reason = f"the vector at {place.offset} is of {blob.referenced_data_file}, its entry states {target}"
            self._book.add(key, "vector-mismatch", reason)
        return blob

    async def manifest_vector(self, entry: ContentEntry) -> BitMap | None:
        """The ordinals of a manifest vector in a Puffin file. If it cannot be read, `None`, and a finding is added."""
        if await self.vector(entry) is None:
            return None
        try:
            return await read_manifest_vector(self._store, self._table, entry)
        except RootlineError as error:
            self._book.add_error(stored_key(self._table, entry.location), error)
            return None

    async def _body(self, location: str) -> tuple[ObjectKey, bytes] | None:
        self.named_locations.add(location)
        key = stored_key(self._table, location)
        try:
            found = await self._store.get(key)
        except Invalid as error:
            self._book.add_error(key, error)
            return None
        if found is None:
            self._book.add(key, "object-missing", "a root names this object, but it does not exist")
            return None
        self._summary.bytes_read += len(found.body)
        return key, found.body

    async def _read_definition(self, header: RootHeader) -> TableDefinition | None:
        reference = header.definition
        found = await self._body(reference.location)
        if found is None:
            return None
        key, body = found
        self._summary.definitions += 1
        if hashlib.sha256(body).digest() != reference.digest:
            reason = f"its digest differs from the one in root {header.version}"
            self._book.add(key, "definition-unreadable", reason)
            return None
        try:
            definition = TableDefinition.from_json(body, name=key)
        except Corrupt as error:
            self._book.add_error(key, error)
            return None
        if definition.table_uuid != header.table_uuid:
            reason = f"it defines table {definition.table_uuid}, root {header.version} is of {header.table_uuid}"
            self._book.add(key, "definition-mismatch", reason)
        return definition

    async def _read_page(self, header: RootHeader, kind: PageKind[Any], reference: PageReference) -> Page[Any] | None:
        found = await self._body(reference.location)
        if found is None:
            return None
        key, body = found
        self._summary.pages += 1
        if reference.location != location_of(reference):
            self._book.add(key, "page-corrupt", "its name does not match its digest")
        try:
            page = kind.decode(body, reference, header.table_uuid, name=key)
            faults = _FAULTS_OF_PAGES[kind](page, header) if kind in _FAULTS_OF_PAGES else []
        except Corrupt as error:
            self._book.add_error(key, error)
            return None
        for fault in faults:
            self._book.add(key, fault.code, fault.reason)
        return page

    async def _read_leaf(self, row: ContentEntry, definition: TableDefinition | None) -> LeafFacts | None:
        if is_adopted(row) and definition is None:
            self._book.add(row.location, "leaf-mismatch", "an Avro manifest, which cannot be read without a definition")
            return None
        found = await self._body(row.location)
        if found is None:
            return None
        key, body = found
        try:
            if is_adopted(row) and definition is not None:
                leaf = decode_manifest(body, definition, row, name=row.location)
            else:
                leaf = decode_leaf(body, location=row.location).of_row(row)
            facts = _facts_of(leaf, row)
        except (Corrupt, Invalid) as error:
            self._book.add_error(key, error)
            return None
        self._summary.leaves += 1
        self._summary.entries += len(facts.leaf)
        for code, reason in facts.problems:
            self._book.add(key, code, reason)
        return facts

    async def _read_vector_file(self, entry: ContentEntry) -> _VectorFile | None:
        found = await self._body(entry.location)
        if found is None:
            return None
        key, body = found
        self._summary.vector_files += 1
        try:
            blobs = decode_puffin(body, name=key)
        except Corrupt as error:
            self._book.add_error(key, error)
            return None
        return _VectorFile(
            len(body),
            {
                blob.place.offset: BlobFacts(
                    blob.referenced_data_file,
                    blob.place.size,
                    blob.place.cardinality,
                    blob.vector.max() if len(blob.vector) else -1,
                )
                for blob in blobs
            },
        )


def aggregates_under(facts: LeafFacts, spec_ids: tuple[int, ...]) -> LeafAggregates:
    """The leaf's aggregates (sums and bounds over its entries) for partition specs of these ids. Computed once."""
    known = facts.aggregates.get(spec_ids)
    if known is None:
        known = facts.aggregates[spec_ids] = aggregates_of(facts.leaf, spec_ids)
    return known


def _facts_of(leaf: Leaf, row: ContentEntry) -> LeafFacts:
    kind = ManifestKind.ADOPTED_LEAF if is_adopted(row) else ManifestKind.LEAF
    facts = LeafFacts(leaf, set(), BitMap(), defaultdict(list), [])
    seen: set[EntryPlace] = set()
    for ordinal, entry in enumerate(leaf.entries()):
        place = entry.place
        facts.keys.append(key_of(entry))
        facts.specs.add(entry.partition_spec_id)
        facts.is_all_added &= entry.version_info.status is Status.ADDED
        facts.problems.extend(("entry-invalid", f"entry {ordinal}: {rule}") for rule in entry_violations(entry, kind))
        if entry.content_type not in TYPES_OF[leaf.content]:
            facts.problems.append(
                ("leaf-mismatch", f"entry {ordinal} is {entry.content_type.name} in a leaf of {leaf.content}")
            )
        if entry.version_info.status is Status.DELETED:
            facts.shown_deleted.add(ordinal)
            continue
        if place in seen:
            facts.problems.append(("entry-doubled", f"entry {ordinal}, {place.location}, is in the leaf twice"))
        seen.add(place)
        if entry.deletion_vector is not None and entry.referenced_file is not None:
            facts.targets[entry.referenced_file].append(ordinal)
    return facts


def _faults_of_ledger_page(page: LedgerPage, header: RootHeader) -> list[Fault]:
    """The faults of the page's records. Raises `Corrupt` if one of the records cannot be read."""
    records = {writer: record_in(page, writer) for writer in page.content.rows}
    return [
        fault
        for writer, record in records.items()
        if record is not None
        for fault in faults_of_record(writer, record, header)
    ]


def _faults_of_outcome_page(page: OutcomePage, header: RootHeader) -> list[Fault]:
    outcomes = page.content.outcomes
    faults = list(faults_of_outcomes(outcomes, header))
    if covers_of(outcomes) != page.reference.covers:
        faults.insert(0, Fault("page-corrupt", f"root {header.version} states other offsets than it covers"))
    return faults


_FAULTS_OF_PAGES: Final[Mapping[PageKind[Any], Callable[[Page[Any], RootHeader], list[Fault]]]] = {
    LEDGER_PAGES: _faults_of_ledger_page,
    OUTCOME_PAGES: _faults_of_outcome_page,
}
