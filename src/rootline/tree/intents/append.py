"""The kind `append`: new data files, listed one by one or in leaves, and a faster implementation for a single file.

Owns: the kind, recognizing an append of one file that breaks no rule, and its row. Does not own: the rules, which have
their own modules (`decide`, `file_rules`, `file_proof`, `draft`) and give the reasons of a rejection.
Invariants: One-sided: if a row is returned, the general path makes the same row (a property test compares the two). If
none is returned, the general path decides, and may accept the intent.

Theory. The general path calls a dozen functions for a row, and each is there for a rare case. Half of the time of an
append, statistics aside, went into these calls.
"""

from __future__ import annotations

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentType, FileFormat, unchecked_entry
from rootline.schemas.intent import Intent, IntentKind, Isolation
from rootline.schemas.intent_rules import is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Add, Change, Effect, TakeLeaf
from rootline.tree.draft.draft import LONG_MAX, Draft
from rootline.tree.proof.file_proof import is_plausible, verifies_files
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.leaf_rules import missing_leaves, writer_leaves


def append(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Add data files, listed one by one or in leaves. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    rows = added_rows(draft, intent)
    return Change.of(Effect.ADDS, Add(tuple(rows)), *map(TakeLeaf, writer_leaves(draft, intent, fetched, rows)))


def fast_append_row(draft: Draft, intent: Intent) -> Row | None:
    """The row that `intent` adds, or `None`: use the general path. Raises `Invalid` (`spec-unknown`), as that would."""
    files = intent.add_data_files
    if (
        len(files) != 1
        or intent.kind is not IntentKind.APPEND
        or intent.isolation is not Isolation.SNAPSHOT
        or intent.summary
        or intent.add_manifests
        or intent.definition is not None
    ):
        return None
    definition, codec, file = draft.definition, draft.codec, files[0]
    encoded, statistics = file.content_stats, codec.statistics
    if (
        (intent.table_uuid is not None and intent.table_uuid.int != definition.table_uuid.int)
        or (
            intent.schema_id != definition.current_schema_id
            and (intent.schema_id is not None or definition.oldest_schema_id)
        )
        or (file.sort_order_id and file.sort_order_id not in definition.sort_order_ids)
        or file.file_format is FileFormat.PUFFIN
        or encoded is None
        or file.stats_schema != statistics.fingerprint
        or verifies_files(definition)
    ):
        return None
    limits = draft.row_limits
    location, record_count, size, row_id = file.location, file.record_count, file.file_size_in_bytes, draft.next_row_id
    if (
        not is_plausible(record_count, size, limits)
        or record_count > limits.intent
        or row_id + record_count > LONG_MAX
        or draft.counts.data_bytes + size > LONG_MAX
        or not is_plain(location)
        or location.startswith(RESERVED_PREFIXES)
        or draft.is_live(location)
        or not statistics.proof.proves(encoded, record_count, definition.spec_by_id(file.partition_spec_id).expr_ids)
    ):
        return None
    entry = unchecked_entry(
        ContentType.DATA,
        location,
        file.file_format,
        draft.numbers(),
        file.partition_spec_id,
        record_count,
        size,
        None,
        file.sort_order_id,
        None,
        None,
        file.key_metadata,
        file.split_offsets,
        None,
        row_id,
        LazyStats(statistics, encoded, location),
    )
    row = Row.of(entry, codec)
    return row if draft.has_room(1, len(row.tail)) else None
