"""The kind `rewrite`: replace data files with others that contain the same rows. No net change to data.

Owns: its rules, and the new rows. Does not own: the rules of single files and of the vectors of sources
(`file_rules`), how sources are removed without a trace (`draft`).
Invariants: Deleted rows stay deleted, whatever was committed after the writer read the table. Deletes committed since
still reach the new files. The new files contain as many rows as the sources had, as far as metadata can prove.

Theory. The writer read the table at sequence number R, applied every delete that it found, and wrote the remaining
rows. So the new files get R as data sequence number: an equality delete up to R is applied already, and a newer one
reaches them. The sources' own numbers do not matter, but a source or vector added after R cannot have been read at R. A
newer equality delete of another partition spec would not reach the new files, and its effect would be lost, so the
intent is rejected. Rows are counted in bounds: a source loses what its vector deletes, which is exact, and what
equality deletes up to R delete. Statistics only prove that such a delete matches nothing.

Source: format page, "Rewrites". Protocol page, section 2. Decision 0034.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect, Replace
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import REPLACED_FILES, REWRITTEN_FILES
from rootline.tree.proof.adoption import has_older_deletes
from rootline.tree.rules.file_rules import added_rows, removals
from rootline.tree.rules.isolation_rules import read_number
from rootline.tree.scan.delete_index import is_unpartitioned, may_delete_rows
from rootline.tree.state.live_index import Live


def rewrite(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Replace files and their vectors with the files that contain their rows.

    Raises:
        Invalid: `version-unknown`, no one can have read that sequence number; `stale-source`, a file or its deletes are
            not the ones that were read; `row-count-mismatch`; or a rule of the new files is broken.
    """
    read = read_number(draft, intent)
    if any(item.content_type is not ContentType.DATA for item in intent.remove_files):
        raise Invalid("intent-malformed", "kind rewrite replaces data files only: use remove for equality deletes")
    sources = _sources(draft, intent, read, fetched)
    if isinstance(sources, Needs):
        return sources
    new_rows = [_rewritten(draft, row, read) for row in added_rows(draft, intent)]
    _check_later_deletes(draft, sources, new_rows, read)
    _check_counts(draft, sources, new_rows, read)
    return Change.of(Effect.MAINTAINS, Replace(tuple(sources), tuple(new_rows)))


def summary_of_rewrites(draft: Draft) -> dict[str, str]:
    """Keys for the snapshot's summary: the numbers of replaced and new files, which no other key counts."""
    replaced, rewritten = draft.counts.replaced.data_files, draft.counts.rewritten.data_files
    return {REPLACED_FILES: str(replaced), REWRITTEN_FILES: str(rewritten)} if replaced else {}


def _sources(draft: Draft, intent: Intent, read: int, fetched: FetchedObjects) -> list[Live] | Needs:
    try:
        sources = removals(draft, intent, fetched)
    except Invalid as error:
        if error.code != "file-not-live":
            raise
        raise Invalid(
            "stale-source",
            f"{error.message} any more: it was removed or rewritten since the writer read; plan the rewrite again",
        ) from None
    for live in () if isinstance(sources, Needs) else sources:
        info = live.entry.version_info  # a compacted vector is in another file, but deletes the same rows
        added = (info.file_sequence_number if _is_data(live) else info.sequence_number) or 0
        if added > read:
            raise Invalid(
                "stale-source",
                f"{live.entry.location!r} was added at sequence number {added}, after {read}, which the writer read: "
                "plan the rewrite again",
            )
    return sources


def _rewritten(draft: Draft, row: Row, read: int) -> Row:
    """The row of a new file: EXISTING, with the sequence number that was read as its data sequence number."""
    number = row.entry.version_info.file_sequence_number
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, read, number)
    return row.with_version_info(numbers)


def _added_at(equality: ContentEntry) -> int:
    return equality.version_info.sequence_number or 0


def _check_later_deletes(draft: Draft, sources: Sequence[Live], new_rows: Sequence[Row], read: int) -> None:
    """Check that every delete that the writer did not read and that reaches a source also reaches the new files."""
    later = [equality for equality in draft.live_equality_deletes() if _added_at(equality) > read]
    for equality in later:
        if not any(_is_data(live) and may_delete_rows(equality, live.entry, draft.definition) for live in sources):
            continue
        for row in new_rows:
            if not _keeps_reaching(draft, equality, row.entry):
                raise Invalid(
                    "stale-source",
                    f"equality delete {equality.location!r} of sequence number {_added_at(equality)} may delete rows "
                    f"of the sources, but the writer read {read}, and it would not reach {row.entry.location!r}",
                )


def _keeps_reaching(draft: Draft, equality: ContentEntry, data: ContentEntry) -> bool:
    """Whether `equality` can reach a new file: its spec is the file's, or is unpartitioned."""
    spec = draft.definition.spec_by_id(equality.partition_spec_id)
    return data.partition_spec_id == spec.spec_id or is_unpartitioned(spec, draft.definition)


def _check_counts(draft: Draft, sources: Sequence[Live], new_rows: Sequence[Row], read: int) -> None:
    """Check the number of new rows.

    They are at least the source rows that no delete up to `read` can match, and at most those that no vector deletes.
    """
    seen = [equality for equality in draft.live_equality_deletes() if _added_at(equality) <= read]
    deleted = {live.entry.referenced_file: live.entry.record_count for live in sources if not _is_data(live)}
    has_older = has_older_deletes(row.entry for row in draft.live.leaf_rows.values())
    most = least = 0
    for live in filter(_is_data, sources):
        rows = live.entry.record_count - deleted.get(live.entry.location, 0)
        most += rows
        if not (has_older or any(may_delete_rows(equality, live.entry, draft.definition) for equality in seen)):
            least += rows
    written = sum(row.entry.record_count for row in new_rows)
    if not least <= written <= most:
        expected = str(most) if least == most else f"{least} to {most}"
        raise Invalid(
            "row-count-mismatch",
            f"the sources have {expected} rows that are not deleted, the new files {written}: rewrite them again",
        )


def _is_data(live: Live) -> bool:
    return live.entry.content_type is ContentType.DATA
