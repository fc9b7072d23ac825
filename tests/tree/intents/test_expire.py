"""Expiry: older versions are given up, but for those that a page names."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from rootline.schemas.bytes.root.header_codec import PROFILE_KEY, encode_header
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, IntentKind, StoredPage, VersionReference
from rootline.schemas.parts.versions import Expiry
from rootline.schemas.root_header import Operation
from rootline.tree.check.invariants import violations
from rootline.tree.check.root_diff import diff
from rootline.tree.parts.versions import expiry_violations
from tests.tree.kept_pages import expire, kept, store_page
from tests.tree.tables import Lake, append, intent, new_lake


def lake_of(versions: int) -> Lake:
    """A table whose newest version is `versions`."""
    return new_lake(*(append(f"a{number}") for number in range(versions)))


def codes(lake: Lake, *intents: Intent) -> list[str | None]:
    return [verdict.code for verdict in lake.put(*intents)]


def tag(name: str, version: int | None, seen: int | None = None) -> Intent:
    return intent(
        IntentKind.TAG, f"tag-{name}-{version}", ref=VersionReference(version=version, tag=name, seen_version=seen)
    )


def restore(version: int) -> Intent:
    return intent(IntentKind.RESTORE, f"restore-{version}", ref=VersionReference(version=version))


def test_expiry_raises_the_oldest_version_and_changes_no_row() -> None:
    lake = lake_of(6)
    before = lake.live().keys()
    assert codes(lake, expire(lake, 4)) == [None]
    header = lake.head.header
    assert (header.versions.oldest, header.versions.expiry) == (4, Expiry(sum(map(len, lake.bodies[:4]))))
    assert header.kept_bytes == sum(map(len, lake.bodies[4:7]))
    assert header.snapshot.operation is Operation.REPLACE
    assert header.snapshot.summary["rootline.expired-below"] == "4"
    assert not diff(lake.head.root, {})
    assert lake.live().keys() == before


def test_what_the_page_names_is_kept_and_everything_else_below_is_not() -> None:
    lake = lake_of(6)
    assert codes(lake, expire(lake, 5, keep=(1, 3))) == [None]
    assert lake.head.header.versions.expiry is not None
    assert lake.head.header.versions.expiry.given_up_bytes == sum(len(lake.bodies[version]) for version in (0, 2, 4))
    assert codes(lake, tag("old", 3), tag("gone", 2), restore(1), restore(0)) == [
        None,
        "version-unknown",
        None,
        "version-unknown",
    ]


def test_every_later_root_carries_it_until_the_next_expiry() -> None:
    lake = lake_of(6)
    lake.put(expire(lake, 4, keep=(1, 3)))
    expiry = lake.head.header.versions.expiry
    lake.put(append("later"))
    assert (lake.head.header.versions.oldest, lake.head.header.versions.expiry) == (4, expiry)
    assert "rootline.expired-below" not in lake.head.header.snapshot.summary
    assert codes(lake, expire(lake, 6, keep=(3, 5))) == [None]
    assert codes(lake, tag("t", 1), tag("u", 3), tag("v", 4)) == ["version-unknown", None, "version-unknown"]


def test_the_same_expiry_again_is_done_already() -> None:
    lake = lake_of(5)
    lake.put(expire(lake, 3, keep=(1,)))
    header = lake.head.header
    assert codes(lake, expire(lake, 3, keep=(1,))) == [None]
    assert (lake.head.header.versions.oldest, lake.head.header.versions.expiry) == (
        header.versions.oldest,
        header.versions.expiry,
    )
    assert "rootline.expired-below" not in lake.head.header.snapshot.summary


def test_fewer_kept_versions_alone_are_an_expiry_too() -> None:
    lake = lake_of(5)
    lake.put(expire(lake, 4, keep=(1, 2)))
    assert codes(lake, expire(lake, 4, keep=(2,))) == [None]
    assert codes(lake, tag("t", 1), tag("u", 2)) == ["version-unknown", None]
    assert codes(lake, expire(lake, 4)) == ["version-tagged"]


def test_an_expiry_that_would_go_back_is_refused() -> None:
    lake = lake_of(5)
    lake.put(expire(lake, 4, keep=(2,)))
    assert codes(lake, expire(lake, 3, keep=(2,))) == ["expiry-stale"]


@pytest.mark.parametrize("oldest", [7, 2**62])
def test_a_version_that_is_not_there_yet_cannot_be_the_oldest(oldest: int) -> None:
    lake = lake_of(5)
    assert codes(lake, expire(lake, oldest)) == ["version-unknown"]
    assert lake.head.header.versions.oldest == 0


def test_the_head_is_never_given_up() -> None:
    lake = lake_of(3)
    assert codes(lake, expire(lake, 3)) == [None]
    assert lake.head.header.versions.oldest == 3
    assert codes(lake, restore(3)) == [None]


def test_a_tags_version_is_not_given_up() -> None:
    lake = lake_of(5)
    lake.put(tag("release", 2))
    assert codes(lake, expire(lake, 4)) == ["version-tagged"]
    assert codes(lake, expire(lake, 4, keep=(1,))) == ["version-tagged"]
    assert codes(lake, expire(lake, 4, keep=(2,))) == [None]


def test_a_tag_that_lands_in_the_same_batch_counts_whichever_comes_first() -> None:
    lake = lake_of(5)
    assert codes(lake, tag("release", 2), expire(lake, 4)) == [None, "version-tagged"]
    lake = lake_of(5)
    assert codes(lake, expire(lake, 4), tag("release", 2)) == [None, "version-unknown"]
    lake = lake_of(5)
    assert codes(lake, expire(lake, 4, keep=(2,)), tag("release", 2)) == [None, None]


def test_a_version_stays_kept_when_its_tag_is_deleted_until_the_next_expiry() -> None:
    lake = lake_of(5)
    lake.put(tag("release", 2))
    lake.put(expire(lake, 4, keep=(2,)))
    assert codes(lake, tag("release", None, seen=2), restore(2)) == [None, None]
    assert codes(lake, expire(lake, 5), restore(2)) == [None, "version-unknown"]


def test_a_page_cannot_bring_back_what_has_expired() -> None:
    lake = lake_of(6)
    lake.put(expire(lake, 4, keep=(1,)))
    assert codes(lake, expire(lake, 5, keep=(1, 2))) == ["version-unknown"]


def test_a_page_that_contradicts_the_table_is_refused() -> None:
    lake = lake_of(6)
    lake.put(expire(lake, 4, keep=(1,)))
    known = kept(lake, 1)
    for rows in (
        [known._replace(timestamp_ms=known.timestamp_ms + 1)],
        [known._replace(size_in_bytes=known.size_in_bytes + 1)],
        [known, kept(lake, 5)],
        [known, kept(lake, 4)._replace(timestamp_ms=2**50)],
        [known, kept(lake, 4)._replace(size_in_bytes=2**50)],
    ):
        assert codes(lake, expire(lake, 5, page=store_page(lake, rows))) == ["page-invalid"]
    assert codes(lake, expire(lake, 5, page=store_page(lake, [known, kept(lake, 4)]))) == [None]


def test_a_page_that_is_not_there_or_elsewhere_is_refused() -> None:
    lake = lake_of(6)
    page = store_page(lake, [kept(lake, 1)])
    absent = StoredPage(location=page.location, file_size_in_bytes=page.file_size_in_bytes + 1, digest=page.digest)
    elsewhere = StoredPage(location="data/a0.parquet", file_size_in_bytes=page.file_size_in_bytes, digest=page.digest)
    assert codes(lake, expire(lake, 5, page=absent), expire(lake, 4, page=elsewhere)) == ["page-invalid"] * 2
    assert lake.head.header.versions.expiry is None


def test_a_root_that_gave_versions_up_says_a_profile_that_older_software_refuses() -> None:
    lake = lake_of(3)
    assert encode_header(lake.head.header)[PROFILE_KEY] == b"single-file-commits/1"
    lake.put(expire(lake, 2))
    lake.put(append("later"))
    assert encode_header(lake.head.header)[PROFILE_KEY] == b"single-file-commits/2"
    root = decode_root(lake.bodies[-1], name="root")
    assert root.header == lake.head.header


def test_the_next_row_id_of_the_parent_needs_no_parent() -> None:
    lake = lake_of(3)
    headers = [state.header for state in lake.states]
    assert [header.row_ids.next_of_parent for header in headers[1:]] == [header.row_ids.next for header in headers[:-1]]


def test_no_root_gives_versions_up_in_silence() -> None:
    lake = lake_of(5)
    before = lake.head.header
    lake.put(expire(lake, 3))
    after = lake.head.header
    assert list(expiry_violations(before, after)) == []
    silent = dataclasses.replace(after, snapshot=dataclasses.replace(after.snapshot, summary={}))
    more = dataclasses.replace(after, versions=replace(after.versions, expiry=Expiry(after.earlier_bytes + 1)))
    other = dataclasses.replace(after, versions=replace(after.versions, oldest=Version(4)))
    for wrong in (silent, more, other, dataclasses.replace(after, versions=replace(after.versions, expiry=None))):
        assert list(expiry_violations(before, wrong))


def test_a_state_without_its_page_of_kept_versions_is_noticed() -> None:
    lake = lake_of(5)
    lake.put(expire(lake, 4, keep=(1,)))
    old = lake.head
    lake.put(append("later"))
    bare = dataclasses.replace(lake.head, pages=lake.head.pages.having(RETAINED_PAGES, ()))
    assert "the pages are not those that the header references" in violations(old, bare)
