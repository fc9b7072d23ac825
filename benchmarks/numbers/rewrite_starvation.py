"""How often a group of a compaction is refused while rows are deleted all the time, and what that costs.

Owns: a table of small files, deletes that land while a group is written, the counts. Does not own: planning a refused
group again (`rootline.spark.compaction`), writing a group, which happens here in this process.
Invariants: no clock takes part: so many deletes land between reading a group and publishing it; the same seed gives the
same deletes.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa

import rootline
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.spark.compaction import Asked, Compaction, GroupRuns, Strategy
from rootline.spark.options import parse_options
from rootline.spark.rewrite_jobs import FilesOfGroup, GroupWork, pack

FILES: Final = 64
_GROUP_FILES: Final = 8
_ROWS: Final = 200
_HOT_FILES: Final = 4
_SEED: Final = 7
_TRIES: Final = 4
_TABLE: Final = "demo.rows"
_READING: Final = (
    "A delete reaches one file here, as a delete by key does. The first try of a group of *f* of *n* files is refused "
    "with the chance 1 - (1 - f/n)^d. The second try has the files that changed in one group and the others in "
    "another; both are smaller than the first was, so they are refused less often. A rewrite that carried row "
    "positions along would write each file once: what `files written` has above 1 is what it would save."
)


class _Pace(StrEnum):
    """How long a group takes."""

    BY_FILES = "is as many files"
    FIXED = "is always the same"


@dataclass(frozen=True, slots=True)
class _Case:
    """`deletes` land while a group of full size is written; in the newest few files only, or in any."""

    deletes: int
    pace: _Pace
    only_hot: bool = False


_CASES: Final = (
    *(_Case(deletes, _Pace.BY_FILES) for deletes in (1, 2, 4, 8)),
    *(_Case(deletes, _Pace.FIXED) for deletes in (1, 2, 4)),
    _Case(4, _Pace.FIXED, only_hot=True),
)


def section() -> str:
    """The chapter as Markdown."""
    lines = [
        f"A table of {FILES} files, compacted in groups of {_GROUP_FILES}, while rows of single files are deleted by "
        f"position (seed {_SEED}). A group is tried {_TRIES} times at most. The time that a smaller group takes is as "
        "much shorter as it has fewer files (large files), or the same (tiny files, where starting a job is what "
        "takes time).",
        "",
        "| deletes while a whole group is written | of rows in | the time of a group | groups | refused | commits | "
        "files written, for each one compacted | files left |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(_row, _CASES), "", _READING])


def _row(case: _Case) -> str:
    done, written = measured(case)
    where = f"the newest {_HOT_FILES} files" if case.only_hot else "any file"
    share = written / max(done.files_before, 1)
    cells = (done.groups, done.refused, len(done.commits), f"{share:.2f}", done.files_left)
    return f"| {case.deletes} | {where} | {case.pace} | " + " | ".join(map(str, cells)) + " |"


def measured(case: _Case) -> tuple[Compaction, int]:
    """What the compaction did, and how many files it read and wrote for that."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as name, rootline.connect(name) as lake:
        table = lake.create_table(_TABLE, {"id": "long", "text": "string"})
        for first in range(0, FILES * _ROWS, _ROWS):
            ids = list(range(first, first + _ROWS))
            table.append(pa.table({"id": ids, "text": [f"row {id_}" for id_ in ids]}))
        return _compacted(lake, table, Path(name), case)


def _compacted(lake: Lake, table: TableHandle, folder: Path, case: _Case) -> tuple[Compaction, int]:
    chance, written, due = random.Random(f"{_SEED}/{case}"), 0, 0.0
    first = (FILES - _HOT_FILES) * _ROWS if case.only_hot else 0
    victims = chance.sample(range(first, FILES * _ROWS), (FILES - first // _ROWS) * _ROWS)

    def write(work: GroupWork) -> FilesOfGroup:
        nonlocal written, due
        files = pack(work, 0)
        written += len(work.shares[0])
        due += case.deletes * (1.0 if case.pace is _Pace.FIXED else len(work.shares[0]) / _GROUP_FILES)
        while due >= 1 and victims:
            table.delete_where(f"id = {victims.pop()}")
            due -= 1
        return files

    size = max(task.data.file_size_in_bytes or 0 for task in table.scan().plan())
    options = parse_options({"path": _TABLE, "warehouse": str(folder)})
    asked = Asked(Strategy.BIN_PACK, None, None, _GROUP_FILES * size + size // 2, None, _TRIES, 60.0, {})
    runs = GroupRuns(lake, options, asked, write)
    return runs.carried_out(runs.groups(), threads=1), written
