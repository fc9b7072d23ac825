"""The versions of a table, for a client program.

Owns: the public methods of a table for its versions: history, changes, tags, restore, replace, check. Does not own: the
execution of each method (the other modules of this package), reading and changing rows (`table_handle`).
Invariants: a handle has no connection, only a reference to its lake. Every change waits for its verdict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES, DEFAULT_TIMEOUT_S, ForeignNames
from rootline.client.session import Commit, OpenLake, Session
from rootline.client.time_travel import Moment, PointInTime, read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from rootline.client.layout_terms import SortBy
    from rootline.client.version_history import TableChanges
    from rootline.storage.check.findings import CheckSummary, DataFiles, Finding, Progress


class TableHistory(ForeignNames):
    """The methods of a `TableHandle` for versions."""

    def __init__(self, lake: OpenLake, name: TableName) -> None:
        self._lake = lake
        self.name = name
        self._known: TableDefinition | None = None
        """The definition as last read."""

    def history(self, *, limit: int = 20, everything: bool = False) -> list[RootHeader]:
        """The headers of the newest `limit` addressable versions, newest first: snapshot, totals, tags, ledger.

        A version that only records verdicts (all its intents were rejected or duplicates) is included only with
        `everything`. It can be read by its number in any case. `head()` is the newest version of all.

        Raises:
            Invalid: `setting-invalid`, `limit` is less than 1.
        """
        from rootline.client.version_history import read_history

        most, shows_all = checks.whole(limit, "limit", least=1), checks.truth(everything, "everything")
        return self._lake.holder.run(lambda session: read_history(session.store, self.name, most, everything=shows_all))

    def changes(self, *, from_version: int, to_version: int | None = None) -> TableChanges:
        """The net change after `from_version` up to and including `to_version` (by default the newest).

        It contains added and removed data files and delete files, and deleted rows of files that stayed. Only the roots
        in between and the changed entries are read. Maintenance is not included.

        Raises:
            Invalid: `version-unknown`, a version of the range has expired or does not exist yet; `setting-invalid`.
        """
        from rootline.client.version_history import read_changes

        first, last = checks.whole(from_version, "from_version"), checks.whole_or_none(to_version, "to_version")
        return self._lake.holder.run(lambda session: read_changes(session.store, self.name, first, last))

    def tag(
        self,
        name: str,
        *,
        version: int | None = None,
        move: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Commit:
        """Set the tag `name` to `version` (by default the newest).

        A tagged version stays addressable when the versions around it expire. An existing tag is moved to another
        version only with `move`.

        Returns:
            The commit of the tag. Its version is not the tagged one.

        Raises:
            Invalid: `tag-conflict`, the tag is at another version; `tag-invalid`, `version-unknown`.
            OutcomeUnknown: `verdict-timeout`. Setting it again is safe.
        """
        from rootline.client.version_history import set_tag

        tag, tagged = checks.text(name, "name"), checks.whole_or_none(version, "version")
        may_move, wait_s = checks.truth(move, "move"), checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: set_tag(
                session, self._lake.stamp, self.name, tag, tagged, may_move=may_move, timeout_s=wait_s
            )
        )

    def untag(self, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Delete a tag. Raises the errors of `tag`, and `Invalid` (`tag-unknown`) if there is none."""
        from rootline.client.version_history import delete_tag

        tag, wait_s = checks.text(name, "name"), checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: delete_tag(session, self._lake.stamp, self.name, tag, timeout_s=wait_s)
        )

    def tags(self) -> dict[str, int]:
        """Tag → its version."""
        return dict(self.head().tags)

    def replace(
        self,
        data: Any = None,
        *,
        schema: Any = None,
        partition_by: Sequence[str] | None = None,
        sort_by: SortBy | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
        summary: Mapping[str, str] | None = None,
    ) -> Commit:
        """Replace all rows, and optionally the columns, in one commit. The table's name, UUID and history are kept.

        All rows that are in the table at the commit are removed, even those that another writer has just added. A late
        intent that was planned for the table before it is rejected (`table-replaced`). `restore` can undo it.

        Args:
            data: the new rows, as in `append`. `None`: the table is empty.
            schema: its new columns, as in `create_table`. `None`: they are kept. A column of the same name keeps its id
                if its type is unchanged or wider.
            partition_by: as in `create_table`. `None`: unchanged.
            sort_by: as in `create_table`. `None`: unchanged.
            properties: properties to set in addition to the existing ones.
            timeout_s: the waiting time for the verdict, in seconds.
            target_file_size_bytes: the approximate size of a data file.
            summary: text to text, stored in the snapshot.

        Raises:
            Invalid: `rows-invalid`, `definition-invalid`, `evolution-illegal`, `setting-invalid`, or the intent was
                rejected.
            OutcomeUnknown: `verdict-timeout`. `history` shows whether it was committed.
        """
        from rootline.client.given_rows import GivenRows
        from rootline.client.replace_table import Replacement, replace_table

        becomes = Replacement.of(schema, partition_by, sort_by, properties)
        options = checks.write_options(timeout_s, target_file_size_bytes, summary)
        rows = None if data is None else GivenRows.of(data)
        self._known = None
        return self._lake.holder.run(
            lambda session: replace_table(session, self._lake.stamp, self.name, becomes, rows, *options)
        )

    def restore(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Commit:
        """Make a new version with the content of an earlier one, which is named as in `scan`.

        Nothing is lost: the versions in between stay, and can be restored too. Row ids, and the files that each
        equality delete applies to, are those of the earlier version. Tags and the ledger of writers keep their current
        state.

        Raises:
            Invalid: `version-unknown`, `tag-unknown`, `restore-impossible`, `root-full`.
            OutcomeUnknown: `verdict-timeout`.
        """
        from rootline.client.version_history import restore_version

        point, wait_s = PointInTime(version, snapshot_id, timestamp, tag), checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: restore_version(session, self._lake.stamp, self.name, point, timeout_s=wait_s)
        )

    def preview_restore(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> TableChanges:
        """The changes that `restore` would make now. Nothing is published. Raises the errors of `restore`."""
        from rootline.client.version_history import preview_restore

        point = PointInTime(version, snapshot_id, timestamp, tag)
        return self._lake.holder.run(lambda session: preview_restore(session.store, self.name, point))

    def check(
        self,
        *,
        data_files: DataFiles | str | None = None,
        summary: CheckSummary | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Finding]:
        """Read every version of the table and yield its faults. A sound table has none.

        Args:
            data_files: the depth of the check of data files and delete files: `ignored`, `listed` (each exists, the
                default), `sizes` (each has the length in its entry), `footers` (and the entry's number of rows, and
                columns of the table), `all` (and every row can be read and is within the entry's bounds).
            summary: updated during the check.
            progress: called repeatedly with the summary, on another thread.

        Raises:
            Invalid: `setting-invalid`, there is no such `data_files`.
        """
        from rootline.catalog.retained_exports import check_exports
        from rootline.storage.check.chain import check_table
        from rootline.storage.check.findings import CheckSummary, DataFiles

        known = [item.value for item in DataFiles]
        if data_files is not None and data_files not in known:
            raise Invalid("setting-invalid", f"data_files={data_files!r:.80}: give one of {', '.join(known)}")
        closely = DataFiles(data_files or DataFiles.LISTED)
        if summary is not None:
            checks.one_of(summary, CheckSummary, "summary", "a CheckSummary, or None")
        if progress is not None and not callable(progress):
            raise Invalid("setting-invalid", f"progress={progress!r:.80}: give a function that takes the summary")

        async def findings(session: Session) -> AsyncIterator[Finding]:
            store, counted = session.store, CheckSummary() if summary is None else summary
            async for finding in check_table(store, self.name, data_files=closely, summary=counted, progress=progress):
                yield finding
            async for finding in check_exports(store, self.name, counted):
                yield finding

        return self._lake.holder.iterate(findings)

    def head(self) -> RootHeader:
        """The newest version's header. Raises `Invalid` (`table-unknown`)."""

        async def operation(session: Session) -> RootHeader:
            return (await read_head(session.store, self.name)).header

        return self._lake.holder.run(operation)
