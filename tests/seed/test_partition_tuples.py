"""The worked example of "How do we match equality deletes to data files without partition tuples?"."""

from __future__ import annotations

from dataclasses import replace

from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.tree.scan.delete_index import may_apply, partition_tuple
from tests.seed.test_statistics import DAY, DEFINITION, file_of


def delete_of(event_type: str | None, day: int, number: int) -> ContentEntry:
    info = VersionInfo(Status.ADDED, 1, number, number)
    entry = file_of(event_type, day, "e")
    return replace(entry, content_type=ContentType.EQUALITY_DELETE, equality_ids=(2,), version_info=info)


def test_the_partition_tuple_is_rebuilt_from_the_spec_and_the_lower_bounds() -> None:
    assert partition_tuple(file_of("commit", DAY), DEFINITION) == ("commit", DAY)
    assert partition_tuple(delete_of("commit", DAY, 2), DEFINITION) == ("commit", DAY)
    assert partition_tuple(file_of(None, DAY), DEFINITION) == (None, DAY)


def test_an_equality_delete_applies_to_older_data_files_of_the_rebuilt_tuple_and_to_no_other() -> None:
    """The proposal asks for a sequence number "greater than a given data file": strictly greater."""
    data = file_of("commit", DAY)
    assert may_apply(delete_of("commit", DAY, 2), data, DEFINITION)
    assert not may_apply(delete_of("commit", DAY, 1), data, DEFINITION)
    assert not may_apply(delete_of("push", DAY, 2), data, DEFINITION)
    assert not may_apply(delete_of("commit", DAY + 1, 2), data, DEFINITION)
    assert not may_apply(delete_of(None, DAY, 2), data, DEFINITION)
