"""A page of retained versions: an object that lists readable versions older than the oldest one in the root's header.

Owns: the rows, and finding a version. Does not own: the file around them (`page_codec`), which versions are retained
(`rootline.maintenance.expiry_plan`), the intents that reference a page (`rootline.tree.intents.versions`).
Invariants: Versions and timestamps strictly ascend.

Source: format page, "Pages". Decision 0062.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.page_codec import Page, PageKind, RowSchema, record_schema
from rootline.schemas.identifiers import Version
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader

KEPT_MAX: Final = 10_000
_ROW: Final = RowSchema(record_schema("kept_version", version="long", timestamp_ms="long", size_in_bytes="long"))


class KeptVersion(NamedTuple):
    """A retained version, its commit time, and the length of its root."""

    version: Version
    timestamp_ms: int
    size_in_bytes: int


_version: Final = attrgetter("version")
_timestamp: Final = attrgetter("timestamp_ms")


@dataclass(frozen=True, slots=True)
class RetainedVersions:
    """Retained versions, ascending, at least one."""

    versions: tuple[KeptVersion, ...]

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all retained roots."""
        return sum(kept.size_in_bytes for kept in self.versions)

    def find(self, version: int) -> KeptVersion | None:
        """The row of a version, if it is retained."""
        at = bisect_left(self.versions, version, key=_version)
        return self.versions[at] if at < len(self.versions) and self.versions[at].version == version else None

    def newest_at(self, timestamp_ms: int) -> KeptVersion | None:
        """The newest retained version that was committed at `timestamp_ms` or before."""
        at = bisect_right(self.versions, timestamp_ms, key=_timestamp)
        return self.versions[at - 1] if at else None


RetainedPage: TypeAlias = Page[RetainedVersions]


def _rows_of(content: RetainedVersions) -> Iterator[bytes]:
    return (_ROW.encode(kept._asdict()) for kept in content.versions)


def _content_of(rows: Iterator[tuple[Any, bytes]]) -> RetainedVersions:
    versions: list[KeptVersion] = []
    for row, _ in rows:
        if len(versions) == KEPT_MAX:
            raise Unreadable(f"it has more than {KEPT_MAX} versions")
        kept = KeptVersion(Version(row["version"]), row["timestamp_ms"], row["size_in_bytes"])
        versions.append(_following(versions, kept))
    if not versions:
        raise Unreadable("it has no versions")
    return RetainedVersions(tuple(versions))


def _named_in(header: RootHeader) -> tuple[PageReference, ...]:
    expiry = header.versions.expiry
    return () if expiry is None or expiry.kept is None else (expiry.kept,)


def _following(versions: list[KeptVersion], kept: KeptVersion) -> KeptVersion:
    before = versions[-1] if versions else KeptVersion(Version(-1), -1, 0)
    if kept.version <= before.version or kept.timestamp_ms <= before.timestamp_ms or kept.size_in_bytes < 1:
        raise Unreadable(f"version {kept.version} at {kept.timestamp_ms} ms follows {before.version}")
    return kept


RETAINED_PAGES: Final = PageKind("kept", _ROW, _rows_of, _content_of, _named_in)
"""At most one page. A worker stores it, and the intent `expire` is the first to name it."""
