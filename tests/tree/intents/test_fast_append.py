"""A plain append at a glance and in the general way: the same verdicts and the same root, byte for byte."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import FieldStatistics, FileFormat
from rootline.schemas.intent import DataFile, Intent, IntentKind, Isolation
from rootline.schemas.table_definition import SortField
from rootline.tree.draft import draft as drafts
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Add, Change
from rootline.tree.draft.draft import Draft
from rootline.tree.evolution.changes import DefinitionChanges, order_changes
from rootline.tree.intents.append import append as general_append
from rootline.tree.intents.append import fast_append_row
from tests.tree.tables import (
    BY_BUCKET,
    CARRIER,
    CODEC,
    DEFINITION,
    ID,
    TABLE_UUID,
    UNPARTITIONED,
    Lake,
    append,
    codes,
    data_file,
    intent,
    new_lake,
    stats,
)


def with_codec(lake: Lake, *, at_a_glance: bool) -> Lake:
    """The lake with a codec of its own, which can prove statistics or cannot."""
    codec = EntryCodec(DEFINITION.tracked_fields)
    if at_a_glance:
        codec.statistics.proof.prepare()
    root = dataclasses.replace(lake.head.root, codec=codec)
    return dataclasses.replace(lake, state=dataclasses.replace(lake.head, root=root))


def encoded(items: dict[int, FieldStatistics]) -> bytes:
    return CODEC.statistics.encode(items)


BASE = new_lake(append("before"), append("before2", data_file("taken")))
BASE.put(
    intent(
        IntentKind.ALTER,
        "order",
        definition=DefinitionChanges(
            BASE.head.header.definition.digest, tuple(order_changes([SortField(ID)]))
        ).to_json(),
    )
)
LOCATIONS = ("data/a.parquet", "data/b.parquet", "data/taken.parquet", "metadata/a", "../a", "data/ä", "data/%2e", "/a")
STATISTICS = (
    encoded(stats(range(10), "UA")),
    encoded(stats(range(10), None)),
    encoded(stats(range(10), "UA") | {ID: FieldStatistics(9, 0)}),
    encoded(stats(range(10), "UA") | {ID: FieldStatistics(0, 9, True, 11, 0)}),
    encoded(stats(range(10), "UA") | {CARRIER: FieldStatistics("UA", "UB")}),
    encoded(stats(range(10), "UA", spec=UNPARTITIONED)),
    encoded(stats(range(10), "UA"))[:-1],
    encoded(stats(range(10), "UA")) + b"\x00",
    b"\xff" * 20,
    b"",
    None,
)
FILES = st.builds(
    lambda content, fingerprint, **fields: DataFile(
        content_stats=content, stats_schema=None if content is None else fingerprint, **fields
    ),
    st.sampled_from(STATISTICS[:1] * 6 + STATISTICS),
    st.sampled_from((CODEC.statistics.fingerprint,) * 4 + (b"12345678",)),
    location=st.sampled_from(LOCATIONS[:2] * 4 + LOCATIONS),
    file_format=st.sampled_from((FileFormat.PARQUET,) * 4 + tuple(FileFormat)),
    partition_spec_id=st.sampled_from((0, 0, 0, UNPARTITIONED, BY_BUCKET, 9)),
    record_count=st.sampled_from((10, 10, 10, 9, 2**63 - 1)),
    file_size_in_bytes=st.sampled_from((1_000, 1_000, 1_000, 2**63 - 1)),
    sort_order_id=st.sampled_from((None, None, 0, 1, 7)),
    split_offsets=st.sampled_from((None, (4,))),
    key_metadata=st.sampled_from((None, b"\x00")),
)
INTENTS = st.builds(
    lambda number, files, more: append(f"i{number}", *files, **more),
    st.integers(0, 10**6),
    st.lists(FILES, min_size=1, max_size=1) | st.lists(FILES, min_size=2, max_size=2),
    st.sampled_from(
        (
            {},
            {},
            {},
            {"table_uuid": TABLE_UUID},
            {"table_uuid": uuid.UUID(int=1)},
            {"schema_id": 0},
            {"schema_id": 4},
            {"summary": {"a": "b"}},
            {"summary": {"added-x": "b"}},
            {"writer_id": "w", "writer_sequence": 0},
            {"isolation": Isolation.SERIALIZABLE, "read_sequence_number": 0, "filter": "id > 100"},
        )
    ),
)


@settings(deadline=None)
@given(st.lists(INTENTS, min_size=1, max_size=6))
def test_both_ways_give_the_same_verdicts_and_the_same_bytes(intents: list[Intent]) -> None:
    glance, general = with_codec(BASE, at_a_glance=True), with_codec(BASE, at_a_glance=False)
    records = BASE.records(intents)
    one, other = glance.try_records(records), general.try_records(records)
    assert one == dataclasses.replace(other, state=one.state)  # type: ignore[arg-type, union-attr]


@settings(deadline=None)
@given(INTENTS)
def test_a_row_that_there_is_is_the_one_of_the_general_way(intent: Intent) -> None:
    draft = Draft.on(with_codec(BASE, at_a_glance=True).head)
    try:
        row = fast_append_row(draft, intent)
    except Exception as error:
        with pytest.raises(type(error)):
            general_append(draft, intent, FetchedObjects())
        return
    if row is not None:
        change = general_append(draft, intent, FetchedObjects())
        draft.check_room(change)
        assert change == Change(change.effect, (Add((row,)),))


@pytest.mark.parametrize(
    "changes", [{}, {"split_offsets": (4,)}, {"sort_order_id": 0}, {"sort_order_id": 1}, {"key_metadata": b"k"}]
)
def test_what_writers_send_has_its_row_at_a_glance(changes: dict[str, Any]) -> None:
    draft = Draft.on(with_codec(BASE, at_a_glance=True).head)
    assert (
        fast_append_row(draft, append("new", data_file("new", **changes), table_uuid=TABLE_UUID, schema_id=0))
        is not None
    )


def test_a_malformed_neighbour_costs_nobody_but_itself() -> None:
    lake = with_codec(BASE, at_a_glance=True)
    intents = [append(f"i{number}", data_file(f"f{number}")) for number in range(6)]
    for at, violations in ((1, STATISTICS[2]), (3, STATISTICS[6]), (4, STATISTICS[8])):
        intents[at] = append(f"i{at}", data_file(f"f{at}", content_stats=violations))
    assert codes(lake.put(*intents)) == [
        None,
        "statistics-invalid",
        None,
        "statistics-invalid",
        "statistics-invalid",
        None,
    ]
    added = [entry.location for entry in lake.root_entries()]
    assert [name for name in added if name.startswith("data/f")] == [f"data/f{number}.parquet" for number in (0, 2, 5)]


def test_a_file_that_an_earlier_intent_of_the_batch_added_is_refused() -> None:
    lake = with_codec(BASE, at_a_glance=True)
    assert codes(lake.put(append("one", data_file("new")), append("two", data_file("new")))) == [
        None,
        "file-already-live",
    ]


def test_a_root_without_room_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft.on(with_codec(BASE, at_a_glance=True).head)
    assert fast_append_row(draft, append("new", data_file("new"))) is not None
    monkeypatch.setattr(drafts, "ROWS_MAX", 2)
    assert fast_append_row(draft, append("new", data_file("new"))) is None
