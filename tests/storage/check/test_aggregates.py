"""What a leaf's row says of its entries: `check` recomputes every member, for columns and expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.root.root_codec import Row, decode_root, encode_root, seal
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, ManifestStats
from rootline.schemas.object_keys import root_key
from tests.maintenance.table_builder import TableBuilder
from tests.storage.check.damaged_table import findings_of, memory_of

ID, REGION, AMOUNT, BUCKET = 1, 2, 3, 4
_OTHER: dict[str, Any] = {
    "tight_bounds": False,
    "value_count": 7,
    "null_value_count": 1,
    "nan_value_count": 2,
    "avg_value_size_in_bytes": 1,
    "max_value_size_in_bytes": 9,
}


async def two_leaves() -> TableBuilder:
    """A leaf of each spec, and few roots: all of them are checked for each change."""
    builder = TableBuilder(MemoryObjectStore())
    await builder.create()
    await builder.append(*range(10))
    await builder.append(*range(10, 14), spec_id=1)
    await builder.flush()
    return builder


def leaf_rows(builder: TableBuilder, spec_id: int) -> list[ContentEntry]:
    rows = [row.entry for row in builder.state.live.leaf_rows.values()]
    return [row for row in rows if row.content_type is ContentType.DATA_MANIFEST and row.partition_spec_id == spec_id]


def changed_statistics(row: ContentEntry) -> Iterator[tuple[int, str, ContentEntry]]:
    """The row with one member of one column's or expression's statistics changed or dropped, and one made up."""
    stats = {tracked_id: row.content_stats[tracked_id] for tracked_id in row.content_stats}
    for tracked_id, item in stats.items():
        without = {other: stats[other] for other in stats if other != tracked_id}
        yield tracked_id, "absent", replace(row, content_stats=without)
        for member in (field.name for field in fields(FieldStatistics)):
            value = getattr(item, member)
            other = None if value is not None else _OTHER.get(member)
            if other is not value:
                changed = replace(item, **{member: other})
                yield tracked_id, member, replace(row, content_stats={**stats, tracked_id: changed})
    made_up = next(tracked_id for tracked_id in (REGION, BUCKET) if tracked_id not in stats)
    invented = FieldStatistics(value_count=1)
    yield made_up, "made up", replace(row, content_stats={**stats, made_up: invented})


async def reasons(builder: TableBuilder, row: ContentEntry, changed: ContentEntry) -> list[str]:
    """What `check` says of the head when `changed` stands in the place of `row`, all digests being right."""
    key = root_key(builder.table, builder.state.header.version)
    store = memory_of(builder)
    stored = await store.get(key)
    assert stored is not None
    root = decode_root(stored.body, name=key)
    entries = [changed if item.entry.location == row.location else item.entry for item in root.rows]
    rows = [Row.of(entry, root.codec) for entry in entries if entry.content_type is not ContentType.MANIFEST_DV]
    masks = [item for item in root.rows if item.entry.content_type is ContentType.MANIFEST_DV]
    _, body = encode_root(root.header, [seal([*rows, *masks], root.codec, root.sync)], root.codec, root.sync)
    store.place(key, body)
    found = await findings_of(store, builder.table)
    store.place(key, stored.body)
    return [finding.reason for finding in found if finding.code == "aggregate-wrong"]


@pytest.mark.slow
@pytest.mark.parametrize(("spec_id", "tracked"), [(0, {ID, REGION, AMOUNT}), (1, {ID, AMOUNT, BUCKET})])
async def test_every_member_of_every_columns_and_expressions_aggregate_is_recomputed(
    spec_id: int, tracked: set[int]
) -> None:
    builder = await two_leaves()
    row = leaf_rows(builder, spec_id)[0]
    assert await reasons(builder, row, row) == []
    seen: set[int] = set()
    for tracked_id, member, changed in changed_statistics(row):
        found = await reasons(builder, row, changed)
        assert [f"for column {tracked_id}," in reason for reason in found] == [True], (tracked_id, member)
        seen.add(tracked_id)
    assert tracked <= seen


@pytest.mark.slow
async def test_every_count_of_a_leafs_row_is_recomputed() -> None:
    builder = await two_leaves()
    row = leaf_rows(builder, 0)[0]
    stats = row.manifest_stats
    assert stats is not None
    for name in (field.name for field in fields(ManifestStats)):
        changed = replace(stats, **{name: getattr(stats, name) + 1})
        found = await reasons(builder, row, replace(row, manifest_stats=changed))
        assert len(found) == 1, name
        assert f"{name}={getattr(changed, name)}" in found[0]
