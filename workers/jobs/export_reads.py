"""Marks what exports that are still needed name, so that a sweep leaves it.

Owns: the order of the reads. Does not own: which exports are needed and what they name
(`rootline.catalog.retained_exports`), what is chosen (`rootline.maintenance.orphan_sweep_plan`).
Invariants: an export that cannot be read keeps everything that exports may name, for as long as it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

import structlog

from rootline.catalog.retained_exports import ExportReader, FoundExport, is_needed, newest_of_each
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Version
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_kept
from rootline.tree.state.addressable import Addressable
from rootline.workers.jobs.sweep_reads import Marks

_log = structlog.get_logger("rootline.workers")


class ExportMarks(Marks, Protocol):
    """Takes what exports name, and the locations of those that stay."""

    def keep(self, locations: Iterable[str]) -> None:
        """Note what stays by its whole location."""
        ...


async def mark_exports(
    store: ObjectStore,
    header: RootHeader,
    exports: Mapping[str, int],
    inventory: ExportMarks,
    *,
    young_ms: int,
    roots: Collection[Version],
) -> bool:
    """Mark what `exports` name: to stay, or, if none that is needed does, to stay until the metadata.json is deleted.

    Whether it is known of each that is needed. So no metadata.json is ever stored without all that it names.

    Args:
        store: the warehouse.
        header: of the head, read before they were listed.
        exports: locations of all metadata.json files, and the store's dates.
        inventory: where to mark.
        young_ms: those that were stored after this are needed, whatever they are of.
        roots: the versions that can be read, whose roots are marked already.

    Raises:
        Unavailable: `store-unavailable`.

    """
    addressable = Addressable.of(header, await read_kept(store, header))
    newest = newest_of_each(exports)
    reader = ExportReader(store, header.table)

    async def mark(export: FoundExport, *, is_readable: bool) -> None:
        async for names in reader.names(export, roots.__contains__):
            await asyncio.to_thread(inventory.reference, names, is_readable=is_readable)

    others: list[str] = []
    for location, stored_ms in sorted(exports.items()):
        is_young = stored_ms >= young_ms
        if not is_young and not is_needed(header, addressable, location, newest):
            others.append(location)
            continue
        try:
            export = await reader.metadata(location)
            if export is not None and not is_young and export.metadata.table_uuid != header.table_uuid:
                others.append(location)
            elif export is not None:
                inventory.keep([location])
                await mark(export, is_readable=True)
        except Corrupt as error:
            _log.warning(
                "an export cannot be read: nothing that exports may name is swept",
                action="sweep-export-unreadable",
                table=header.table,
                reason=str(error),
            )
            return False
    for location in others:
        with suppress(Corrupt):  # an engine cannot read it either
            export = await reader.metadata(location)
            if export is not None:
                await mark(export, is_readable=False)
    return True
