"""Rules for the files that an intent adds, verifies against the store, and removes.

Owns: the rules that data files and equality delete files share, their rows, which files must be verified, the rules of
`remove_files`. Does not own: statistics (`file_proof`), the text of locations (`intent_rules`), which kinds add files,
reading files to verify them (`rootline.storage.rows.file_footers`), files in leaves (`leaf_rules`), the comparison of
vectors (`vector_rules`).
Invariants:
* Every returned row can be encoded. Its status and numbers are those of the next accepted intent.
* An intent is not decided before all its data files are verified, if the table requires it. Only locations where a
  writer may store a file are read. Equality deletes are not verified, because their record counts assign no row ids.
* A data file is never removed without its vector, nor while rows are deleted from it that the writer did not see as
  deleted. A vector that a compaction moved is compared with the one that the writer saw by reading both.

Source: protocol page, section 2, "Validation". Decision 0010.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    EntryPlace,
    FileFormat,
    unchecked_entry,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind, RemovedFile
from rootline.schemas.intent_rules import check_location, is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.tree.draft.batch import FetchedObjects, Need, Needs
from rootline.tree.draft.draft import LONG_MAX, Draft
from rootline.tree.proof.file_proof import StatedFile, check_file_rows, check_intent_rows, statistics_of, verifies_files
from rootline.tree.rules.vector_rules import VectorNeed, deletes_as_seen, reference_of, seen_to_compare
from rootline.tree.state.live_index import Live

_REMOVABLE = (ContentType.DATA, ContentType.EQUALITY_DELETE)


def added_rows(draft: Draft, intent: Intent) -> list[Row]:
    """The rows of an intent's `add_data_files` and `add_equality_deletes`.

    Raises:
        Invalid: a file breaks a rule. The message names the file.
    """
    next_row_id = draft.next_row_id
    size = draft.counts.data_bytes
    numbers = draft.numbers()
    limits = draft.row_limits
    rows: list[Row] = []
    for data_file in intent.add_data_files:
        check_file_rows(data_file.location, data_file.record_count, data_file.file_size_in_bytes, limits)
        entry = unchecked_entry(
            ContentType.DATA,
            data_file.location,
            _checked_format(data_file),
            numbers,
            data_file.partition_spec_id,
            data_file.record_count,
            data_file.file_size_in_bytes,
            None,
            _checked_order(draft, data_file),
            None,
            None,
            data_file.key_metadata,
            data_file.split_offsets,
            None,
            next_row_id,
            _checked_content(draft, data_file),
        )
        next_row_id += data_file.record_count
        size += data_file.file_size_in_bytes
        if next_row_id > LONG_MAX or size > LONG_MAX:
            raise Invalid("intent-malformed", f"{data_file.location!r}: the table's counters would exceed 64 bits")
        rows.append(Row.of(entry, draft.codec))
    check_intent_rows(next_row_id - draft.next_row_id, limits)
    for equality in intent.add_equality_deletes:
        rows.append(_equality_row(draft, equality))
    return rows


def _equality_row(draft: Draft, equality: EqualityDeleteFile) -> Row:
    check_equality_ids(draft, repr(equality.location), equality.equality_ids)
    if equality.sort_order_id is not None:
        raise Invalid("intent-malformed", f"{equality.location!r}: an equality delete must not have sort_order_id")
    entry = ContentEntry(
        content_type=ContentType.EQUALITY_DELETE,
        location=equality.location,
        file_format=_checked_format(equality),
        version_info=draft.numbers(),
        partition_spec_id=equality.partition_spec_id,
        record_count=equality.record_count,
        file_size_in_bytes=equality.file_size_in_bytes,
        key_metadata=equality.key_metadata,
        split_offsets=equality.split_offsets,
        equality_ids=equality.equality_ids,
        content_stats=_checked_content(draft, equality),
    )
    return Row.of(entry, draft.codec)


def check_equality_ids(draft: Draft, name: str, equality_ids: Sequence[int]) -> None:
    """Raises `Invalid` (`intent-malformed`) unless these ids can be an equality delete's columns."""
    columns = draft.definition.tracked_by_id
    for column_id in equality_ids:
        if column_id not in columns or columns[column_id].is_expression:
            known = "not a primitive column with comparable values (ids above 10,000,000 have no statistics)"
            raise Invalid("intent-malformed", f"{name}: equality id {column_id} is {known}")
    if len(set(equality_ids)) != len(equality_ids):
        raise Invalid("intent-malformed", f"{name}: an equality id occurs twice")


def check_named_once(intent: Intent) -> None:
    """Raises `Invalid` (`file-named-twice`) when an intent lists a file, a blob or a blob's data file twice."""
    if intent.kind is IntentKind.APPEND and len(intent.add_data_files) == 1 and not intent.add_manifests:
        return
    adds = len(intent.add_data_files) + len(intent.add_equality_deletes)
    if adds + len(intent.remove_files) > 1:
        _once(
            item.location
            for items in (intent.add_data_files, intent.add_equality_deletes, intent.remove_files)
            for item in items
        )
    if len(intent.add_vectors) > 1:
        _once(f"{vector.location} at {vector.offset}" for vector in intent.add_vectors)
        _once(vector.referenced_file for vector in intent.add_vectors)
    if len(intent.add_manifests) > 1:
        _once(manifest.location for manifest in intent.add_manifests)


def check_own_location(draft: Draft, location: str, prefixes: Sequence[str] = ()) -> None:
    """Raises `Invalid` (`location-invalid`) unless a writer may store a file there, or below one of `prefixes`."""
    if not is_plain(location):
        check_location(location, is_live=draft.is_live, prefixes=prefixes)
    if location.startswith(RESERVED_PREFIXES):
        folder = location.partition("/")[0]
        raise Invalid(
            "location-invalid",
            f"location {location[:80]!r} is in {folder}/, which is reserved for the table's own objects: use data/",
        )


def _once(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Invalid("file-named-twice", f"the intent lists {name!r} twice: list it once")
        seen.add(name)


def _checked_content(draft: Draft, data_file: DataFile) -> ContentStats:
    location = data_file.location
    check_own_location(draft, location, () if isinstance(data_file, EqualityDeleteFile) else draft.file_prefixes)
    if draft.is_live(location):
        raise Invalid("file-already-live", f"{location!r} is already part of the table")
    return statistics_of(data_file, draft.definition, draft.codec)


def _checked_format(data_file: DataFile) -> FileFormat:
    if data_file.file_format is FileFormat.PUFFIN:
        raise Invalid("intent-malformed", f"{data_file.location!r}: a file of rows cannot be a Puffin file")
    return data_file.file_format


def _checked_order(draft: Draft, data_file: DataFile) -> int | None:
    order_id = data_file.sort_order_id
    if order_id and order_id not in draft.definition.sort_order_ids:
        raise Invalid("intent-malformed", f"{data_file.location!r}: the table has no sort order {order_id}")
    return order_id


@dataclass(frozen=True, slots=True)
class FileNeed(Need[Invalid | None]):
    """The comparison of a data file with the store: its fault, or `None` for a file without fault."""

    file: StatedFile


def stated(file: DataFile) -> StatedFile:
    """A data file as the intent describes it."""
    return StatedFile(
        file.location, file.file_format, file.record_count, file.file_size_in_bytes, file.key_metadata is not None
    )


def is_in_place(file: StatedFile) -> bool:
    """Whether a writer may certainly store a file there. Other locations are decided by the general rules first."""
    return is_plain(file.location) and not file.location.startswith(RESERVED_PREFIXES)


def files_to_verify(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Needs | None:
    """The files that are not verified yet, or `None`. Raises `Invalid` with the fault of a verified file."""
    if not intent.add_data_files or not verifies_files(draft.definition):
        return None
    for file in intent.add_data_files:
        check_own_location(draft, file.location, draft.file_prefixes)
    needs = [FileNeed(stated(file)) for file in intent.add_data_files]
    missing = fetched.missing(needs)
    if missing:
        return missing
    for need in needs:
        fault = fetched.of(need)
        if isinstance(fault, Invalid):
            raise fault
    return None


def removals(draft: Draft, intent: Intent, fetched: FetchedObjects) -> list[Live] | Needs:
    """The live entries in `remove_files`, with their vectors, or the objects that must be fetched to decide.

    Raises:
        Invalid: `location-invalid`, `intent-malformed`, `file-not-live`, `stale-source`.
    """
    removed: list[Live] = []
    needed: set[VectorNeed] = set()
    for item in intent.remove_files:
        check_location(item.location, is_live=draft.is_live)
        if item.content_type not in _REMOVABLE:
            raise Invalid(
                "intent-malformed",
                f"{item.location!r}: content type {int(item.content_type)} cannot be removed by an intent, only 0 or 2",
            )
        live = draft.find(EntryPlace(item.content_type, item.location))
        if live is None:
            raise Invalid("file-not-live", f"{item.location!r} is not part of the table")
        removed.append(live)
        vector = draft.vector_of(item.location) if item.content_type is ContentType.DATA else None
        needed |= _check_seen(draft, intent, item, vector, fetched)
        if vector is not None:
            removed.append(vector)
    return Needs.of(needed) if needed else removed


def _check_seen(
    draft: Draft, intent: Intent, item: RemovedFile, vector: Live | None, fetched: FetchedObjects
) -> set[VectorNeed]:
    """The vectors to read, if the live vector and the one that the writer saw are in different places."""
    if reference_of(vector) == item.vector:
        return set()
    if item.vector is not None and vector is not None and not _is_newer(vector, intent):
        places = seen_to_compare(item.vector, vector.entry, draft)
        missing = {at for at in places if at not in fetched}
        if missing or (places and deletes_as_seen(item.vector, vector.entry, draft, fetched)):
            return missing
    seen = "no deletion vector" if item.vector is None else f"{item.vector.location!r} at {item.vector.offset}"
    raise Invalid(
        "stale-source",
        f"{item.location!r} now has other deleted rows than the writer saw (it saw {seen}): read the table again",
    )


def _is_newer(vector: Live, intent: Intent) -> bool:
    """Whether a vector deletes rows since the writer read. A compaction does not change a vector's sequence number."""
    read = intent.read_sequence_number
    return read is not None and (vector.entry.version_info.sequence_number or 0) > read
