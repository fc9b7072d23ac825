"""What `rootline demo` reports at the end.

Owns: the facts that the demo gathers, and their form as text. Does not own: gathering them (`quick_demo`).
Invariants: it says plainly when anything differs from what pandas computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rootline.demo.agreement import Agreement
from rootline.demo.example_flights import CARRIER

WRITERS: Final = 4


@dataclass
class QuickReport:
    """What happened, and whether it was right. Times in milliseconds; those of appends include writing Parquet."""

    table: str = ""
    folder: str = ""
    picture: str = ""
    rows_expected: int = 0
    rows_read: int = 0
    rows_appended: int = 0
    rows_deleted: int = 0
    rows_overwritten: int = 0
    intents: int = 0
    commits: int = 0
    objects_per_commit: float = 0.0
    files_flushed: int = 0
    append_ms_median: float = 0.0
    append_ms_max: float = 0.0
    scan_ms: float = 0.0
    export_format: int = 0
    export_objects: int = 0
    export_ms: float = 0.0
    rows_read_by_pyiceberg: int = 0
    elapsed_s: float = 0.0
    waterfall: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)

    @property
    def agreement(self) -> Agreement:
        """The comparisons; what differs goes into `mismatches`."""
        return Agreement(self.mismatches)

    @property
    def agrees(self) -> bool:
        """Whether everything that was read is what pandas computes."""
        return self.agreement.agrees

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"rows      expected {self.rows_expected:,}, read {self.rows_read:,}: " + (
            "the same rows" if self.agrees else "NOT the same"
        )
        yield (
            f"changes   {self.rows_appended:,} rows appended by {WRITERS} writers at once, {self.rows_deleted:,} "
            f"cancelled flights deleted by vectors, {self.rows_overwritten:,} rows of {CARRIER} overwritten"
        )
        yield (
            f"commits   {self.intents} intents in {self.commits} commits, "
            f"{self.objects_per_commit:g} object per commit; then one flush moved {self.files_flushed} entries"
        )
        yield (
            f"latency   append {self.append_ms_median:.0f} ms median, {self.append_ms_max:.0f} ms at most, "
            f"including writing Parquet; scan {self.scan_ms:.0f} ms"
        )
        yield (
            f"engines   PyIceberg read {self.rows_read_by_pyiceberg:,} rows of an export as Iceberg "
            f"V{self.export_format}: {self.export_objects} objects in {self.export_ms:.0f} ms, no file copied"
        )
        for number, line in enumerate(self.waterfall):
            yield f"{'' if number else 'intent':<10}{line}"
        yield f"took      {self.elapsed_s:.1f} s"
        yield f"files     {self.folder} (table {self.table})"
        yield f"picture   {self.picture}"
        yield from self.agreement.lines()
