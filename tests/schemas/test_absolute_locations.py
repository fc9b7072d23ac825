"""Which locations are absolute."""

from __future__ import annotations

import pytest

from rootline.schemas.object_keys import is_absolute, scheme_of


@pytest.mark.parametrize(
    ("location", "scheme"),
    [
        ("s3://bucket/key", "s3"), ("S3A://bucket/key", "s3a"), ("file:/p", "file"), ("file:///p", "file"),
        ("/p", "file"), ("hdfs://host:9000/p", "hdfs"), ("abfss://a@b.example/p", "abfss"), ("x:", "x"),
    ],
)  # fmt: skip
def test_locations_with_a_scheme_or_a_leading_slash_are_absolute(location: str, scheme: str) -> None:
    assert is_absolute(location)
    assert scheme_of(location) == scheme


@pytest.mark.parametrize(
    "location", ["data/a.parquet", "data/at=10:30/a.parquet", "at=10:30", "10:30/a", "a b:c", "\u00e9:x", "", "."]
)
def test_other_locations_are_relative(location: str) -> None:
    assert not is_absolute(location)
    assert scheme_of(location) == ""
