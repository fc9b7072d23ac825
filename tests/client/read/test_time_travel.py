"""Which version is meant, and what it costs to find it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from typing import Any

import pytest

from rootline.client.time_travel import PointInTime, milliseconds, read_root_at
from rootline.schemas.bytes.root.root_codec import encode_root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version, snapshot_id_of
from rootline.schemas.parts.versions import ReadableVersions
from rootline.testing.object_stores import Operation
from tests.client.stored_lake import CountedStore
from tests.tree.tables import CODEC, TABLE, TABLE_UUID, Lake, append, new_lake


def lake_of(versions: int) -> Lake:
    return new_lake(*(append(f"i{number}") for number in range(1, versions)))


def with_header(lake: Lake, **changes: Any) -> Lake:
    """The same lake, its head's header changed."""
    header = dataclasses.replace(lake.head.header, **changes)
    _, body = encode_root(header, lake.head.root.blocks, CODEC, lake.head.root.sync)
    return dataclasses.replace(lake, bodies=[*lake.bodies[:-1], body])


def version_at(store: CountedStore, **point: Any) -> int:
    store.requests.clear()
    return asyncio.run(read_root_at(store, TABLE, PointInTime(**point))).header.version


def refusal(store: CountedStore, **point: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        version_at(store, **point)
    return caught.value


def test_a_moment_in_a_long_chain_is_found_with_few_requests() -> None:
    lake = lake_of(400)
    store = CountedStore(lake)
    times = [state.header.snapshot.timestamp_ms for state in lake.states]
    for wanted in (0, 1, 57, 200, 398, 399):
        for later_ms in (0, 9):  # versions are 10 ms apart
            assert version_at(store, timestamp=times[wanted] + later_ms) == wanted
            assert store.requests[Operation.GET] <= 12  # the head, the oldest, ten halvings
            assert store.requests[Operation.LIST] == 1


def test_a_version_a_snapshot_and_a_tag_take_one_request_beside_the_heads() -> None:
    store = CountedStore(with_header(lake_of(50), tags={"release": 7}))
    for point in ({"version": 7}, {"snapshot_id": snapshot_id_of(TABLE_UUID, 7)}, {"tag": "release"}):  # type: ignore[arg-type]
        assert version_at(store, **point) == 7
        assert store.requests == {Operation.LIST: 1, Operation.GET: 2}
    assert version_at(store) == 49
    assert version_at(store, version=49) == 49
    assert store.requests == {Operation.LIST: 1, Operation.GET: 1}


def test_a_version_ahead_of_the_head_is_refused_and_the_head_is_named() -> None:
    error = refusal(CountedStore(lake_of(3)), version=9)
    assert (error.code, error.message) == (
        "version-unknown",
        "demo.flights: version 9 is ahead of the head, which is version 2",
    )


def test_expired_versions_are_refused_and_the_oldest_is_named() -> None:
    lake = with_header(lake_of(9), versions=ReadableVersions(Version(4)))
    store = CountedStore(lake)
    assert version_at(store, version=4) == 4
    times = [state.header.snapshot.timestamp_ms for state in lake.states]
    for point in ({"version": 3}, {"version": -1}):
        assert refusal(store, **point).code == "version-unknown"
    assert refusal(store, version=3).message.endswith("version 3 has expired; the oldest addressable one is 4")
    assert refusal(store, snapshot_id=snapshot_id_of(TABLE_UUID, 3)).code == "version-unknown"  # type: ignore[arg-type]
    assert "oldest addressable version 4 is newer" in refusal(store, timestamp=times[3]).message
    assert version_at(store, timestamp=times[4]) == 4
    assert store.requests[Operation.GET] < 9


def test_a_tag_keeps_an_older_version_addressable() -> None:
    store = CountedStore(with_header(lake_of(9), versions=ReadableVersions(Version(4)), tags={"audit": 1}))
    assert version_at(store, tag="audit") == version_at(store, version=1) == 1
    assert version_at(store, snapshot_id=snapshot_id_of(TABLE_UUID, 1)) == 1  # type: ignore[arg-type]
    assert refusal(store, version=2).code == "version-unknown"


def test_an_unknown_tag_is_refused_and_the_known_ones_are_named() -> None:
    error = refusal(CountedStore(with_header(lake_of(2), tags={"audit": 1, "b": 1})), tag="release")
    assert (error.code, error.message) == ("tag-unknown", "demo.flights has no tag 'release'; its tags are: audit, b")


@pytest.mark.parametrize("point", [{"version": 1, "tag": "a"}, {"snapshot_id": 1, "timestamp": 2}])
def test_two_ways_to_name_a_version_exclude_each_other(point: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="exclude each other") as caught:
        PointInTime(**point)
    assert caught.value.code == "setting-invalid"


@pytest.mark.parametrize(
    "moment", [dt.datetime(2013, 1, 31, 12), "2013-01-31T12:00:00", "2013-01-31", "noon", "", "9" * 40]
)
def test_a_moment_without_its_offset_is_refused(moment: dt.datetime | str) -> None:
    with pytest.raises(Invalid, match="with its offset") as caught:
        milliseconds(moment)
    assert caught.value.code == "setting-invalid"


def test_moments_are_read_in_every_form_that_says_which_one_is_meant() -> None:
    east = dt.timezone(dt.timedelta(hours=2))
    moments = (
        "1970-01-01T00:00:01Z",
        "1970-01-01 02:00:01+02:00",
        "1000",
        1000,
        dt.datetime(1970, 1, 1, 2, 0, 1, 0, east),
    )
    assert {milliseconds(moment) for moment in moments} == {1000}
