"""Rules for a file that an intent adds, and its row.

Owns: the rules that data files and equality delete files share. Does not own: statistics (`file_proof`), the text
of locations (`intent_rules`), which kinds add files.
Invariants: Every returned row can be encoded. Its status and numbers are those of the next accepted intent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentStats, ContentType, FileFormat, unchecked_entry
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.intent_rules import check_location, is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.tree.draft.draft import LONG_MAX, Draft
from rootline.tree.proof.file_proof import check_file_rows, check_intent_rows, statistics_of


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


def check_own_location(draft: Draft, location: str) -> None:
    """Raises `Invalid` (`location-invalid`) unless a writer may store a file there."""
    if not is_plain(location):
        check_location(location, is_live=draft.is_live)
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
    check_own_location(draft, location)
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
