"""Values made quickly are the values that their classes make."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    FileFormat,
    Status,
    VersionInfo,
    unchecked_entry,
    unchecked_version_info,
)
from tests.schemas.entry_values import example_entry


def test_they_are_of_the_class_and_equal_to_what_it_makes() -> None:
    known = VersionInfo(Status.ADDED, 1, 2, 3)
    made = unchecked_version_info(Status.ADDED, 1, 2, 3)
    assert type(made) is VersionInfo
    assert (made, hash(made), repr(made)) == (known, hash(known), repr(known))


def test_defaults_are_those_of_the_class_and_fresh_where_it_makes_them_fresh() -> None:
    arguments = (ContentType.DATA, "data/a", FileFormat.PARQUET, VersionInfo(Status.ADDED), 0, 1)
    one, other = unchecked_entry(*arguments), unchecked_entry(*arguments)
    assert one == ContentEntry(*arguments)
    assert one.content_stats is not other.content_stats


def test_they_are_as_frozen_as_any() -> None:
    made = unchecked_version_info(Status.ADDED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.status = Status.DELETED  # type: ignore[misc]


def test_they_copy_replace_and_pickle_as_any() -> None:
    known = example_entry()
    made = known.with_version_info(VersionInfo(Status.EXISTING, 1))
    assert made == dataclasses.replace(known, version_info=VersionInfo(Status.EXISTING, 1))
    assert dataclasses.replace(made, version_info=known.version_info) == known
    assert copy.copy(made) == made
    assert pickle.loads(pickle.dumps(unchecked_version_info(Status.ADDED, 5))) == VersionInfo(Status.ADDED, 5)


def test_a_missing_argument_is_refused() -> None:
    with pytest.raises(TypeError):
        unchecked_version_info()  # type: ignore[call-arg]
