"""Changing the rows of a table, for a client program.

Owns: the public methods that delete, replace, update and merge rows, and the table's definition as last read. Does not
own: adding and reading rows (`table_handle`), the execution of each method (`row_changes`, `row_updates`).
Invariants: a handle has no connection, only a reference to its lake, so it may be pickled, shared between threads, and
kept as long as the lake is open. Every change waits for its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES, DEFAULT_TIMEOUT_S
from rootline.client.session import Commit, OpenLake, Operation, Session, T
from rootline.client.table_history import TableHistory
from rootline.client.time_travel import read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent_rules import Isolation
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from rootline.client.row_updates import MergeRules, WhenMatched, WhenNotMatched

_STALE_CODES: Final = frozenset(
    (
        "definition-changed",
        "schema-unknown",
        "spec-unknown",
        "table-dropped",
        "table-replaced",
        "table-uuid-mismatch",
        "table-uuid-missing",
    )
)
"""Rejections after which a table's definition is re-read before the next change."""


class TableRows(TableHistory):
    """The methods of a `TableHandle` that change rows."""

    def overwrite(
        self,
        data: Any,
        *,
        where: str | None = None,
        merge_schema: bool = False,
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Replace the rows that match `where` by `data`, in one commit. Without `where`, replace all rows.

        Files that match in part are rewritten without the matching rows. If another change wins, this one is planned
        again from the new version, until `timeout_s` ends.

        Args:
            data: the new rows, as in `append`. May be empty.
            where: a filter on the table's columns, such as `carrier = 'UA'`.
            merge_schema: as in `append`.
            isolation: `serializable`: matching rows added after the plan are a conflict. `snapshot`: such rows stay, so
                that the overwrite succeeds under a steady stream of appends.
            timeout_s: the time for planning and waiting, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.

        Returns:
            The commit, with the numbers of rows added and deleted. If `data` is empty and no row matches, nothing is
            published, and it is the newest version. Empty `data` deletes: the commit adds no rows.

        Raises:
            Invalid: `filter-invalid`, `rows-invalid`, or a rejection such as `isolation-conflict` that planning again
                did not resolve.
            OutcomeUnknown: `verdict-timeout`.
        """
        from rootline.client.given_rows import GivenRows
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_changes import overwrite_rows

        options = ChangeOptions.of(isolation, timeout_s, target_file_size_bytes, summary)
        rows, by, merges = GivenRows.of(data), checks.filter_text(where), checks.truth(merge_schema, "merge_schema")
        return self._changing(
            lambda session: overwrite_rows(session, self._lake.stamp, self.name, rows, by, options, merge_schema=merges)
        )

    def delete_where(
        self,
        where: str,
        *,
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Delete the rows that match `where`, in one commit. No data file is rewritten: delete vectors mark the rows.

        Arguments are as in `overwrite`.

        Returns:
            The commit, with the number of rows. If no row matches, nothing is published, and it is the newest version.

        Raises:
            Invalid: `filter-invalid`, or a rejection such as `isolation-conflict` that planning again did not resolve.
            OutcomeUnknown: `verdict-timeout`. Deleting again is safe.
        """
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_changes import delete_rows

        options = ChangeOptions.of(isolation, timeout_s, DEFAULT_TARGET_BYTES, summary)
        deleted = checks.deleting_filter(where)
        return self._changing(lambda session: delete_rows(session, self._lake.stamp, self.name, deleted, options))

    def update_where(
        self,
        where: str,
        set: Mapping[str, Any],  # noqa: A002 -- SQL's word
        *,
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Update the rows that match `where`, in one commit: `update_where("seats is null", {"seats": 100})`.

        Delete vectors mark the old rows, and new files have the new ones, which keep their `_row_id`. If another change
        wins, this one is replanned on the new version, until `timeout_s` ends.

        Args:
            where: a filter, or `true` for every row.
            set: column → its new value: a Python value, or an expression of `pyarrow.compute` over the row's current
                columns, such as `pc.field("seats") + 1`.
            isolation: as in `overwrite`.
            timeout_s: the time for planning and waiting, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.

        Returns:
            The commit. `.rows.updated` is the number of rows. If no row matches, nothing is published, and it is the
            newest version.

        Raises:
            Invalid: `filter-invalid`, `column-unknown`, `rows-invalid` (a value that does not fit its column), or a
                rejection such as `isolation-conflict` that replanning did not resolve.
            OutcomeUnknown: `verdict-timeout`. A second update is safe if the new values do not depend on the old ones.
        """
        from rootline.client.assigned_values import given_assignments
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_updates import update_rows

        options = ChangeOptions.of(isolation, timeout_s, target_file_size_bytes, summary)
        updated, values = checks.deleting_filter(where), given_assignments(set, "set")
        return self._changing(
            lambda session: update_rows(session, self._lake.stamp, self.name, updated, values, options)
        )

    def upsert(
        self,
        rows: Any,
        *,
        on: Sequence[str] | None = None,
        skip_unchanged: bool = True,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Update the rows of the table that have a key of `rows`, and insert the other rows, in one commit.

        Of several upserts of one key at the same time, none is lost, and none adds the key twice: each is replanned
        after the one before it, until `timeout_s` ends. Only files that may have one of the keys are read. Delete
        vectors mark the old rows.

        Args:
            rows: the rows, as in `append`. Columns that a row lacks keep their values if it is updated, and get their
                defaults if it is new.
            on: the columns of the key, by default the table's identifier fields: `["id"]`, `["route.id"]` for a member
                of a struct. A null in a key equals nothing, so such a row is always inserted.
            skip_unchanged: do not write rows of the table that have all the values of `rows` already, and do not count
                them. With `False`, they are written, and columns that `rows` have are not read.
            timeout_s: the time for planning and waiting, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.

        Returns:
            The commit. `.rows.inserted` and `.rows.updated` are the numbers of rows. If no row changes, nothing is
            published, and it is the newest version.

        Raises:
            Invalid: `rows-invalid`, two rows have the same key, or a row does not fit; `column-unknown`;
                `setting-invalid`, the table has no identifier fields, and `on` names no columns; or a rejection such as
                `isolation-conflict` that replanning did not resolve.
            OutcomeUnknown: `verdict-timeout`. A second upsert of the same rows is safe, unless a key has a null.
        """
        from dataclasses import replace

        from rootline.client.row_updates import UPSERT

        skips_same = checks.truth(skip_unchanged, "skip_unchanged")
        rules = replace(UPSERT, on=None if on is None else checks.texts(on, "on"), skips_same=skips_same)
        return self._merging(rows, rules, Isolation.SERIALIZABLE, timeout_s, target_file_size_bytes, summary)

    def merge(
        self,
        source: Any,
        *,
        on: Sequence[str] | None = None,
        when_matched: WhenMatched = "update",
        when_not_matched: WhenNotMatched = "insert",
        isolation: Isolation | str = Isolation.SERIALIZABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Merge the rows of `source` into the table, in one commit.

        An expression in a value names the two sides `source` and `target`: `pc.field("source", "price")`.

        Args:
            source: the rows, as in `append`. At most one of them may match a row of the table.
            on: columns of both sides that are equal in matching rows, by default the identifier fields. A null equals
                nothing.
            when_matched: `update` sets every column that the source's row has. `delete` deletes the row. A dict of
                columns and values sets these, as in `update_where`. `None` keeps the row unchanged.
            when_not_matched: `insert` adds the source's row. A dict of columns and values adds a row of these, over
                `source` only. `None` adds no row.
            isolation: `serializable`: a row that another change adds meanwhile, and that may have a key that the merge
                inserts, is a conflict, and the merge is replanned. `snapshot` accepts such a row, so two merges may
                both insert a key. A row that both change is a conflict in either case.
            timeout_s: the time for planning and waiting, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.

        Returns:
            The commit. `.rows` has the numbers of inserted, updated and deleted rows. If nothing has to change, nothing
            is published, and it is the newest version.

        Raises:
            Invalid: `merge-ambiguous`, two rows of the source match one row of the table; `column-unknown`;
                `rows-invalid`; `setting-invalid`; or a rejection such as `isolation-conflict` that replanning did
                not resolve.
            OutcomeUnknown: `verdict-timeout`.
        """
        from rootline.client.row_updates import MergeRules

        rules = MergeRules.of(None if on is None else checks.texts(on, "on"), when_matched, when_not_matched)
        return self._merging(source, rules, isolation, timeout_s, target_file_size_bytes, summary)

    def rewrite(
        self,
        *,
        where: str | None = None,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        summary: Mapping[str, str] | None = None,
    ) -> tuple[Commit, ...]:
        """Rewrite the files that may match `where`: small ones together, without deleted rows.

        No row and no `_row_id` changes, so no change feed shows it. Each group of files is one commit. Concurrent
        deletes are never undone: they apply to the new files, or the group is rejected and not retried.

        Args:
            where: a filter. Without it, all files are rewritten.
            target_file_size_bytes: the approximate size of a data file.
            timeout_s: the waiting time for the verdict on each group, in seconds.
            summary: text to text, stored in the snapshots.

        Returns:
            The commits, empty if no file is worth rewriting.

        Raises:
            Invalid: `filter-invalid`, or a rejection such as `stale-source`. The groups before it are committed.
            OutcomeUnknown: `verdict-timeout`, of one group.
        """
        from rootline.client.row_changes import RewriteOptions, rewrite_files

        options = RewriteOptions(*checks.write_options(timeout_s, target_file_size_bytes, summary))
        chosen = checks.filter_text(where)
        return self._changing(lambda session: rewrite_files(session, self._lake.stamp, self.name, chosen, options))

    def _merging(
        self,
        rows: Any,
        rules: MergeRules,
        isolation: Isolation | str,
        timeout_s: float,
        target_file_size_bytes: int,
        summary: Mapping[str, str] | None,
    ) -> Commit:
        from rootline.client.given_rows import GivenRows
        from rootline.client.planned_change import ChangeOptions
        from rootline.client.row_updates import merge_rows

        options, given = ChangeOptions.of(isolation, timeout_s, target_file_size_bytes, summary), GivenRows.of(rows)
        return self._changing(lambda session: merge_rows(session, self._lake.stamp, self.name, given, rules, options))

    def __getstate__(self) -> tuple[OpenLake, TableName]:
        return self._lake, self.name

    def __setstate__(self, state: tuple[OpenLake, TableName]) -> None:
        self._lake, self.name, self._known = *state, None

    def _changing(self, operation: Operation[T]) -> T:
        async def changing(session: Session) -> T:
            try:
                return await operation(session)
            except Invalid as error:
                if error.code in _STALE_CODES:
                    self._known = None  # the table was changed or recreated: the next call re-reads its definition
                raise

        return self._lake.holder.run(changing)

    async def _definition(self, session: Session) -> TableDefinition:
        """The definition, read once: it is immutable, and a rejection because of its change clears this cache."""
        from rootline.storage.metadata.root_reader import read_definition

        if self._known is None:
            head = await read_head(session.store, self.name)
            self._known = await read_definition(session.store, head.header)
        return self._known
