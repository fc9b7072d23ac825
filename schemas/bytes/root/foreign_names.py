"""The files outside its own folder that a table names, as hashes: what no other table of the warehouse may delete.

Owns: the set, collecting it, its bytes as an object. Does not own: reading tables
(`rootline.workers.jobs.neighbour_reads`), what a sweep makes of it (`orphan_sweep_plan`).
Invariants: one-sided: a name that is in the set may belong to another file, and a name of Rootline's shape that the
table names outside its folder is always in it.

Theory. An absolute location enters a table only by adoption, which is its first root. Later intents may name an
absolute location only while the table lists it, and a restore brings back only what a root of the table contains. So
what a table names outside its own folder never grows: a set that was complete once is an upper bound for ever, whatever
is committed, compacted, expired, dropped or damaged afterwards.

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

_MAGIC: Final = b"rootline-foreign-names/1\n"
_PREFIX: Final = "metadata/pages/foreign-"
_DIGEST_BYTES: Final = 32
_HASH_BYTES: Final = 8
_OWN_NAME: Final = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{16}-", re.IGNORECASE)
"""The beginning of the last part of every name that Rootline gives: ids, digests, inverted versions."""
_SPARKS: Final = "spark-write"
"""In the folder of what Spark writes for us. Its files begin with `part-`, as those of every table from Hive do."""

_Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


def name_hash(location: str) -> int:
    """The hash of a location's last part, in lower case."""
    name = _last_part(location).lower()
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def _last_part(location: str) -> str:
    return (resolved(location) if location.endswith(("/", "/.")) else location).rpartition("/")[2]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignNames:
    """The hashes of the names, ascending."""

    hashes: _Hashes

    @staticmethod
    def of(hashes: Iterable[int]) -> ForeignNames:
        """The set of `hashes`, as `name_hash` makes them."""
        return ForeignNames(np.unique(np.fromiter(hashes, np.uint64)))

    def to_bytes(self) -> bytes:
        """The object: a line of text, the SHA-256 of the rest, and the hashes."""
        packed = self.hashes.astype(">u8").tobytes()
        return _MAGIC + hashlib.sha256(packed).digest() + packed

    @staticmethod
    def from_bytes(body: bytes, *, name: str) -> ForeignNames:
        """The set in an object. Raises `Corrupt` (`page-corrupt`): the bytes are not what was written."""
        start = len(_MAGIC) + _DIGEST_BYTES
        packed = body[start:]
        is_whole = body[:start] == _MAGIC + hashlib.sha256(packed).digest() and not len(packed) % _HASH_BYTES
        if not is_whole:
            raise Corrupt("page-corrupt", f"{name}: these are not the foreign names that were written")
        return ForeignNames(np.unique(np.frombuffer(packed, ">u8").astype(np.uint64)))


class ForeignNameNotes:
    """Collects absolute locations from whatever form of a table names them."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def reference(self, locations: Iterable[str], *, is_readable: bool = True) -> None:
        """Note those of `locations` that are outside the table's folder and may be files of Rootline's."""
        del is_readable
        for location in locations:
            if is_absolute(location) and (_OWN_NAME.match(_last_part(location)) or _SPARKS in location.lower()):
                self._hashes.add(name_hash(location))

    def keep(self, locations: Iterable[str]) -> None:
        """Note the locations of what stays in the table's own folder: nothing."""

    def names(self) -> ForeignNames:
        """All that was noted."""
        return ForeignNames.of(self._hashes)


def names_of_adopted(adopted: str) -> Location:
    """The location, relative to its table, of the set that the coordinator stored when it accepted an adoption.

    `adopted`: the location of the root that says what was adopted.
    """
    return Location(f"{_PREFIX}{adopted.rpartition('/')[2].partition('.')[0]}.names")


def names_read_later(adopted: Sequence[str]) -> Location:
    """The location of the set that a worker stored of a table that an earlier version adopted.

    `adopted`: the locations of all such roots of the table.
    """
    digest = hashlib.sha256("\n".join(sorted(adopted)).encode()).hexdigest()
    return Location(f"{_PREFIX}read-{digest[:32]}.names")
