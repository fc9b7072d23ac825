from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import check_location


@pytest.mark.parametrize(
    "location",
    [
        "data/part-0.parquet",
        "data/day=2024-01-01/part-0.parquet",
        "data/name=a%20b/time=10%3A00/part.parquet",
        "data/name=x%3F/a%2Fb%23/%C3%BC=100%25/part.parquet",
        "data/url=http%3A%2F%2Fhost%2Fa%3Fb%3D%253F/part.parquet",
        "data/asked=%EF%BC%9F/100%/part.parquet",
        "data/10:00/part.parquet",
        "data/größe/日本.parquet",
        "data/with space.parquet",
        "data/.hidden/..almost/...parquet",
        "data/_x/~y/a,b+c@d=e",
        "a",
        "a" * 1_024,
    ],
)
def test_a_plain_path_below_the_table_passes(location: str) -> None:
    check_location(location)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("", "empty"),
        ("a" * 1_025, "1025 characters, 1024 are allowed"),
        ("s3://bucket/data/a.parquet", "absolute"),
        ("S3A://bucket/a", "absolute"),
        ("file:///etc/passwd", "absolute"),
        ("file:/etc/passwd", "absolute"),
        ("http:evil", "absolute"),
        ("C:\\data", "absolute"),
        ("/etc/passwd", "absolute"),
        ("//host/a", "absolute"),
        ("..", "part that is"),
        ("../other/data/a", "part that is"),
        ("data/../../other/a", "part that is"),
        ("data/./a", "part that is"),
        ("data/..", "part that is"),
        ("data//a", "empty part"),
        ("data/", "empty part"),
        ("data\\a", "backslash"),
        ("data/%2e%2e/%2E%2e/other", "encoded form"),
        ("data/.%2e/a", "encoded form"),
        ("data%2f..%2fa", "encoded form"),
        ("%2Fetc/passwd", "encoded form"),
        ("data/%5c", "encoded form"),
        ("data/%00", "encoded form"),
        ("data/%0a", "encoded form"),
        ("s3%3A//bucket/a", "empty part"),
        ("file%3Aetc/passwd", "encoded form"),
        ("data/%252e%252e/a", "encoded form"),
        ("data/%25252525252e/a", "several times"),
        ("data/%c0%ae%c0%ae/a", "UTF-8"),
        ("data/\uff0e\uff0e/a", "encoded form"),
        ("data/\u2025/a", "encoded form"),
        ("data\uff0f\uff0e\uff0e\uff0fa", "encoded form"),
        ("data/a\x00", "control"),
        ("data/a\n", "control"),
        ("data/\x7f", "control"),
        ("data/\x85", "control"),
        ("data/\u202egnp", "control"),
        ("data/\u200b..", "control"),
        ("\ufeffdata/a", "control"),
        ("data/\u2028", "control"),
        ("data/a?versionId=1", "question mark"),
        ("data/a#b", "#"),
        ("data/\uff1f", "encoded form"),
        ("data/a=x%2F..%2F..%2F..%2Fother/c", "encoded form"),
        ("data/a=x%2F.%2Fy/c", "encoded form"),
        ("data/a%2F", "encoded form"),
    ],
)
def test_everything_else_is_refused_with_the_reason(location: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        check_location(location)
    assert caught.value.code == "location-invalid"
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1_000


def test_an_absolute_location_passes_only_as_a_live_entrys_own() -> None:
    live = {"s3://bucket/adopted/a b%2e.parquet", "/mnt/lake/a.parquet"}
    for location in live:
        check_location(location, is_live=live.__contains__)
    for location in ("s3://bucket/adopted/other", "s3://bucket/adopted/../adopted/a b%2e.parquet", "/mnt/lake"):
        with pytest.raises(Invalid, match="absolute"):
            check_location(location, is_live=live.__contains__)


def test_a_relative_location_is_never_excused_by_being_live() -> None:
    with pytest.raises(Invalid):
        check_location("../a", is_live=lambda location: True)


def test_the_longest_location_is_a_limit_of_the_caller() -> None:
    check_location("abcd", max_chars=4)
    with pytest.raises(Invalid, match="5 characters, 4 are allowed"):
        check_location("abcde", max_chars=4)


@given(st.text(alphabet="ab./%2eEfF5cC\\:\x00\u2025 ", max_size=30))
def test_what_passes_stays_below_the_table_however_often_it_is_decoded(location: str) -> None:
    from posixpath import normpath
    from re import sub
    from urllib.parse import unquote

    try:
        check_location(location)
    except Invalid:
        return
    for layer in range(12):
        path = location if layer == 0 else sub("/+", "/", location)
        assert normpath("root/" + path) == "root/" + path
        assert not location.startswith("/")
        assert "\\" not in location
        assert "\x00" not in location
        location = unquote(location)
