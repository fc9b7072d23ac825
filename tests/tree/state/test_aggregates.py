from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given, settings

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat, Status, VersionInfo
from rootline.tree.state.aggregates import LeafAggregates, aggregates_of
from tests.schemas.leaf_examples import LEAF_UUID
from tests.support.examples import examples
from tests.tree.tables import CARRIER, DEFINITION, DELAY, ID


def entry(number: int, stats: dict[int, FieldStatistics], status: Status = Status.EXISTING) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.DATA,
        location=f"data/{number}.parquet",
        file_format=FileFormat.PARQUET,
        version_info=VersionInfo(status, 1, number + 5, number + 5),
        partition_spec_id=0,
        record_count=number + 1,
        file_size_in_bytes=1,
        content_stats=stats,
    )


def aggregated(entries: Sequence[ContentEntry]) -> LeafAggregates:
    encoded = encode_leaf(entries, DEFINITION, leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    return aggregates_of(decode_leaf(encoded.body, location=encoded.location), (CARRIER,))


def of(*items: FieldStatistics | None, tracked_id: int = ID) -> FieldStatistics | None:
    entries = [entry(number, {} if item is None else {tracked_id: item}) for number, item in enumerate(items)]
    return aggregated(entries).content_stats.get(tracked_id)


def test_counts_are_sums_and_bounds_contain() -> None:
    assert of(FieldStatistics(1, 5, True, 10, 2), FieldStatistics(-3, 4, True, 7, 0)) == FieldStatistics(
        -3, 5, True, 17, 2
    )


def test_tight_bounds_is_the_and() -> None:
    tight = [of(FieldStatistics(1, 2, one), FieldStatistics(1, 2, other)) for one, other in
             ((True, True), (True, False), (True, None), (False, None))]  # fmt: skip
    assert [item.tight_bounds if item else "none" for item in tight] == [True, False, None, False]


def test_a_column_that_any_entry_lacks_has_no_aggregate() -> None:
    assert of(FieldStatistics(1, 5), None) is None


def test_an_entry_whose_bounds_are_unknown_makes_the_leafs_unknown() -> None:
    found = of(FieldStatistics(1, 5, True), FieldStatistics(None, 9, True))
    assert found is not None
    assert (found.lower_bound, found.upper_bound, found.tight_bounds) == (None, 9, False)


def test_an_entry_of_nulls_only_bounds_nothing() -> None:
    found = of(FieldStatistics(1, 5, True, 3, 0), FieldStatistics(None, None, True, 4, 4))
    assert found is not None
    assert (found.lower_bound, found.upper_bound, found.null_value_count) == (1, 5, 4)


def test_a_null_partition_value_bounds_nothing_and_an_upper_bound_reads_as_the_lower() -> None:
    found = of(FieldStatistics("UA"), FieldStatistics(None, None), FieldStatistics("AA", "AA"), tracked_id=CARRIER)
    assert found is not None
    assert (found.lower_bound, found.upper_bound) == ("AA", "UA")


def test_partition_values_that_are_all_null_stay_null() -> None:
    found = of(FieldStatistics(), FieldStatistics(), tracked_id=CARRIER)
    assert found is not None
    assert (found.lower_bound, found.upper_bound) == (None, None)


def test_zero_is_minus_zero_below_and_plus_zero_above() -> None:
    found = of(FieldStatistics(0.0, 0.0), FieldStatistics(-0.0, -0.0), tracked_id=DELAY)
    assert found is not None
    assert (str(found.lower_bound), str(found.upper_bound)) == ("-0.0", "0.0")


def test_deleted_entries_count_as_deleted_and_bound_nothing() -> None:
    entries = [entry(0, {ID: FieldStatistics(5, 6)}), entry(1, {ID: FieldStatistics(1, 9)}, Status.DELETED)]
    found = aggregated(entries)
    assert found.content_stats == {ID: FieldStatistics(5, 6)}
    stats = found.manifest_stats
    assert (stats.existing_files_count, stats.deleted_files_count) == (1, 1)
    assert (stats.existing_rows_count, stats.deleted_rows_count) == (1, 2)
    assert stats.min_sequence_number == 5


counts = st.one_of(st.none(), st.integers(0, 9))
items = st.one_of(
    st.none(),
    st.builds(
        FieldStatistics,
        st.one_of(st.none(), st.integers(-5, 0)),
        st.one_of(st.none(), st.integers(0, 5)),
        st.sampled_from([True, False, None]),
        counts,
        counts,
        max_value_size_in_bytes=counts,
    ),
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(items, min_size=1, max_size=6))
def test_aggregates_equal_a_walk_over_the_entries(chosen: list[FieldStatistics | None]) -> None:
    assert of(*chosen) == walked(chosen)


def walked(chosen: list[FieldStatistics | None]) -> FieldStatistics | None:
    """The rules of the format page, one after the other."""
    known = [item for item in chosen if item is not None]
    if len(known) < len(chosen):
        return None
    nulls_only = [
        item.lower_bound is None
        and item.upper_bound is None
        and item.value_count is not None
        and item.value_count == item.null_value_count
        for item in known
    ]
    bounding = [item for item, skipped in zip(known, nulls_only, strict=True) if not skipped]
    lowers = [item.lower_bound for item in bounding]
    uppers = [item.upper_bound for item in bounding]
    lower = None if None in lowers or not lowers else min(lowers)  # type: ignore[type-var]
    upper = None if None in uppers or not uppers else max(uppers)  # type: ignore[type-var]
    flags = [item.tight_bounds for item in known]
    tight = False if False in flags else None if None in flags else True
    if bounding and (lower is None or upper is None):
        tight = False

    def whole(name: str, fold: object) -> int | None:
        values = [getattr(item, name) for item in known]
        assert callable(fold)
        return None if None in values else fold(values)

    return FieldStatistics(
        lower,
        upper,
        tight,
        whole("value_count", sum),
        whole("null_value_count", sum),
        whole("nan_value_count", sum),
        None,
        whole("max_value_size_in_bytes", max),
    )


def test_entries_are_described_as_written_whatever_is_masked() -> None:
    one = entry(0, {ID: FieldStatistics(1, 1)})
    other = dataclasses.replace(entry(1, {ID: FieldStatistics(9, 9)}))
    assert aggregated([one, other]).content_stats == {ID: FieldStatistics(1, 9)}
