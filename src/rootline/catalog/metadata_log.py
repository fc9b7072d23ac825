"""The metadata log of an export: the earlier versions whose metadata.json it names, and the versions that have one.

Engines write a metadata.json for every commit, and list the earlier ones. Exports are made when someone asks for them,
so which ones exist depends on who asked, and an export must not depend on that. So a log names the last version of each
earlier definition, and an export makes those that are missing. Changes of rows are listed as snapshots anyway.

Owns: the choice of versions. Does not own: making exports (`exporter`), the JSON (`table_metadata`), keeping the named
objects (`retained_exports`).
Invariants: a function of the roots. Versions are cut into blocks of `BLOCK_VERSIONS`, and a log names only versions of
its own block, as the logs that these have do. So an export makes earlier ones of one block at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rootline.catalog.export_keys import snapshots_of
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import Version
from rootline.schemas.root_header import RootHeader
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.check.verdict_roots import may_record_verdicts_only, records_verdicts_only

HIDDEN_MAX: Final = 200
VERSIONS_AT_ONCE: Final = 8
"""The versions of one export that are made side by side, and the roots that are read side by side."""
BLOCK_VERSIONS: Final = 100
_PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT: Final = 100

RootReader = Callable[[Version], Awaitable[Root]]


async def shown_at(root: Root, oldest: Version, read: RootReader) -> Root:
    """The newest version up to `root` that changed the table. `oldest`: the oldest version that may be read."""
    found, ahead = root, dict[Version, Root]()
    for step in range(HIDDEN_MAX):
        header = found.header
        if header.version <= oldest or not may_record_verdicts_only(header):
            return found
        if header.version - 1 not in ahead:  # many in a row are rare, and are read side by side
            first = max(oldest, header.version - (VERSIONS_AT_ONCE if step else 1))
            numbers = [Version(at) for at in range(first, header.version)]
            ahead = dict(zip(numbers, await gather_bounded(numbers, read, VERSIONS_AT_ONCE), strict=True))
        parent = ahead[Version(header.version - 1)]
        if not records_verdicts_only(parent, found):
            return found
        found = parent
    return root


class LogLimits(NamedTuple):
    """The limits that a table sets for its metadata log."""

    snapshots: int
    entries: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> LogLimits:
        """The limits in these properties."""
        stated = properties.get(_PREVIOUS_VERSIONS, "")
        is_usable = stated.isascii() and stated.isdigit() and len(stated) < 10
        return LogLimits(snapshots_of(properties), int(stated) if is_usable else _PREVIOUS_VERSIONS_DEFAULT)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The log of a stored export. `times`: version → commit time (ms). `definition`: digest of its definition."""

    version: Version
    times: Mapping[Version, int]
    definition: str
    limits: LogLimits


async def logged_versions(
    root: Root, oldest: Version, limits: LogLimits, known: StoredLog | None, read: RootReader
) -> dict[Version, int]:
    """The versions in the metadata log of `root`, ascending, with their commit times (ms).

    Args:
        root: of the exported version.
        oldest: the oldest version that can be read.
        limits: of the exported version.
        known: of an earlier export of this table, or `None`.
        read: reads a root.
    """
    header = root.header
    first, times, before = _first(header, oldest, limits), {}, ""
    start = first
    if known is not None and known.limits == limits and first <= known.version < header.version:
        start, before = known.version, known.definition
        times = {version: time_ms for version, time_ms in known.times.items() if version >= first}

    needed = [Version(at) for at in range(start + bool(before), header.version)]
    await gather_bounded(needed, read, VERSIONS_AT_ONCE)  # the reader keeps them
    for at in range(start, header.version):
        before = before or (await read(Version(at))).header.definition.digest.hex()
        after = header if at + 1 == header.version else (await read(Version(at + 1))).header
        if after.definition.digest.hex() != before:
            shown = (await shown_at(await read(Version(at)), oldest, read)).header
            if shown.version >= first:
                times[shown.version] = shown.snapshot.timestamp_ms
        before = after.definition.digest.hex()
    newest = sorted(times)[-limits.entries :] if limits.entries else []
    return {version: times[version] for version in newest}


def _first(header: RootHeader, oldest: Version, limits: LogLimits) -> Version:
    """The oldest version that the log may name. Its root is one that the export's snapshots need anyway."""
    begin = header.name.drops[-1].version + 1 if header.name.drops else 0
    block = begin + (header.version - begin) // BLOCK_VERSIONS * BLOCK_VERSIONS
    return Version(max(oldest, block, header.version - limits.snapshots + 1))
