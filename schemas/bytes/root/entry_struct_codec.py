"""The structs and lists inside a content entry: version info, deletion vector, manifest statistics, lists of numbers.

Owns: encoding and decoding them. Does not own: the entry around them (`entry_codec`), their allowed values
(`entry_rules`).
Invariants: Reads raise `Unreadable`, writes `ValueError`. A list is never longer than its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rootline.schemas.bytes.avro_encoding import (
    NULL,
    PRESENT,
    Unreadable,
    encode_bytes,
    encode_int,
    encode_long,
    encode_optional_long,
    read_int,
    read_long,
    read_optional_bytes,
    read_optional_long,
    read_present,
)
from rootline.schemas.content_entry import DeletionVector, ManifestStats, Status, VersionInfo, unchecked_version_info

_STATUSES: Final = {int(status): status for status in Status}


def encode_version_info_struct(version_info: VersionInfo) -> bytes:
    """The bytes of Avro type `["null", version_info]`."""
    number, file_number = version_info.sequence_number, version_info.file_sequence_number
    encoded = encode_optional_long(number)
    file_encoded = encoded if file_number == number else encode_optional_long(file_number)
    return _status_and_snapshot(version_info.status, version_info.snapshot_id) + encoded + file_encoded


@lru_cache(maxsize=4096)
def _status_and_snapshot(status: Status, snapshot_id: int | None) -> bytes:
    """The bytes of status and snapshot id. Cached, because all rows of a commit have the same."""
    return PRESENT + encode_long(status) + encode_optional_long(snapshot_id)


def read_version_info(data: bytes, position: int) -> tuple[VersionInfo, int]:
    """(version info, position after it). The schema allows null, but entries of this format never use it."""
    if not read_present(data, position):
        raise Unreadable("version_info is null")
    number, position = read_long(data, position + 1)
    status = _STATUSES.get(number)
    if status is None:
        raise Unreadable(f"status {number} does not exist")
    snapshot_id, position = read_optional_long(data, position)
    sequence_number, position = read_optional_long(data, position)
    file_sequence_number, position = read_optional_long(data, position)
    return unchecked_version_info(status, snapshot_id, sequence_number, file_sequence_number), position


def encode_optional_vector(vector: DeletionVector | None) -> bytes:
    """The bytes of Avro type `["null", deletion_vector]`."""
    if vector is None:
        return NULL
    inline = vector.inline_content
    return b"".join(
        (
            PRESENT,
            encode_optional_long(vector.offset),
            encode_optional_long(vector.size_in_bytes),
            NULL if inline is None else PRESENT + encode_bytes(inline),
        )
    )


def read_optional_vector(data: bytes, position: int) -> tuple[DeletionVector | None, int]:
    """(deletion vector or `None`, position after it)."""
    if not read_present(data, position):
        return None, position + 1
    offset, position = read_optional_long(data, position + 1)
    size_in_bytes, position = read_optional_long(data, position)
    inline, position = read_optional_bytes(data, position)
    return DeletionVector(offset, size_in_bytes, inline), position


def encode_optional_manifest_stats(stats: ManifestStats | None) -> bytes:
    """The bytes of Avro type `["null", manifest_stats]`."""
    if stats is None:
        return NULL
    return b"".join(
        (
            PRESENT,
            encode_int(stats.added_files_count),
            encode_int(stats.existing_files_count),
            encode_int(stats.deleted_files_count),
            encode_long(stats.added_rows_count),
            encode_long(stats.existing_rows_count),
            encode_long(stats.deleted_rows_count),
            encode_long(stats.min_sequence_number),
        )
    )


def read_optional_manifest_stats(data: bytes, position: int) -> tuple[ManifestStats | None, int]:
    """(manifest statistics or `None`, position after them)."""
    if not read_present(data, position):
        return None, position + 1
    position += 1
    numbers: list[int] = []
    for read in (read_int, read_int, read_int, read_long, read_long, read_long, read_long):
        number, position = read(data, position)
        numbers.append(number)
    return ManifestStats(*numbers), position
