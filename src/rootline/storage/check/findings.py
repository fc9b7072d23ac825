"""The result of a check: findings, a summary, its progress, and the removal of a lost data file.

Owns: the value types, collecting each finding once, the intent that removes a lost file, and the keys in a snapshot's
summary that record the loss for later checks. Does not own: the checks (`chain`), the decision that a file is lost.
Invariants: a finding names one object by its key, with a stable code (`rootline explain`) and the reason in words. A
file counts as lost only if one version both removed it and recorded the loss in its summary.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName


class DataFiles(Enum):
    """The depth of the check of data files and delete files. Every other object is always read in full."""

    IGNORED = "ignored"
    LISTED = "listed"  # each exists: one LIST of the table's folder
    SIZES = "sizes"  # each has the length in its entry: one request each
    FOOTERS = "footers"  # and a Parquet footer with the entry's number of rows, and columns of the table
    ALL = "all"  # and every row can be read and is within the bounds of the entry
    READ = SIZES  # its former name


class Finding(NamedTuple):
    """A fault. `object`: the key of the object that is wrong, or that shows the fault.

    `way_out`: for a live data file or delete file, the intent (JSON) that removes it from the table if no copy of it
    exists. Empty for everything else.
    """

    object: str
    code: str
    reason: str
    way_out: str = ""


class Fault(NamedTuple):
    """A broken rule: a code and the reason. The caller knows the object."""

    code: str
    reason: str


@dataclass(slots=True)
class CheckSummary:
    """The progress of a check. Each object counts once.

    `foreign_objects`: keys in the roots' folder that are not roots. They are not faults.

    Of the `data_files`, `data_files_measured` were compared by length and `data_files_opened` were opened.
    `data_files_unread` could not be opened as requested (encrypted, or of a format without a footer).
    `data_files_given_up` were removed by an intent that declared them lost.
    """

    roots: int = 0
    roots_total: int = 0
    head_version: int | None = None
    blocks: int = 0
    leaves: int = 0
    vectors: int = 0
    vector_files: int = 0
    definitions: int = 0
    pages: int = 0
    entries: int = 0
    data_files: int = 0
    data_files_measured: int = 0
    data_files_opened: int = 0
    data_files_unread: int = 0
    data_files_given_up: int = 0
    rows_read: int = 0
    exports: int = 0
    bytes_read: int = 0
    findings: int = 0
    foreign_objects: list[str] = field(default_factory=list)
    unreferenced_objects: int = 0


Progress = Callable[[CheckSummary], None]
"""Called with the current summary after every root, and after every few data files."""


class FindingBook:
    """A collection of findings, without duplicates. At most `REPEATS_MAX` of one code about one object are recorded."""

    REPEATS_MAX = 20

    def __init__(self, summary: CheckSummary) -> None:
        self._summary = summary
        self._seen: set[tuple[str, str, str]] = set()
        self._repeats: dict[tuple[str, str], int] = {}
        self._new: list[Finding] = []
        self.way_out: Callable[[str, str], str] = lambda _object, _code: ""
        """Object and code → `Finding.way_out`."""

    def add(self, object_key: str, code: str, reason: str) -> None:
        """Record a finding."""
        repeats = self._repeats.get((object_key, code), 0)
        if (object_key, code, reason) in self._seen or repeats >= self.REPEATS_MAX:
            return
        finding = Finding(object_key, code, reason, self.way_out(object_key, code))
        self._repeats[object_key, code] = repeats + 1
        self._seen.add((object_key, code, reason))
        self._new.append(finding)
        self._summary.findings += 1

    def add_error(self, object_key: str, error: RootlineError) -> None:
        """Record the error of reading an object. The object's name at the start of the message is not repeated."""
        name, colon, reason = error.message.partition(": ")
        self.add(object_key, error.code, reason if colon and object_key.endswith(name) else error.message)

    def take(self) -> list[Finding]:
        """The findings since the last call."""
        new, self._new = self._new, []
        return new


_GIVEN_UP: Final = "lost-data-file:"


def removal_of(
    table: TableName, place: EntryPlace, vector: EntryPlace | None, table_uuid: uuid.UUID | None = None
) -> str:
    """The intent that removes the file at `place`, as a line of JSON for `rootline publish`.

    `vector`: the file's live deletion vector. `table_uuid`: the uuid of the table, if known.
    """
    file: dict[str, Any] = {"location": place.location}
    if place.content_type is not ContentType.DATA:
        file["content_type"] = int(place.content_type)
    if vector is not None:
        file["vector"] = {"location": vector.location, "offset": vector.content_offset or 0}
    body = {
        "table": table,
        **({} if table_uuid is None else {"table_uuid": str(table_uuid)}),
        "kind": "remove",
        "remove_files": [file],
        "summary": {f"{_GIVEN_UP}{place.location}": "true"},
    }
    return json.dumps(body, ensure_ascii=False)


def lost_files(summary: Mapping[str, str], removed: Iterable[str]) -> set[str]:
    """The locations in `removed` that the snapshot's `summary` declares lost."""
    named = {key.removeprefix(_GIVEN_UP) for key in summary if key.startswith(_GIVEN_UP)}
    return named.intersection(removed) if named else set()
