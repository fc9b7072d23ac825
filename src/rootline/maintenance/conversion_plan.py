"""Chooses the equality deletes that become deletion vectors in one intent, and makes that intent.

Owns: the thresholds (`rootline.convert.*`), the choice, the Puffin file. Does not own: the rows that the deletes
match (`rootline.workers.jobs.data_jobs`), later changes (`rootline.tree.intents.vector_maintenance`).
Invariants: pure. An intent lists every file to which its deletes may apply. One intent reads a bounded number of
files, bytes and deleted rows, so a delete that alone needs more is not converted.

Theory. Equality deletes are independent of each other, and a vector needs no sequence number. So any set of deletes
can be converted, whichever others are live. The oldest are converted first, because the files to which they may
apply only become fewer: a later file is younger than they are. Only a rewrite, a restore or another conversion makes
a plan stale. Any other change is merged. After a stale plan half as many deletes are tried.

Source: decision 0034.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap64

from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.maintenance.plan import IntentStamp, WrittenPlan, vectors_of_puffin
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.identifiers import Location, Version
from rootline.schemas.intent import AddedVector, IntentKind, RemovedFile, VectorReference
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import switch, whole_number
from rootline.tree.scan.file_task import FileTask
from rootline.tree.state.table_state import PendingObject

DELETES_MAX: Final = 256
"""Equality deletes of one intent."""


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """The thresholds of a conversion.

    * `deletes`: a conversion is due at this many live equality deletes.
    * `files`, `bytes`: the most data files, and the most bytes of them, that are read for one intent.
    * `rows`: the most rows of equality deletes that are read for one intent.
    """

    is_on: bool = True
    deletes: int = 16
    files: int = 1_000
    bytes: int = 4_294_967_296
    rows: int = 1_000_000

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> ConversionLimits:
        """The limits in a table's properties, with defaults for the rest."""
        defaults = ConversionLimits()
        return ConversionLimits(
            is_on=switch(properties, "rootline.convert.equality-deletes", default=defaults.is_on),
            deletes=whole_number(properties, "rootline.convert.deletes", defaults.deletes),
            files=whole_number(properties, "rootline.convert.files", defaults.files),
            bytes=whole_number(properties, "rootline.convert.bytes", defaults.bytes),
            rows=whole_number(properties, "rootline.convert.rows", defaults.rows),
        )

    @property
    def now(self) -> ConversionLimits:
        """The limits of an operator's command, for which one equality delete is enough."""
        return replace(self, is_on=True, deletes=1)


@dataclass(frozen=True, slots=True)
class ChosenDeletes:
    """The equality deletes of one intent, with a task for each data file to which they may apply.

    `left`: deletes that are not converted, because they need more files, bytes or rows than the limits allow.
    """

    deletes: tuple[ContentEntry, ...]
    tasks: tuple[FileTask, ...]
    left: tuple[ContentEntry, ...] = ()


def choose_deletes(files: TableFiles, limits: ConversionLimits, at_most: int = DELETES_MAX) -> ChosenDeletes:
    """Choose the oldest deletes that fit the limits together. Raises `Invalid` (`equality-delete-unread`)."""
    left: list[ContentEntry] = []
    for start in range(0, len(files.equality_deletes), DELETES_MAX):
        window = files.equality_deletes[start : start + DELETES_MAX]
        reach = _reach(files, window, limits)
        chosen: list[ContentEntry] = []
        needed: dict[str, int] = {}
        rows = 0
        for delete in window:
            own = reach[delete.location]
            is_alone_too_large = not _fits(own, delete.record_count, limits)
            if is_alone_too_large:
                left.append(delete)
            elif len(chosen) < at_most and _fits(needed | own, rows + delete.record_count, limits):
                chosen.append(delete)
                needed |= own
                rows += delete.record_count
        if chosen:
            return ChosenDeletes(tuple(chosen), tuple(files.reached(tuple(chosen))), tuple(left))
    return ChosenDeletes((), (), tuple(left))


def _reach(files: TableFiles, deletes: Sequence[ContentEntry], limits: ConversionLimits) -> dict[str, dict[str, int]]:
    """Delete → the data files to which it may apply, with their bytes. Stops once every delete has too many files."""
    found: dict[str, dict[str, int]] = {delete.location: {} for delete in deletes}
    for task in files.reached(tuple(deletes)):
        for delete in task.deletes.equality:
            found[delete.location][task.location] = task.data.file_size_in_bytes or 0
        if all(len(reach) > limits.files for reach in found.values()):
            break
    return found


def _fits(needed: Mapping[str, int], rows: int, limits: ConversionLimits) -> bool:
    return len(needed) <= limits.files and sum(needed.values()) <= limits.bytes and rows <= limits.rows


@dataclass(frozen=True, slots=True)
class NewVector:
    """The new vector of a data file, with all deleted rows, and the present vector, which it replaces."""

    positions: BitMap64
    replaces: VectorReference | None = None


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A conversion. `vectors`: data file → its new vector. `clean`: data files without a row that the deletes match."""

    made_from_version: Version
    read_sequence_number: int
    deletes: tuple[ContentEntry, ...]
    vectors: Mapping[str, NewVector]
    clean: tuple[str, ...]

    @property
    def entries(self) -> int:
        """The number of converted equality deletes."""
        return len(self.deletes)

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Make the intent, and one Puffin file if there are vectors."""
        objects: tuple[PendingObject, ...] = ()
        vectors: tuple[AddedVector, ...] = ()
        if self.vectors:
            blobs = [VectorBlob(name, vector.positions) for name, vector in self.vectors.items()]
            puffin = encode_puffin(blobs)
            location = puffin_name(f"data/{stamp.object_uuid(0)}-deletes", puffin.body)
            objects = (PendingObject(Location(location), puffin.body),)
            replaces = [vector.replaces for vector in self.vectors.values()]
            vectors = vectors_of_puffin(location, puffin, blobs, replaces)
        intent = stamp.intent(
            IntentKind.CONVERT_EQUALITY_DELETES,
            self.made_from_version,
            read_sequence_number=self.read_sequence_number,
            remove_files=tuple(
                RemovedFile(location=delete.location, content_type=ContentType.EQUALITY_DELETE)
                for delete in self.deletes
            ),
            add_vectors=vectors,
            replaces=self.clean,
        )
        return WrittenPlan(objects, intent)
