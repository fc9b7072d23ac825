"""The difference that a client made: the files that are live in its list, and not in the list that it built on.

Owns: comparing two lists by their manifests, the entries of manifests that only one of them has, the data file of an
entry, the rules that show an honest difference. Does not own: reading (`client_files`), the intent (`appends`).
Invariants: a manifest that both lists name is not read. Only live entries count, by the location of a file, and of a
Puffin file by the offset too. A removed file needs a DELETED entry, and counts must add up: a list that was made from
another parent than the client names is refused, and never a removal.

Theory. Statuses and snapshot ids of entries are not compared. Some clients copy DELETED entries of old snapshots, and
keep ids. They serve for one check only: a file that is missing from the client's list counts as removed if a manifest
of the client has a DELETED entry for it. It may be in the list of an earlier step, because clients drop manifests
without live entries. A client that reloads a table after a conflict, and forgets to rebuild its
list, has no such entry.

The second check uses the counts in the snapshots' summaries. A file that one step adds and a later one removes is in
both sums and not in the difference. So both sums exceed the difference by the same number, and in a single step by
none. A client whose sources no longer exist, and which therefore adds only the new rows, states a removal that its
list does not make.

Source: the Iceberg specification, "Snapshots", "Manifests".
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rootline.catalog.rest.responses import bad_request
from rootline.rest.bodies import AddedSnapshot
from rootline.rest.client_files import ClientFolder, ClientReads, MetadataMissing
from rootline.rest.refusals import commit_failed
from rootline.schemas.bytes.manifest_codec import ListedManifest
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import ContentEntry, FieldStatistics, FileFormat, Status
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.object_keys import OwnKind, own_kind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import gather_bounded, plain_task_group

_READS_AT_ONCE: Final = 8
_BASES_MAX: Final = 16
_BASE_MANIFESTS_MAX: Final = 1_000
"""The lists of bases in memory, and the manifests of one. Clients that commit at once have few bases."""
_ADDED, _DELETED, _TOTAL = "added-data-files", "deleted-data-files", "total-data-files"


class Place(NamedTuple):
    """A live entry by its file. `offset`: of a vector in a Puffin file."""

    location: str
    offset: int | None = None


_Make = Callable[[Place, ContentEntry], DataFile | None]
"""Makes the file of an entry in an intent, if the entry needs one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes between the client's base and its last list.

    * `added`: data files. `added_deletes`, `removed`, `removed_deletes`: entries of the other kinds of change.
    * `unexplained`: a removed entry without a DELETED entry, or `None`.
    """

    added: tuple[DataFile, ...] = ()
    added_deletes: tuple[Place, ...] = ()
    removed: tuple[Place, ...] = ()
    removed_deletes: tuple[Place, ...] = ()
    unexplained: Place | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of the names of the added files, in hexadecimal."""
        return hashlib.sha256("\0".join(sorted(file.location for file in self.added)).encode()).hexdigest()


async def difference(
    reads: ClientReads, before: str | None, lists: Sequence[str], definition: TableDefinition
) -> Difference:
    """The difference between the manifest list of a client's base and its last list.

    Args:
        reads: reads the lists.
        before: the list of the client's base, `None` for no snapshot.
        lists: of the client's snapshots, in order. All but the last are only read to explain a removal.
        definition: the table's, with the changes of the same commit.

    Raises:
        MetadataMissing: the client's list, or a manifest in it, does not exist.
        Refusal: something in it may not be read, is too large or malformed; the base's list does not exist.
        Invalid: `spec-unknown`, `location-invalid`, `intent-malformed`.
    """
    async with plain_task_group() as group:
        listing = [group.create_task(listed) for listed in (reads.listed(lists[-1]), _base_list(reads, before))]
    theirs, base = (task.result() for task in listing)
    absent = tuple(listed for place, listed in base.items() if place not in theirs)
    new = tuple(listed for place, listed in theirs.items() if place not in base)
    async with reads.of_size((*absent, *new)):
        with _of_base():
            old = await _entries(reads, absent, definition, _nothing)
        made = _MadeFiles(reads.folder, definition, EntryCodec.of_definition(definition), old.data)
        found = await _entries(reads, new, definition, made.of)
    removed = [place for place in (*old.data, *old.deletes) if place not in found.data and place not in found.deletes]
    deleted = found.deleted
    for location in lists[:-1]:
        if deleted.issuperset(removed):
            break
        step = await reads.listed(location)
        steps = tuple(listed for place, listed in step.items() if place not in base and place not in theirs)
        async with reads.of_size(steps):
            deleted |= (await _entries(reads, steps, definition, _nothing)).deleted
    return Difference(
        added=tuple(file for file in found.data.values() if file is not None),
        added_deletes=tuple(place for place in found.deletes if place not in old.deletes),
        removed=tuple(place for place in removed if place in old.data),
        removed_deletes=tuple(place for place in removed if place in old.deletes),
        unexplained=next((place for place in removed if place not in deleted), None),
    )


def check_honest(table: TableName, found: Difference, snapshots: Sequence[AddedSnapshot]) -> None:
    """Check that every removed entry has a DELETED entry, and that the counts of the snapshots add up.

    Raises `Refusal`, after which clients reload the table.
    """
    if found.unexplained is not None:
        raise commit_failed(
            f"{table}: the last manifest list lacks {found.unexplained.location[:200]!r} of its base, and no manifest "
            "has a DELETED entry for it, so the list was made from another snapshot: reload the table"
        )
    summaries = [each.summary for each in snapshots]
    if not all(_TOTAL in each or _ADDED in each or _DELETED in each for each in summaries):
        return
    added, deleted = (sum(_count(table, each, key) for each in summaries) for key in (_ADDED, _DELETED))
    beyond = added - len(found.added)
    if beyond != deleted - len(found.removed) or beyond < 0 or (len(snapshots) == 1 and beyond):
        raise commit_failed(
            f"{table}: the snapshots state that they add {added} data files and delete {deleted}; compared with their "
            f"base they add {len(found.added)} and delete {len(found.removed)}: reload the table"
        )


def check_appends(table: TableName, found: Difference) -> None:
    """Check that data files are added, and nothing else changes. Raises `Refusal`."""
    if found.added_deletes or found.removed_deletes:
        raise bad_request(
            f"{table}: {(*found.added_deletes, *found.removed_deletes)[0].location[:200]!r}: this catalog does not "
            "take deletes of rows yet, only appends: delete rows with rootline.spark.delete_where or rootline.connect"
        )
    if found.removed:
        raise bad_request(
            f"{table}: {found.removed[0].location[:200]!r}: this catalog does not take commits that remove files yet, "
            "only appends: change rows with rootline.spark (delete_where, update_where, merge_into) or rootline.connect"
        )


async def _base_list(reads: ClientReads, location: str | None) -> Mapping[str, ListedManifest]:
    if location is None:
        return {}
    bases = reads.commits.bases
    found = bases.get(location)
    if found is None:
        with _of_base():
            found = await reads.listed(location)
        is_export = own_kind(reads.folder.metadata(location)) is OwnKind.EXPORT_LIST  # others may be overwritten
        if is_export and len(found) <= _BASE_MANIFESTS_MAX:
            bases[location] = found
            while len(bases) > _BASES_MAX:
                del bases[next(iter(bases))]
    return found


@contextmanager
def _of_base() -> Iterator[None]:
    """Read metadata of the client's base in the block. It may have been swept."""
    try:
        yield
    except MetadataMissing as error:
        raise commit_failed(
            f"the snapshot that main is required to be has expired: {error}; reload the table"
        ) from None


async def _entries(
    reads: ClientReads, manifests: Sequence[ListedManifest], definition: TableDefinition, made: _Make
) -> _Entries:
    """The entries of manifests, taken on a thread."""
    found = _Entries()

    async def one(listed: ListedManifest) -> None:
        entries = await reads.entries(listed, definition)
        async with reads.commits.turn(reads.folder.table, listed.length):
            await asyncio.to_thread(found.take, entries, listed.is_data, made)

    await gather_bounded(manifests, one, _READS_AT_ONCE)
    return found


@dataclass(slots=True)
class _Entries:
    """The entries of several manifests. `data`: live data file → the file in an intent, if it has one."""

    data: dict[Place, DataFile | None] = field(default_factory=dict)
    deletes: set[Place] = field(default_factory=set)
    deleted: set[Place] = field(default_factory=set)

    def take(self, entries: Iterable[ContentEntry], is_data: bool, made: _Make) -> None:
        """Add the entries of one manifest."""
        for entry in entries:
            vector = entry.deletion_vector
            place = Place(entry.location, None if vector is None else vector.offset)
            if entry.version_info.status is Status.DELETED:
                self.deleted.add(place)
            elif not is_data:
                self.deletes.add(place)
            elif place in self.data:
                raise bad_request(f"the manifests list the data file {place.location[:200]!r} twice: list it once")
            else:
                self.data[place] = made(place, entry)


def _nothing(_: Place, __: ContentEntry) -> None:
    """Make no file of an entry."""


@dataclass(frozen=True, slots=True)
class _MadeFiles:
    """Makes the data files of an intent from entries. It makes none for a file in `known`."""

    folder: ClientFolder
    definition: TableDefinition
    codec: EntryCodec
    known: Mapping[Place, object]

    def of(self, place: Place, entry: ContentEntry) -> DataFile | None:
        """The file of an entry. Raises `Refusal`, `Invalid`."""
        if place in self.known:
            return None
        if entry.file_format is FileFormat.PUFFIN:
            raise bad_request(
                f"{place.location[:200]!r}: a data file cannot be a Puffin file: write Parquet, ORC or Avro"
            )
        codec, order_id = self.codec.statistics, entry.sort_order_id
        return DataFile(
            location=self.folder.data(entry.location),
            file_format=entry.file_format,
            partition_spec_id=entry.partition_spec_id,
            record_count=entry.record_count,
            file_size_in_bytes=entry.file_size_in_bytes or 0,
            content_stats=codec.encode(
                {key: _plausible(one, entry.record_count) for key, one in entry.content_stats.items()}
            ),
            stats_schema=codec.fingerprint,
            sort_order_id=order_id if order_id in self.definition.sort_order_ids else None,
            split_offsets=entry.split_offsets,
            key_metadata=entry.key_metadata,
        )


def _plausible(one: FieldStatistics, rows: int) -> FieldStatistics:
    """Statistics without counts that cannot be of a file with `rows` rows. Values in lists may be more than rows."""
    values, nulls, nans = one.value_count, one.null_value_count, one.nan_value_count
    if any(count is not None and not 0 <= count <= rows for count in (values, nulls, nans)):
        return replace(one, value_count=None, null_value_count=None, nan_value_count=None)
    return one


def _count(table: TableName, summary: Mapping[str, str], key: str) -> int:
    text = summary.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise bad_request(f"{table}: summary: {key} is {text[:40]!r}: write a whole number")
    return int(text)
