"""The report at the end of the demo with Spark.

Owns: the facts that the demo gathers, and their form as text. Does not own: gathering them (`story`).
Invariants: the report states plainly when any row differs from those that pandas computes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from examples.spark_demo.quantiles import Quantiles
from rootline.demo.example_flights import Agreement
from rootline.tree.view import LeafOutline, TreeOutline


@dataclass(frozen=True, slots=True)
class Flush:
    """One flush: the trees before and after its commit."""

    before: TreeOutline
    after: TreeOutline


@dataclass(frozen=True, slots=True)
class SqlInsert:
    """The INSERT by Spark SQL: its commit, the stream's commits before and after it, and the rows of both."""

    table: str
    engine: str
    version: int
    batches_before: int
    batches_after: int
    rows_inserted: int
    rows_expected: int
    rows_by_spark: int
    rows_by_sql: int


@dataclass
class SparkReport:
    """The report, filled in while the demo runs. Stages in seconds. `commit` and `visible` are `None` if not
    measured. `sql_missing`: the reason why there was no INSERT by SQL, empty if none was wanted.
    """

    table: str = ""
    lake: str = ""
    look: str = ""
    files: str = ""
    rows_streamed: int = 0
    rows_deleted: int = 0
    rows_corrected: int = 0
    rows_expected: int = 0
    rows_by_spark: int = 0
    rows_by_command: int = 0
    carriers: int = 0
    digest: int = 0
    batches: int = 0
    batches_ms: list[float] = field(default_factory=list)
    commits: int = 0
    small_commits: int = 0
    objects_per_small_commit: float = 0.0
    commit: Quantiles | None = None
    visible: Quantiles | None = None
    flushes: list[Flush] = field(default_factory=list)
    tree: str = ""
    sql: SqlInsert | None = None
    sql_missing: str = ""
    pictures: list[str] = field(default_factory=list)
    stages: list[tuple[str, float]] = field(default_factory=list)
    agreement: Agreement = field(default_factory=Agreement)
    sql_agreement: Agreement = field(default_factory=Agreement)

    @property
    def agrees(self) -> bool:
        """Whether no comparison failed, with and without SQL."""
        return self.agreement.agrees and self.sql_agreement.agrees

    def lines(self) -> Iterator[str]:
        """The report as text."""
        agrees = _words(self.agreement)
        yield (
            f"rows      expected {self.rows_expected:,} (pandas), read {self.rows_by_spark:,} (Spark) and "
            f"{self.rows_by_command:,} (rootline scan): {agrees}"
        )
        yield f"values    {self.carriers} carriers counted, digest of every value {self.digest % 2**64:016x}"
        yield (
            f"changes   {self.rows_streamed:,} flights streamed in {self.batches} micro-batches, {self.rows_deleted:,} "
            f"cancelled ones deleted by vectors, {self.rows_corrected:,} corrected by an overwrite"
        )
        yield (
            f"commits   {self.commits}, {len(self.flushes)} of them flushes; the other {self.small_commits} wrote "
            f"{self.objects_per_small_commit:g} metadata object each"
        )
        yield f"latency   {self._latency()}"
        for number, flush in enumerate(self.flushes):
            yield f"{'flushes' if number == 0 else '':<10}{_flush_line(flush)}"
        for number, line in enumerate(self.tree.splitlines()):
            yield f"{'tree' if number == 0 else '':<10}{line}"
        for number, picture in enumerate(self.pictures):
            yield f"{'pictures' if number == 0 else '':<10}{picture}"
        yield from self._sql()
        yield f"files     {self.files}"
        yield f"lake      {self.lake} (table {self.table})" + ("; to look at it:" if self.look else "")
        if self.look:
            yield f"          {self.look}"
        took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.stages)
        yield f"took      {sum(seconds for _, seconds in self.stages):.1f} s: {took}"
        yield from self.agreement.lines()
        yield from self.sql_agreement.lines()

    def _sql(self) -> Iterator[str]:
        if self.sql_missing:
            yield f"sql       no INSERT by Spark SQL: {self.sql_missing}"
        if self.sql is not None:
            sql = self.sql
            yield (
                f"sql       Spark SQL {sql.engine} inserted {sql.rows_inserted:,} rows through the REST catalog as "
                f"version {sql.version} of {sql.table}, after {sql.batches_before} and before {sql.batches_after} "
                "micro-batches of the stream"
            )
            yield (
                f"          expected {sql.rows_expected:,} (pandas), read {sql.rows_by_spark:,} (Spark) and "
                f"{sql.rows_by_sql:,} (Spark SQL): {_words(self.sql_agreement)}"
            )

    def _latency(self) -> str:
        parts = []
        if self.commit is not None:
            parts.append(f"commit (PUT of a root) p50 {self.commit.p50_ms:.1f} ms, p99 {self.commit.p99_ms:.1f} ms")
        if self.visible is not None:
            parts.append(f"intent until its verdict p50 {self.visible.p50_ms:.0f} ms, p99 {self.visible.p99_ms:.0f} ms")
        if self.batches_ms:
            first, *others = self.batches_ms
            then = f", then {statistics.median(others) / 1000:.1f} s (median)" if others else ""
            parts.append(f"Spark's first micro-batch {first / 1000:.1f} s{then}")
        return "; ".join(parts) or "not measured"


def _words(agreement: Agreement) -> str:
    return "the same" if agreement.agrees else "NOT the same"


def _flush_line(flush: Flush) -> str:
    before, after = flush.before, flush.after
    return f"version {after.version}: {_shape(before)}  ->  {_shape(after)}"


def _shape(tree: TreeOutline) -> str:
    files = sum(group.files for group in tree.groups)
    leaves = list(_leaves(tree.leaves))
    held = sum(leaf.live for leaf in leaves)
    return f"{files} files in the root, {held} in {len(leaves)} leaves"


def _leaves(leaves: tuple[LeafOutline, ...]) -> Iterator[LeafOutline]:
    for leaf in leaves:
        yield leaf
        yield from _leaves(leaf.deletes)
