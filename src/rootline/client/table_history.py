"""A table and its past, as a program sees them.

Owns: the public methods of a table that look back, name what was, return to it, and leave it behind. Does not own: how
each is carried out (its neighbours in this folder), reading and changing rows (`table_handle`).
Invariants: holds no connection, only names one; every change waits for its verdict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES
from rootline.client.producer import DEFAULT_TIMEOUT_S
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


class TableHistory:
    """The part of a `TableHandle` that is about versions."""

    def __init__(self, lake: OpenLake, name: TableName) -> None:
        self._lake = lake
        self.name = name
        self._known: TableDefinition | None = None
        """The definition as it was read last."""

    def history(self, *, limit: int = 20, everything: bool = False) -> list[RootHeader]:
        """The headers of the newest `limit` addressable versions, newest first: snapshot, totals, tags, ledger.

        A version that only records verdicts (all its intents were rejected, or duplicates) is in it only if
        `everything` is wanted. It can be read by its number all the same; `head()` is the newest version of all.

        Raises:
            Invalid: `setting-invalid`, `limit` is less than 1.

        """
        from rootline.client.version_history import read_history

        most, shows_all = checks.whole(limit, "limit", least=1), checks.truth(everything, "everything")
        return self._lake.holder.run(lambda session: read_history(session.store, self.name, most, everything=shows_all))

    def changes(self, *, from_version: int, to_version: int | None = None) -> TableChanges:
        """What changed after `from_version` up to and including `to_version` (without it, the newest), taken together.

        Data files and delete files that were added and removed, and the rows that were deleted from files that stayed.
        Only roots in between are read, and what they changed; maintenance does not show.

        Raises:
            Invalid: `version-unknown`, a version of the range has expired or is not there yet; `setting-invalid`.

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
        """Let the tag `name` mean `version` (without it, the newest).

        A tagged version stays addressable when the versions around it expire. A tag that means another version already
        is moved only with `move`.

        Returns:
            The commit of the tag; its version is not the tagged one.

        Raises:
            Invalid: `tag-conflict`, the tag means another version; `tag-invalid`, `version-unknown`.
            OutcomeUnknown: `verdict-timeout`; setting it again is safe.

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
        """Delete a tag. Raises as `tag`, and `Invalid` (`tag-unknown`) when there is none."""
        from rootline.client.version_history import delete_tag

        tag, wait_s = checks.text(name, "name"), checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: delete_tag(session, self._lake.stamp, self.name, tag, timeout_s=wait_s)
        )

    def tags(self) -> dict[str, int]:
        """Tag → the version that it means."""
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
        """Empty the table, and give it other rows and columns, in one commit; its name, uuid and history stay.

        Whatever is in the table when this is committed leaves, also what another writer has just added. Who wrote for
        the table before, and is late, is rejected (`table-replaced`). `restore` brings back what was.

        Args:
            data: the new rows, as in `append`; None: it is empty.
            schema: its new columns, as `create_table` takes them; None: they stay. A column of the same name keeps its
                id if its type stays or gets wider.
            partition_by: as in `create_table`; None: as it is.
            sort_by: as in `create_table`; None: as it is.
            properties: to set besides those that it has.
            timeout_s: how many seconds to wait for the verdict.
            target_file_size_bytes: about how large a data file gets.
            summary: text to text, kept in the snapshot.

        Raises:
            Invalid: `rows-invalid`, `definition-invalid`, `evolution-illegal`, `setting-invalid`, or the intent was
                rejected.
            OutcomeUnknown: `verdict-timeout`; `history` tells whether it was committed.

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

        Nothing is lost: the versions in between stay, and can be restored too. Row ids and the reach of equality
        deletes are as they were then; tags and what was decided for writers stay as they are now.

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
        """What `restore` would change now; nothing is published. Raises as `restore`."""
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
        """Read every version of the table and yield what is wrong with it; nothing for a table that is sound.

        Args:
            data_files: how closely to look at the files that hold rows: `ignored`, `listed` (each exists; the
                default), `sizes` (each has the length that its entry says), `footers` (and as many rows, and columns of
                the table), `all` (and every row can be read and is within what its entry says).
            summary: filled in as the check goes on.
            progress: called with the summary now and then, on another thread.

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
        checks.one_of_or_none(summary, CheckSummary, "summary", "a CheckSummary")
        if progress is not None and not callable(progress):
            raise Invalid("setting-invalid", f"progress={progress!r:.80}: give a function that takes the summary")

        async def findings(session: Session) -> AsyncIterator[Finding]:
            store, told = session.store, CheckSummary() if summary is None else summary
            async for finding in check_table(store, self.name, data_files=closely, summary=told, progress=progress):
                yield finding
            async for finding in check_exports(store, self.name, told):
                yield finding

        return self._lake.holder.iterate(findings)

    def head(self) -> RootHeader:
        """The newest version's header. Raises `Invalid` (`table-unknown`)."""

        async def operation(session: Session) -> RootHeader:
            return (await read_head(session.store, self.name)).header

        return self._lake.holder.run(operation)
