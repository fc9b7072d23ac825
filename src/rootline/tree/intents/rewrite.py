"""The kind `rewrite`: data files leave, others come that hold the same rows. No net change to data.

Owns: its rules, and the rows of what comes. Does not own: the rules of single files (`file_rules`), of seeing their
vectors (`removal_rules`), how sources leave without a trace (`draft`).
Invariants: rows that are deleted stay deleted, whatever came after the writer read; what came after still reaches the
new files; the new files hold as many rows as those that left had, as far as metadata tells.

Theory. The writer read the table at sequence number R, applied every delete that it found, and wrote what was left.
So the new files are as old as R: an equality delete up to R has done its work on them, a newer one has not, and reaches
them because their data sequence number is R. The sources' own numbers play no part, but a source, or a vector, that
came after R cannot have been read at R. What is newer than R and would not reach the new files, because it is of
another partition spec, would be undone. Rows are counted in bounds: a source loses what its vector deletes, which is
exact, and what equality deletes up to R delete, of which statistics only tell whether they may delete anything at all.

Source: format page, "Rewrites"; protocol page, section 2; decision 0034.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.live_deletes import live_equality_deletes
from rootline.tree.draft.summary import REPLACED_FILES, REWRITTEN_FILES
from rootline.tree.proof.adopted_rows import has_older_deletes
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.read_number import read_number
from rootline.tree.rules.removal_rules import removals
from rootline.tree.scan.equality_reach import may_delete_rows
from rootline.tree.scan.partition_tuple import is_unpartitioned
from rootline.tree.state.live_index import Live


def rewrite(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Files that leave, with their vectors, and those that hold their rows from now on.

    Raises:
        Invalid: `version-unknown`, no one can have read that sequence number; `stale-source`, a file or its deletes are
            not those that were read; `row-count-mismatch`; or a rule of the new files is broken.

    """
    read = read_number(draft, intent)
    if any(item.content_type is not ContentType.DATA for item in intent.remove_files):
        raise Invalid("intent-malformed", "kind rewrite replaces data files only: remove equality deletes with remove")
    leaving = _sources(draft, intent, read, fetched)
    if isinstance(leaving, Needs):
        return leaving
    coming = [_rewritten(draft, row, read) for row in added_rows(draft, intent)]
    _check_later_deletes(draft, leaving, coming, read)
    _check_counts(draft, leaving, coming, read)
    return Change(Effect.MAINTAINS, replaced=tuple(leaving), rewritten=tuple(coming))


def summary_of_rewrites(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says of its rewrites: no other count knows of them."""
    replaced, rewritten = draft.counts.replaced.data_files, draft.counts.rewritten.data_files
    return {REPLACED_FILES: str(replaced), REWRITTEN_FILES: str(rewritten)} if replaced else {}


def _sources(draft: Draft, intent: Intent, read: int, fetched: FetchedObjects) -> list[Live] | Needs:
    try:
        leaving = removals(draft, intent, fetched)
    except Invalid as error:
        if error.code != "file-not-live":
            raise
        raise Invalid(
            "stale-source",
            f"{error.message} any more: it was removed or rewritten since the writer read; plan the rewrite again",
        ) from None
    for live in () if isinstance(leaving, Needs) else leaving:
        info = live.entry.version_info  # a vector that a compaction moved has another file, and deletes the same rows
        came = (info.file_sequence_number if _is_data(live) else info.sequence_number) or 0
        if came > read:
            raise Invalid(
                "stale-source",
                f"{live.entry.location!r} came at sequence number {came}, after {read}, which the writer read",
            )
    return leaving


def _rewritten(draft: Draft, row: Row, read: int) -> Row:
    """The row of a new file: as old as what was read, and no change that anybody has to look at."""
    number = row.entry.version_info.file_sequence_number
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, read, number)
    return row.with_version_info(numbers)


def _came_at(equality: ContentEntry) -> int:
    return equality.version_info.sequence_number or 0


def _check_later_deletes(draft: Draft, leaving: Sequence[Live], coming: Sequence[Row], read: int) -> None:
    """Of every delete that the writer did not read: where it reaches a source, it must reach what replaces it."""
    later = [equality for equality in live_equality_deletes(draft) if _came_at(equality) > read]
    for equality in later:
        if not any(_is_data(live) and may_delete_rows(equality, live.entry, draft.definition) for live in leaving):
            continue
        for row in coming:
            if not _keeps_reaching(draft, equality, row.entry):
                raise Invalid(
                    "stale-source",
                    f"equality delete {equality.location!r} of sequence number {_came_at(equality)} may delete rows of "
                    f"the sources; the writer read {read}, and it would not reach {row.entry.location!r}",
                )


def _keeps_reaching(draft: Draft, equality: ContentEntry, data: ContentEntry) -> bool:
    """Whether `equality` looks at a new file: it looks in its own spec, or everywhere. Tuples follow from the rows."""
    spec = draft.definition.spec_by_id(equality.partition_spec_id)
    return data.partition_spec_id == spec.spec_id or is_unpartitioned(spec, draft.definition)


def _check_counts(draft: Draft, leaving: Sequence[Live], coming: Sequence[Row], read: int) -> None:
    """Every row that no delete up to `read` can have reached is there, and none that a vector deletes."""
    seen = [equality for equality in live_equality_deletes(draft) if _came_at(equality) <= read]
    deleted = {live.entry.referenced_file: live.entry.record_count for live in leaving if not _is_data(live)}
    has_older = has_older_deletes(row.entry for row in draft.live.leaf_rows.values())
    most = least = 0
    for live in filter(_is_data, leaving):
        rows = live.entry.record_count - deleted.get(live.entry.location, 0)
        most += rows
        if not (has_older or any(may_delete_rows(equality, live.entry, draft.definition) for equality in seen)):
            least += rows
    written = sum(row.entry.record_count for row in coming)
    if not least <= written <= most:
        expected = str(most) if least == most else f"{least} to {most}"
        raise Invalid(
            "row-count-mismatch", f"the sources have {expected} rows that are not deleted, the new files hold {written}"
        )


def _is_data(live: Live) -> bool:
    return live.entry.content_type is ContentType.DATA
