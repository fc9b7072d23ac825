"""Fetches the objects that a batch needs before it can be applied, and checks its data files.

Owns: the table of the kinds of needs (a *need* is an object that a rule must read: a leaf, a vector, a footer, …), the
reads, proving leaves outside the event loop (a leaf is proven if its rows obey the rules of its table), the source
objects of an adoption from an Iceberg table, the prefetch of footers and its limit. Does not own: the choice of objects
(`rootline.tree.commit.apply`), the kinds of needs (each beside its rule in `rootline.tree`), their formats
(`rootline.schemas`), the proofs (`rootline.tree.proof.leaf_proof`, `rootline.tree.proof.adoption`), the prefetch of
leaves (`table_loop`), reading a footer (`rootline.storage.rows.file_footers`).
Invariants: absent or unreadable objects become `Absent`, so only the intent that named them is rejected, whatever is
wrong with them. Corrupt objects are read twice first. An unavailable *store* raises instead, because it proves
nothing. A prefetch records success only. Any other result is checked when the batch needs it, so a file that was
stored late, or a store outage, rejects no intent. Nothing is written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from pyroaring import BitMap, BitMap64

from rootline.library_log import library_logger
from rootline.ports.object_store import LongObject, ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, is_quickly_decoded
from rootline.schemas.bytes.root.foreign_names import ForeignNameNotes
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedPage, is_condemned
from rootline.schemas.bytes.root.page_codec import Page
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector_codec import VECTOR_MAGIC as MAGIC
from rootline.schemas.bytes.vector_codec import decode_vector
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Internal, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.object_keys import is_absolute, resolved, root_key, table_in
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata import object_reader as leaf_reader
from rootline.storage.metadata.object_reader import INLINE_DECODE_BYTES_MAX, read_leaves
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.storage.metadata.read_cache import mapped
from rootline.storage.metadata.root_reader import find_head, named_definition, names_of_folders, proven_root, read_root
from rootline.storage.rows.file_footers import FooterReader
from rootline.storage.stored_objects import get_up_to, read_stored, stored_dates, stored_key
from rootline.tree.commit.arrival_rules import DateNeed
from rootline.tree.draft.batch import ABSENT, Absent, FetchedObjects, Need, Needs, PageNeed, Record
from rootline.tree.intents.create_drop import AdoptedTable, AdoptionNeed
from rootline.tree.intents.restore import DefinitionNeed, RootNeed
from rootline.tree.proof.adoption import adopted_state, invalid, leaves_of, proven_adopted
from rootline.tree.proof.file_proof import StatedFile, verifies_files
from rootline.tree.proof.leaf_proof import LeafProof, prove_leaf
from rootline.tree.rules.file_rules import FileNeed, is_in_place, stated
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.rules.vector_rules import UNKNOWN_SIZE, VectorNeed
from rootline.tree.state.leaf_lookup import live_mask
from rootline.tree.state.table_state import TableState

__all__ = ["FILES_AHEAD_MAX", "FooterPrefetch"]

FILES_AHEAD_MAX: Final = 4_096


class FooterPrefetch:
    """Checks the data files that one table's waiting records name, before a batch needs the results."""

    def __init__(self, store: ObjectStore, table: TableName) -> None:
        self.reader = FooterReader(store, table)
        self._table = table
        self._looks: dict[StatedFile, asyncio.Task[bool]] = {}

    def expect(self, records: Iterable[Record], definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        """Start to check the files that `records` name, up to a limit. Does nothing if the table verifies no files."""
        if definition is None or not verifies_files(definition):
            return
        for record in records:
            for file in map(stated, record.intent.add_data_files):
                if len(self._looks) >= FILES_AHEAD_MAX:
                    return
                if file not in self._looks and is_in_place(file):
                    self._looks[file] = tasks.create_task(self._look(file), name=f"checking {file.location}")

    def keep(self, records: Sequence[Record]) -> None:
        """Drop the checks of files that `records` do not name. Skipped while records wait and there is room."""
        if not self._looks or (records and len(self._looks) < FILES_AHEAD_MAX):
            return
        named = {stated(file) for record in records for file in record.intent.add_data_files}
        for file in self._looks.keys() - named:
            self._looks.pop(file).cancel()

    async def fault_of(self, file: StatedFile) -> Invalid | None:
        """The fault of `file`, or `None`. Reads the footer, unless the file was prefetched and has no fault.

        Raises:
            Unavailable: the store does not answer.
        """
        look = self._looks.pop(file, None)
        if look is not None:
            await asyncio.wait({look})
            if not look.cancelled() and look.result():
                return None
        return await self.reader.fault_of(file)

    async def _look(self, file: StatedFile) -> bool:
        try:
            return await self.reader.fault_of(file) is None
        except (RootlineError, TimeoutError):
            return False
        except Exception:  # our bug or a store adapter's must not end the table's task
            library_logger().exception("file not checked ahead", action="retry", table=self._table)
            return False


_OWNERS_FEW: Final = 16
_TABLE_FOLDER: Final = re.compile(r"/(?=([^/]+/[^/]+/)(?:data|metadata|export)/)")


async def read_adopted(
    store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition
) -> AdoptedTable | Invalid:
    """Read the Iceberg snapshot that `table` adopts as its first state. Returns the state, or why it is refused.

    Raises:
        Unavailable: the store does not answer.
    """
    fault = invalid(f"adopted root {named.location!r} cannot be read")
    for _ in range(2):  # a truncated response looks like a broken object
        try:
            return await _read(store, table, named, definition)
        except Invalid as error:
            fault = error
        except Corrupt as error:
            fault = invalid(error.message)
        except RootlineError:
            raise
        except Exception as error:  # foreign bytes: a decoder that fails on them rejects the intent
            library_logger().exception("adopted root unreadable", action="reject", table=table)
            fault = invalid(f"adopted root {named.location!r} cannot be read ({type(error).__name__})")
    return fault


async def _read(store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition) -> AdoptedTable:
    body = await read_stored(store, table, named.location, code="adoption-invalid", length=named.file_size_in_bytes)
    root = await asyncio.to_thread(proven_adopted, body, named, table, definition)
    leaves = await read_leaves(store, table, leaves_of(root), definition=definition)
    state = await asyncio.to_thread(_state, root, definition, leaves)
    await _check_not_condemned(store, table, await asyncio.to_thread(_locations, leaves, state.live.dead))
    return AdoptedTable(state, await asyncio.to_thread(_foreign_names, leaves))


def _foreign_names(leaves: Mapping[str, Leaf]) -> bytes:
    notes = ForeignNameNotes()
    notes.reference(_locations(leaves))
    return notes.names().to_bytes()


async def _check_not_condemned(store: ObjectStore, table: TableName, locations: Sequence[str]) -> None:
    """Refuse files that another table of this warehouse is about to delete.

    The sweep of that table, which deletes its removed files, searched for references before this adoption. A table that
    cannot be read is skipped, because its sweep cannot run either.

    Raises:
        Invalid: `file-removed`.
    """
    owners = await asyncio.to_thread(_owners, locations)
    if len(owners) > _OWNERS_FEW:  # one listing instead of a request for each folder, of which many do not exist
        unread: list[Unavailable] = []
        there = await names_of_folders(store, unread)
        owners = owners if unread else owners & set(there)
    for owner in sorted(owners):
        head = await find_head(store, owner)
        if head is None or owner == table:
            continue
        try:
            pages = await read_pages_of(store, (await read_root(store, owner, head.version)).header, CONDEMNED_PAGES)
        except Corrupt:
            continue
        found = await asyncio.to_thread(_first_condemned, locations, owner, pages) if pages else None
        if found is not None:
            raise Invalid(
                "file-removed",
                f"{table}: {found!r} was removed from table {owner}, and will soon be deleted: adopt a snapshot "
                f"without it, or copy it out of the folder of {owner} first",
            )


def _locations(leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap] | None = None) -> list[str]:
    """The absolute locations of the leaves and of their entries. With `dead`, only of live entries."""
    found = [location for location in leaves if is_absolute(location)]
    for location, leaf in leaves.items():
        columns = leaf.columns(["location", "version_info.status"])
        named = columns.column("location")
        if dead is not None:
            named = named.filter(live_mask(columns, dead.get(location)))
        found += filter(is_absolute, named.to_pylist())
    return found


def _owners(locations: Iterable[str]) -> set[TableName]:
    """The tables of this warehouse whose folders may contain the locations, judged by the ends of the paths."""
    folders = {resolved(location).rpartition("/")[0] for location in locations}
    found = {table_in(pair[1]) for folder in folders for pair in _TABLE_FOLDER.finditer(f"{folder}/")}
    return {name for name in found if name is not None}


def _first_condemned(locations: Iterable[str], owner: TableName, pages: Sequence[CondemnedPage]) -> str | None:
    return next((location for location in locations if is_condemned(location, owner, pages)), None)


def _state(root: Root, definition: TableDefinition, leaves: dict[str, Leaf]) -> TableState:
    state = adopted_state(root, definition, {location: leaf.kept_by(mapped) for location, leaf in leaves.items()})
    state.live.locations.build()
    return state


_LENGTH_BYTES = 4
_READS_AT_ONCE = 16
_OBJECT_BYTES_MAX = 1 << 30
"""Limit of an object that an intent names: a leaf, a page, a Puffin file."""
_CRC_BYTES = 4
_TIMES = 4
"""Limit of the total size of an intent's vectors in one file, as a multiple of the file's size."""


class LeavesAhead(Protocol):
    """Prefetched leaves and checked files."""

    @property
    def files(self) -> FooterPrefetch:
        """The prefetch of footers."""
        ...

    async def find(self, location: str) -> ReadLeaf | Absent | None:
        """The prefetched leaf at `location`, or `None` if it was not prefetched."""
        ...


@dataclass(frozen=True, slots=True)
class _Source:
    """The store and the prefetches of one batch. `slots` limits the concurrent reads of leaves and vectors."""

    store: ObjectStore
    table: TableName
    ahead: LeavesAhead | None
    files: FooterPrefetch
    slots: asyncio.Semaphore


async def fetch_objects(
    store: ObjectStore, table: TableName, needs: Needs, ahead: LeavesAhead | None = None
) -> FetchedObjects:
    """Read all objects that `needs` names. Takes leaves and checks of files from `ahead` if they are there.

    Raises:
        Unavailable: the store does not answer.
    """
    files = FooterPrefetch(store, table) if ahead is None else ahead.files
    source = _Source(store, table, ahead, files, asyncio.Semaphore(_READS_AT_ONCE))
    found: dict[Need[object], object] = {}
    for kind, fetch in _FETCHERS.items():
        if requested := [need for need in needs if isinstance(need, kind)]:
            found |= await fetch(source, requested)
    unfetched = [need for need in needs if need not in found]
    if unfetched:
        raise Internal("invariant-broken", f"{table}: no code fetches {unfetched[0]!r:.300}; report a bug")
    return FetchedObjects(found)


T = TypeVar("T")
N = TypeVar("N", bound=Need[object])


async def _leaves(source: _Source, needs: list[LeafNeed]) -> dict[LeafNeed, ReadLeaf | Absent]:
    """All leaves, read concurrently."""
    needs = sorted(needs, key=attrgetter("location"))
    found = await asyncio.gather(*(_leaf(source, need) for need in needs))
    return dict(zip(needs, found, strict=True))


async def _leaf(source: _Source, need: LeafNeed) -> ReadLeaf | Absent:
    store, table, location, files = source.store, source.table, need.location, source.files
    found = None if source.ahead is None else await source.ahead.find(location)
    if need.older is not None:
        return await read_older_leaf(store, table, *need.older)
    if found is None:
        async with source.slots:
            return await read_leaf(store, table, need, files.reader)
    proving, prefixes = need.proving, need.prefixes
    if isinstance(found, ReadLeaf) and proving is not None and _is_to_be_proven(found.proof, proving, prefixes):
        proof = await asyncio.to_thread(prove_leaf, found.leaf, proving, prefixes)
        return await _with_its_files(ReadLeaf(found.leaf, proof), files.reader)
    return found


async def _vectors(source: _Source, needs: list[VectorNeed]) -> dict[VectorNeed, BitMap64 | Absent]:
    """All vectors. Each Puffin file is read once."""

    async def read_file(location: str, places: list[VectorNeed]) -> dict[VectorNeed, BitMap64 | Absent]:
        async with source.slots:
            body = await _body(source.store, source.table, location)
        if body is None or len(body) <= INLINE_DECODE_BYTES_MAX:
            return vectors_at(body, places)
        return await asyncio.to_thread(vectors_at, body, places)

    by_file = groupby(sorted(needs), key=attrgetter("location"))
    found = await asyncio.gather(*(read_file(location, list(places)) for location, places in by_file))
    return {place: vector for vectors in found for place, vector in vectors.items()}


async def _files(source: _Source, needs: list[FileNeed]) -> dict[FileNeed, Invalid | None]:
    """The faults of all files, whose footers are read concurrently."""
    faults = await asyncio.gather(*(source.files.fault_of(need.file) for need in needs))
    return dict(zip(needs, faults, strict=True))


async def _dates(source: _Source, needs: list[DateNeed]) -> dict[DateNeed, int | Absent]:
    """All dates, requested together."""
    dates = await stored_dates(source.store, source.table, sorted(need.location for need in needs))
    return {DateNeed(location): ABSENT if ms is None else ms for location, ms in dates.items()}


def _one_by_one(read: Callable[[_Source, N], Awaitable[object]]) -> Callable[[_Source, list[N]], Awaitable[Any]]:
    """A function that calls `read` for each need, one after the other."""

    async def fetch(source: _Source, needs: list[N]) -> dict[N, object]:
        return {need: await read(source, need) for need in needs}

    return fetch


async def read_leaf(store: ObjectStore, table: TableName, need: LeafNeed, files: FooterReader) -> ReadLeaf | Absent:
    """Read a leaf, prove it, and check its files if the table verifies files.

    Raises:
        Unavailable: the store does not answer.
    """
    found: ReadLeaf | Absent = ABSENT
    for _ in range(2):  # a truncated response looks like a broken leaf
        body = await _body(store, table, need.location)
        if body is None:
            return ABSENT
        if is_quickly_decoded(body):  # a thread would cost more
            found = _decoded(body, table, need)
        else:
            found = await asyncio.to_thread(_decoded, body, table, need)
        if isinstance(found, ReadLeaf):
            return await _with_its_files(found, files)
    return found


def _is_to_be_proven(proof: LeafProof | None, definition: TableDefinition, prefixes: Sequence[str]) -> bool:
    """Whether a prefetched leaf must be proven, because it has no proof, one for another definition, or a fault.

    A file that was missing may have been stored since.
    """
    if proof is None or not proof.is_under(definition, prefixes):
        return True
    return verifies_files(definition) and (proof.file_faults is None or len(proof.file_faults) > 0)


async def _with_its_files(found: ReadLeaf, files: FooterReader) -> ReadLeaf:
    """`found` with the first fault of its data files, if the table verifies files."""
    leaf, proof = found.leaf, found.proof
    if proof is None or not verifies_files(proof.definition):
        return found
    fault = await files.fault_in(leaf, proof.prefixes) if leaf.content is LeafContent.DATA else None
    return ReadLeaf(leaf, replace(proof, file_faults=() if fault is None else (fault,)))


async def read_older_leaf(
    store: ObjectStore, table: TableName, row: ContentEntry, definition: TableDefinition
) -> ReadLeaf | Absent:
    """Read a manifest of an older Iceberg format as a leaf. Raises `Unavailable` if the store does not answer."""
    found = ABSENT
    for _ in range(2):
        try:
            return ReadLeaf(await leaf_reader.read_leaf(store, table, row, definition=definition))
        except (Corrupt, Invalid) as error:
            found = Absent(error.message)
    return found


async def _page(source: _Source, need: PageNeed[T]) -> Page[T] | Absent:
    """The page (an object with a part of a root's state) that an intent names. Absent if it is not stored there."""
    named, name = need.page, stored_key(source.table, need.page.location)
    size = named.file_size_in_bytes
    for _ in range(2):
        body = await _body(source.store, source.table, named.location)
        if body is None:
            return ABSENT
        try:
            return need.kind.decode_stored(body, named.location, named.digest, size, need.table_uuid, name=name)
        except RootlineError as error:
            reason = error.message
            library_logger().warning("page unreadable", action="reject", table=source.table, reason=reason)
    return ABSENT


async def _root(source: _Source, need: RootNeed) -> Root | Absent:
    """An older root."""
    table, version = source.table, need.version
    for _ in range(2):
        found = await source.store.get(root_key(table, version))
        if found is None:
            return ABSENT
        try:
            return await asyncio.to_thread(proven_root, found.body, table, version)
        except RootlineError:
            library_logger().exception("root unreadable", action="reject", table=table, version=version)
    return ABSENT


async def _definition(source: _Source, need: DefinitionNeed) -> TableDefinition | Absent:
    """An older definition."""
    for _ in range(2):
        try:
            return await named_definition(source.store, source.table, need.reference, need.table_uuid)
        except (Corrupt, Invalid) as error:
            reason = error.message
            library_logger().warning("definition unreadable", action="reject", table=source.table, reason=reason)
    return ABSENT


async def _adopted(source: _Source, need: AdoptionNeed) -> AdoptedTable | Invalid:
    return await read_adopted(source.store, source.table, need.root, need.definition)


_Fetch = Callable[[_Source, list[Any]], Awaitable[Mapping[Any, object]]]
_FETCHERS: Final[Mapping[type[Need[Any]], _Fetch]] = {
    LeafNeed: _leaves,
    VectorNeed: _vectors,
    RootNeed: _one_by_one(_root),
    AdoptionNeed: _one_by_one(_adopted),
    PageNeed: _one_by_one(_page),
    DateNeed: _dates,
    FileNeed: _files,
    DefinitionNeed: _one_by_one(_definition),
}
"""The function that fetches all objects of a kind of need, in the order in which kinds are fetched."""


async def _body(store: ObjectStore, table: TableName, location: str) -> bytes | None:
    try:
        found = await get_up_to(store, stored_key(table, location), _OBJECT_BYTES_MAX)
    except Invalid:
        return None  # no store accepts such a key, or this store cannot read it
    if isinstance(found, LongObject):
        reason = f"it has {found.length} bytes, the limit is {_OBJECT_BYTES_MAX}"
        library_logger().warning("object too long", action="reject", table=table, location=location, reason=reason)
        return None
    return None if found is None else found.body


def _decoded(body: bytes, table: TableName, need: LeafNeed) -> ReadLeaf | Absent:
    try:
        leaf = decode_leaf(body, location=need.location, is_new=True)
        proof = None if need.proving is None else prove_leaf(leaf, need.proving, need.prefixes)
        return ReadLeaf(leaf.kept_by(mapped), proof)
    except RootlineError as error:
        return Absent(error.message.removeprefix(f"{need.location}: "))
    except Exception as error:  # a writer's bytes: a decoder that fails on them rejects that intent only
        library_logger().exception("leaf unreadable", action="reject", table=table, location=need.location)
        return Absent(f"it cannot be read ({type(error).__name__})")


def vectors_at(puffin: bytes | None, places: Sequence[VectorNeed]) -> dict[VectorNeed, BitMap64 | Absent]:
    """The vector at each place in the Puffin file's bytes. It is absent if no valid blob of that size begins there.

    Blobs may overlap. So a vector is also absent once the decoded bytes exceed `_TIMES` times the file's size.
    """
    found: dict[VectorNeed, BitMap64 | Absent] = {}
    left = 0 if puffin is None else _TIMES * len(puffin)
    for place in places:
        size = 0 if puffin is None else _size_at(puffin, place)
        left -= size
        if puffin is None or size == 0 or left < 0:
            found[place] = ABSENT
        else:
            found[place] = _vector_in(puffin[place.offset : place.offset + size], place)
    return found


def _size_at(puffin: bytes, place: VectorNeed) -> int:
    """The size in bytes of the blob at `place`, or 0 if no blob of the stated sizes is there."""
    start = place.offset
    length = int.from_bytes(puffin[start : start + _LENGTH_BYTES], "big")
    size = _LENGTH_BYTES + length + _CRC_BYTES
    if length == 0 or start + size > len(puffin) or place.size_in_bytes not in (UNKNOWN_SIZE, size):
        return 0
    if place.file_size_in_bytes not in (UNKNOWN_SIZE, len(puffin)) or not puffin.startswith(
        MAGIC, start + _LENGTH_BYTES
    ):
        return 0
    return size


def _vector_in(blob: bytes, place: VectorNeed) -> BitMap64 | Absent:
    try:
        return decode_vector(blob, name=place.location)
    except RootlineError:
        return ABSENT
    except Exception:
        library_logger().exception("vector unreadable", action="reject", location=place.location)
        return ABSENT
