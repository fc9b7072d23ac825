"""A table of many files with twenty columns of statistics, made from columns in seconds a hundred thousand.

Owns: the files, their leaves, the roots that name them, in a store. Does not own: what is measured on them.
Invariants: the same number gives the same file, and a file has the statistics of `sample_table`; every root comes from
`apply_batch`, as a coordinator would make it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.sample_table import COLUMNS, TABLE, create_record, definition
from rootline.maintenance.file_leaves import LEAF_ENTRIES, leaf_columns
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, decode_leaf, encode_columns
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import CommitId, LogId, LogPosition, ObjectKey
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.object_keys import key_of, root_key
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.state.table_state import TableState

LOG: Final = LogId("embedded/large")


def file_columns(first: int, count: int) -> pa.Table:
    """The files from `first` up to, not including, `first + count`, as `rootline.client` takes many files."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    rows = 10_000 + numbers * 37 % 5_000
    statistics = [_statistics(column, numbers, rows) for column in range(1, COLUMNS + 1)]
    fields = [pa.field(f"_{column}", kind.type) for column, kind in enumerate(statistics, start=1)]
    return pa.table(
        {
            "location": [f"data/{uuid.UUID(int=number)}.parquet" for number in numbers.tolist()],
            "record_count": pa.array(rows),
            "file_size_in_bytes": pa.array(1_000_000 + numbers),
            "content_stats": pa.StructArray.from_arrays(statistics, fields=fields),
        }
    )


def leaves_of(files: int) -> Iterator[tuple[EncodedLeaf, int]]:
    """The leaves of a table of `files` files, and how many each holds."""
    table = definition()
    for first in range(0, files, LEAF_ENTRIES):
        count = min(LEAF_ENTRIES, files - first)
        columns = leaf_columns(file_columns(first, count), table, table.default_spec_id)
        yield encode_columns(columns, leaf_uuid=uuid.UUID(int=first + 1), content=LeafContent.DATA), count


async def build(store: ObjectStore, files: int) -> TableState:
    """A table of `files` files in leaves, in `store`; its state."""
    state = await _commit(store, None, decode_intent(create_record(definition()), {}, IntentLimits()), FetchedObjects())
    for number, (leaf, count) in enumerate(leaves_of(files)):
        await _put(store, key_of(TABLE, leaf.location), leaf.body)
        manifest = AddedManifest(
            location=leaf.location,
            content_type=ContentType.DATA_MANIFEST,
            file_size_in_bytes=len(leaf.body),
            record_count=count,
            partition_spec_id=0,
        )
        fetched = FetchedObjects({LeafNeed(leaf.location): ReadLeaf(decode_leaf(leaf.body, location=leaf.location))})
        state = await _commit(store, state, _append(number, manifest), fetched)
    return state


def _append(number: int, manifest: AddedManifest) -> Intent:
    intent = Intent(
        intent_id=f"leaf-{number}",
        table=TABLE,
        kind=IntentKind.APPEND,
        add_manifests=(manifest,),
        writer_id="large",
        writer_sequence=number,
    )
    return decode_intent(encode_intent(intent), {}, IntentLimits())


async def _commit(store: ObjectStore, state: TableState | None, intent: Intent, fetched: FetchedObjects) -> TableState:
    offset = 0 if state is None else state.header.version + 1
    record = Record(LogPosition(LOG, 0, offset), intent, 1_000)
    stamp = Stamp(CommitId(f"{offset:032x}"), "bench", 1_700_000_000_000 + offset)
    applied = apply_batch(state, TABLE, [record], fetched, stamp, acknowledged={(LOG, 0): offset})
    if not isinstance(applied, Applied) or applied.verdicts[0].code is not None:
        raise TypeError(f"the benchmark's own intent came to {applied}")
    for pending in applied.objects:
        await _put(store, key_of(TABLE, pending.location), pending.body)
    await _put(store, root_key(TABLE, applied.state.header.version), applied.body)
    return applied.state


async def _put(store: ObjectStore, key: ObjectKey, body: bytes) -> None:
    reply = await store.put_if_absent(key, body)
    if reply.answer is not PutStatus.CREATED:
        raise RuntimeError(f"{key}: {reply}")


def _statistics(column: int, numbers: np.ndarray, rows: np.ndarray) -> pa.StructArray:
    low = numbers * 1_000 + column
    members: dict[str, pa.Array] = {
        "lower_bound": _bounds(column, low),
        "upper_bound": _bounds(column, low + 999),
        "tight_bounds": pa.repeat(pa.scalar(value=True), len(numbers)),
        "value_count": pa.array(rows),
        "null_value_count": pa.array(numbers % 7),
    }
    if 8 < column <= 12:
        members["nan_value_count"] = pa.array(np.zeros_like(numbers))
    elif 12 < column <= 16:
        for name, size in (("avg_value_size_in_bytes", 12), ("max_value_size_in_bytes", 40)):
            members[name] = pa.repeat(pa.scalar(size, pa.int32()), len(numbers))
    return pa.StructArray.from_arrays(list(members.values()), names=list(members))


def _bounds(column: int, values: np.ndarray) -> pa.Array:
    if column <= 8:
        return pa.array(values)
    if column <= 12:
        return pa.array(values / 8)
    if column <= 16:
        return pa.array([f"key-{value:012d}" for value in values.tolist()])
    return pa.array(values).cast(pa.timestamp("us"))
