"""Reads which objects in the folder of a swept table are named by other tables of the warehouse.

Only an adopted table names objects outside its folder: its first root took over the files of an Iceberg table without
copying them. Such objects must not be deleted by the sweep of the table in whose folder they are.

Owns: the reads, their order, the cache of results for a table. Does not own: the set of names and the proof that it
never grows (`rootline.schemas.bytes.root.foreign_names`), the choice (`orphan_sweep_plan`), deletion (`sweep_job`).
Invariants: a table that never adopted anything costs one LIST, is never read, and protects nothing. A table that
adopted files and cannot be read protects the files that it adopted. If those are not known, it protects all files that
other engines may name, and no more. An adoption without a verdict counts as committed.

Theory. An adoption needs an object below `metadata/adopted/` of the new table's folder before the table's first root is
made, and nothing ever deletes that object. So a table without such an object names nothing outside its folder. That
fact is cached for less than the retention of condemned objects: a later adoption finds the page that condemns them, and
its coordinator refuses condemned files. The *bound* of a table is the set of all names that it can ever have: those
that it adopted. It is cached for the same time. The coordinator stores the bound with the first root, so that no damage
makes it unknown. For a table that an earlier version adopted, it is read once from the manifests, and stored then. The
table itself (all of its roots that exist, leaves, manifests, exports) is read only if the bound contains files that are
about to be deleted.

Source: decision 0105.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rootline.library_log import library_logger
from rootline.maintenance.limits import SweepLimits
from rootline.maintenance.orphan_sweep_plan import Inventory
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.manifest_codec import files_named
from rootline.schemas.bytes.root.foreign_names import (
    ForeignNameNotes,
    ForeignNames,
    names_of_adopted,
    names_read_later,
)
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.errors import Corrupt, RootlineError, Unavailable
from rootline.schemas.identifiers import CLOCKS_APART_MS, ObjectKey, TableName
from rootline.schemas.object_keys import (
    OwnKind,
    key_of,
    own_kind,
    table_prefix,
)
from rootline.storage.metadata.root_reader import find_head, names_of_folders, read_root
from rootline.storage.stored_objects import gather_bounded, read_file, read_stored
from rootline.tree.proof.adoption import (
    ADOPTED_PREFIX,
    LEAVES_BYTES_MAX,
    LEAVES_MAX,
    adopted_location,
    is_adopted_location,
    leaves_of,
)
from rootline.workers.jobs.job import stored_roots
from rootline.workers.jobs.sweep_reads import References, mark_exports

_log = library_logger("rootline.workers")
_LOOKS_AT_ONCE: Final = 16


class Neighbours(NamedTuple):
    """The outcome of a check of all other tables.

    * `are_known`: whether it is known for every table which objects it names.
    * `kept`: whether another table names an object that would have been deleted.
    * `troubles`: a sentence for each unreadable table that may name objects here, which are therefore kept.
    """

    are_known: bool
    kept: bool
    troubles: tuple[str, ...]


class _Names(NamedTuple):
    """The objects outside its folder that one table names, or `None` if they are not known.

    `trouble`: the part of the table that could not be read.
    """

    names: ForeignNames | None
    trouble: str = ""


class _Known(NamedTuple):
    """The bound of a table, with the store's time (ms) at which it was read."""

    store_ms: int
    bound: ForeignNames


_NOTHING: Final = ForeignNames.of(())


@dataclass(frozen=True, slots=True)
class _Look:
    """The values that all checks of one sweep share.

    * `undecided_ms`: an adoption whose object was stored before this time has a verdict by now.
    * `known_ms`: the time for which cached facts about a table are valid.
    * `stores`: whether bounds that were read may be stored.
    """

    inventory: Inventory
    remover: ObjectRemover
    store_ms: int
    undecided_ms: int
    known_ms: int
    stores: bool


class NeighbourReads:
    """The reads of all sweeps in one process, with a shared cache."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[TableName, _Known] = {}
        self._bounds: dict[str, ForeignNames] = {}
        """The upper bound of each table that adopted files, by the key of the object that stores it."""

    async def mark(
        self,
        table: TableName,
        inventory: Inventory,
        remover: ObjectRemover,
        limits: SweepLimits,
        *,
        store_ms: int,
        stores: bool,
    ) -> Neighbours:
        """Mark the objects in the inventory of `table` that other tables name.

        Args:
            table: the table that is swept. Its own references are marked already.
            inventory: the objects to mark.
            remover: lists with dates.
            limits: the table's limits. They have the age after which every intent has a verdict, and the retention of
                condemned objects.
            store_ms: the store's own time now.
            stores: whether to store bounds that were read.

        Raises:
            Unavailable: the warehouse cannot be listed.
        """
        undecided_ms = store_ms - limits.orphan_age_ms - CLOCKS_APART_MS
        known_ms = limits.scan_retention_ms - CLOCKS_APART_MS
        look = _Look(inventory, remover, store_ms, undecided_ms, known_ms, stores)
        unread: list[Unavailable] = []
        names = await names_of_folders(self._store, unread)  # also names without a root, which may soon be stored
        others = [name for name in names if name != table and not self._names_nothing_of(name, look)]
        found = await gather_bounded(others, lambda name: self._look(name, look), _LOOKS_AT_ONCE)
        are_known, has_kept = not unread, False
        troubles = [
            f"{table}: the tables of a namespace cannot be listed ({error.message}): no file here that other engines "
            "may name is deleted. Repair that folder, or move it out of the warehouse"
            for error in unread
        ]
        for name, item in zip(others, found, strict=True):
            if item.names is None:
                are_known = False
                troubles.append(
                    f"{table}: {name} adopted files and cannot be read ({item.trouble}): no file here that other "
                    f"engines may name is deleted. Repair {name}, or move its folder out of the warehouse"
                )
                continue
            count = inventory.keep_foreign(item.names)
            has_kept = has_kept or bool(count)
            if count:
                facts = {"table": table, "neighbour": name, "objects": count}
                _log.info("files kept for another table", action="sweep-kept-for-neighbour", **facts)
            if count and item.trouble:
                troubles.append(
                    f"{table}: {count} objects that {name} adopted are kept, because it cannot be read "
                    f"({item.trouble}). Repair {name}, or move its folder out of the warehouse"
                )
        return Neighbours(are_known, has_kept, tuple(troubles))

    def _names_nothing_of(self, name: TableName, look: _Look) -> bool:
        """Whether, by the cache, table `name` names none of the objects that are about to be deleted."""
        known = self._known.get(name)
        if known is None or not 0 <= look.store_ms - known.store_ms < look.known_ms:
            return False
        return not len(look.inventory.unneeded_of(known.bound))

    async def _look(self, name: TableName, look: _Look) -> _Names:
        try:
            listed = await _listed(look.remover, name, ADOPTED_PREFIX)
            adopted = {location: ms for location, ms in listed.items() if is_adopted_location(location)}
            if not adopted:
                self._known[name] = _Known(look.store_ms, _NOTHING)
                return _Names(_NOTHING)
            has_root = await find_head(self._store, name) is not None
        except Exception as error:  # foreign names: an adapter that fails on them stops no other table
            return _Names(None, _reason(error))
        if not has_root and max(adopted.values()) < look.undecided_ms:
            return _Names(_NOTHING)
        key = key_of(name, names_read_later(list(adopted)))
        trouble: Exception | None = None
        if key not in self._bounds:
            try:
                self._bounds[key] = await self._bound(name, adopted, key, look)
            except Exception as error:  # foreign bytes: a decoder that fails on them stops no other table
                trouble = error
        bound = self._bounds.get(key)
        if not has_root:
            if bound is None and not isinstance(trouble, (Unavailable, TimeoutError)):
                return _Names(_NOTHING)  # no coordinator adopts damaged or unreadable objects
            return _Names(bound, _reason(trouble))
        if bound is not None:
            self._known[name] = _Known(look.store_ms, bound)
            if not len(look.inventory.unneeded_of(bound)):
                return _Names(_NOTHING)
        try:
            names = await self._named_now(name, look)
        except Exception as error:  # as above
            return _Names(bound, "; ".join(filter(None, (_reason(trouble), _reason(error)))))
        if bound is None:
            self._bounds[key] = names
            await self._store_bound(key, names, look)
        return _Names(names)

    async def _bound(self, name: TableName, adopted: Mapping[str, int], key: str, look: _Look) -> ForeignNames:
        """The bound of table `name`, from the objects in `adopted`. Raises `Unavailable`, `Corrupt`.

        Only one of these objects became the table's first root, and it is not known which. So the bound includes the
        names of all of them.
        """
        stored = {at: await self._stored_bound(key_of(name, names_of_adopted(at))) for at in adopted}
        absent = [at for at, names in stored.items() if names is None]
        later = await self._stored_bound(key) if absent else None
        if later is not None:
            return later
        found = [names for names in stored.values() if names is not None]
        found += [await self._read_bound(name, at) for at in absent]
        names = ForeignNames(np.unique(np.concatenate([item.hashes for item in found])))
        if absent:
            await self._store_bound(key, names, look)
        return names

    async def _stored_bound(self, key: str) -> ForeignNames | None:
        """The bound that is stored at `key`, or `None` if the object is absent or damaged."""
        stored = await self._store.get(ObjectKey(key))
        try:
            return None if stored is None else await asyncio.to_thread(ForeignNames.from_bytes, stored.body, name=key)
        except Corrupt as error:
            _log.warning("foreign names are damaged and re-read", action="foreign-names-damaged", reason=error.message)
            return None

    async def _read_bound(self, name: TableName, location: str) -> ForeignNames:
        """The objects that the adopted root at `location` and its manifests name. Raises `Unavailable`, `Corrupt`."""
        notes = ForeignNameNotes()
        body = await read_stored(self._store, name, location, code="adoption-invalid")
        root = await asyncio.to_thread(decode_root, body, name=key_of(name, location))
        if adopted_location(root.digest) != location:
            raise Corrupt("root-corrupt", f"{key_of(name, location)}: its bytes do not match the digest in its name")
        rows = leaves_of(root)
        if len(rows) > LEAVES_MAX or sum(row.file_size_in_bytes or 0 for row in rows) > LEAVES_BYTES_MAX:
            raise Corrupt("root-corrupt", f"{key_of(name, location)}: it names too many manifests to be adopted")
        for row in rows:
            notes.reference([row.location])
            manifest = await read_file(self._store, name, row, code="leaf-corrupt")
            notes.reference(await asyncio.to_thread(files_named, manifest, name=row.location))
        return notes.names()

    async def _store_bound(self, key: str, names: ForeignNames, look: _Look) -> None:
        """Store the bound, so that it is known even when the table can no longer be read. A failure is only logged."""
        if look.stores:
            try:
                await self._store.put_if_absent(ObjectKey(key), names.to_bytes())
            except RootlineError as error:
                _log.warning("foreign locations not stored", action="foreign-names-not-stored", reason=error.message)

    async def _named_now(self, name: TableName, look: _Look) -> ForeignNames:
        """The objects outside its folder that the roots and exports of `name` name. Raises `Unavailable`, `Corrupt`."""
        head = await find_head(self._store, name)
        if head is None:
            raise Unavailable("store-unavailable", f"{name}: the store lists no root of it any more: retry")
        root = await read_root(self._store, name, head.version)
        notes = ForeignNameNotes()
        roots = [version async for version, _ in stored_roots(look.remover, name)]
        references = References(self._store, root, notes)
        await references.read(roots)
        exported = await _listed(look.remover, name, "export/")
        strange = [location for location in exported if own_kind(location) is None]
        exports = {at: ms for at, ms in exported.items() if own_kind(at) is OwnKind.EXPORT_METADATA}
        roots_read = references.readable
        if strange or not await mark_exports(self._store, root.header, exports, notes, young_ms=0, roots=roots_read):
            raise Corrupt("export-corrupt", f"{table_prefix(name)}export/: it has unreadable or unknown objects")
        return notes.names()


def _reason(error: Exception | None) -> str:
    if error is None:
        return ""
    return error.message if isinstance(error, RootlineError) else f"{type(error).__name__}: {error!s:.200}"


async def _listed(remover: ObjectRemover, name: TableName, folder: str) -> dict[str, int]:
    """Location → the store's date (ms), for each object below `folder` of the table."""
    prefix = table_prefix(name)
    return {
        item.key.removeprefix(prefix): item.last_modified_ms
        async for page in remover.inventory(f"{prefix}{folder}")
        for item in page
    }
