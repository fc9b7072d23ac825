"""Hashes of the file names outside its own folder that a table references, so that no other table's sweep deletes them.

Owns: the set, collecting it, its bytes as an object. Does not own: reading tables
(`rootline.workers.jobs.neighbour_reads`), how a sweep uses it (`orphan_sweep_plan`).
Invariants: the set may contain too much, never too little. A hash may also match another file's name. But every name
that a sweep could delete, and that the table references outside its folder, is in the set.

Theory. An absolute location below the warehouse enters a table only by adoption, which is the table's first root. Later
intents may reference an absolute location only while the table lists it, or below a prefix of the coordinator that
contains nothing of the warehouse. A restore only adds back files of the table's own roots. So the names that a table
references outside its folder never increase. A set that was complete once remains an upper bound forever, whatever is
committed, compacted, expired, dropped or damaged afterwards.

Source: decision 0105.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import is_absolute, resolved

_MAGIC: Final = b"rootline-foreign-names/2\n"
"""Version 1 lacked the names of clients of the REST catalog. Its sets are re-read, as damaged ones are."""
_PREFIX: Final = "metadata/pages/foreign-"
_DIGEST_BYTES: Final = 32
_HASH_BYTES: Final = 8
_OWN_NAME: Final = re.compile(r".*[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{16}-", re.IGNORECASE)
"""Every file name that Rootline creates begins with an id, a digest or an inverted version. Clients' names have a UUID
anywhere.
"""
_SPARKS: Final = "spark-write"
"""The folder of files that Spark writes for Rootline. Their names begin with `part-`, as in any table from Hive."""

_Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


def name_hash(location: str) -> int:
    """The hash of a location's last part, in lower case."""
    name = _last_part(location).lower()
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def _last_part(location: str) -> str:
    return (resolved(location) if location.endswith(("/", "/.")) else location).rpartition("/")[2]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignNames:
    """A set of name hashes, ascending."""

    hashes: _Hashes

    @staticmethod
    def of(hashes: Iterable[int]) -> ForeignNames:
        """The set of `hashes`, made by `name_hash`."""
        return ForeignNames(np.unique(np.fromiter(hashes, np.uint64)))

    def to_bytes(self) -> bytes:
        """The object's bytes: a line of text, the SHA-256 of the rest, and the hashes."""
        packed = self.hashes.astype(">u8").tobytes()
        return _MAGIC + hashlib.sha256(packed).digest() + packed

    @staticmethod
    def from_bytes(body: bytes, *, name: str) -> ForeignNames:
        """The set in an object. Raises `Corrupt` (`page-corrupt`) if the bytes were changed."""
        start = len(_MAGIC) + _DIGEST_BYTES
        packed = body[start:]
        is_whole = body[:start] == _MAGIC + hashlib.sha256(packed).digest() and not len(packed) % _HASH_BYTES
        if not is_whole:
            raise Corrupt("page-corrupt", f"{name}: the object is damaged: its digest or length is wrong")
        return ForeignNames(np.unique(np.frombuffer(packed, ">u8").astype(np.uint64)))


class ForeignNameNotes:
    """Collects the absolute locations that a table references."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def reference(self, locations: Iterable[str], *, is_readable: bool = True) -> None:
        """Add those locations outside the table's folder whose names a sweep could delete."""
        del is_readable
        for location in locations:
            if is_absolute(location) and (_OWN_NAME.match(_last_part(location)) or _SPARKS in location.lower()):
                self._hashes.add(name_hash(location))

    def keep(self, locations: Iterable[str]) -> None:
        """Ignore files that stay in the table's own folder."""

    def names(self) -> ForeignNames:
        """The set of all collected names."""
        return ForeignNames.of(self._hashes)


def names_of_adopted(adopted: str) -> Location:
    """The location, relative to its table, of the set that the coordinator stored when it accepted an adoption.

    `adopted`: the location of the root that describes the adopted table.
    """
    return Location(f"{_PREFIX}{adopted.rpartition('/')[2].partition('.')[0]}.names")


def names_read_later(adopted: Sequence[str]) -> Location:
    """The location of the set that a worker stored for a table that an earlier release adopted.

    `adopted`: the locations of all such roots of the table.
    """
    digest = hashlib.sha256("\n".join(sorted(adopted)).encode()).hexdigest()
    return Location(f"{_PREFIX}read-2-{digest[:32]}.names")
