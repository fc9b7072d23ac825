"""Every field id of the format, in one place.

Owns: the ids of the content entry and of the statistics structs (profile `single-file-commits/1`). Does not own: names
and types of the fields in Avro or Parquet (`entry_schema`).
Invariants: an id is never reused inside the profile. Later public drafts of the V4 format give 5, 146-149 and 521 other
meanings, so a second profile is a second module, never an edit of this one.

Source: the Single File Commits proposal, "V4 content entry structure" (first table), and the column statistics
proposal for the ids from 10,000 upwards.
"""

from __future__ import annotations

from typing import Final

PROFILE: Final = "single-file-commits/1"
PROFILE_OF_EXPIRY: Final = "single-file-commits/2"
"""The profile of roots of tables with expired versions, condemned files or drops: the same entries, and header keys
that software must know.
"""

# content entry
CONTENT_TYPE: Final = 134
LOCATION: Final = 100
FILE_FORMAT: Final = 101
VERSION_INFO: Final = 5
DELETION_VECTOR: Final = 147
PARTITION_SPEC_ID: Final = 148
SORT_ORDER_ID: Final = 140
RECORD_COUNT: Final = 103
FILE_SIZE_IN_BYTES: Final = 104
CONTENT_STATS: Final = 149
MANIFEST_STATS: Final = 521
REFERENCED_FILE: Final = 143
KEY_METADATA: Final = 131
SPLIT_OFFSETS: Final = 132
SPLIT_OFFSETS_ELEMENT: Final = 133
EQUALITY_IDS: Final = 135
EQUALITY_IDS_ELEMENT: Final = 136
FIRST_ROW_ID: Final = 142

# version_info
STATUS: Final = 0
SNAPSHOT_ID: Final = 1
SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4

# deletion_vector
VECTOR_OFFSET: Final = 144
VECTOR_SIZE_IN_BYTES: Final = 145
VECTOR_INLINE_CONTENT: Final = 146

# manifest_stats
ADDED_FILES_COUNT: Final = 504
EXISTING_FILES_COUNT: Final = 505
DELETED_FILES_COUNT: Final = 506
ADDED_ROWS_COUNT: Final = 512
EXISTING_ROWS_COUNT: Final = 513
DELETED_ROWS_COUNT: Final = 514
MIN_SEQUENCE_NUMBER: Final = 516

# content_stats: one struct per column or expression, see `statistics_field_id`
STATISTICS_BASE: Final = 10_000
STATISTICS_STRIDE: Final = 200
MAX_TRACKED_ID: Final = 10_000_000
"""The greatest id of a column or expression with statistics. Beyond it, the ids of statistics would be too large."""
MAX_COLUMN_ID: Final = 2_147_483_447
"""The greatest id of a column. The table specification reserves higher ids."""

LOWER_BOUND_OFFSET: Final = 1
UPPER_BOUND_OFFSET: Final = 2
TIGHT_BOUNDS_OFFSET: Final = 3
VALUE_COUNT_OFFSET: Final = 4
NULL_VALUE_COUNT_OFFSET: Final = 5
NAN_VALUE_COUNT_OFFSET: Final = 6
AVG_VALUE_SIZE_OFFSET: Final = 7
MAX_VALUE_SIZE_OFFSET: Final = 8


def statistics_field_id(tracked_id: int, offset: int = 0) -> int:
    """The field id of the statistics struct of column or expression `tracked_id`, or of its member at `offset` (1-8).

    Raises:
        ValueError: `tracked_id` is outside 1..10,000,000.

    """
    if not 0 < tracked_id <= MAX_TRACKED_ID:
        raise ValueError(f"column or expression id {tracked_id} is outside 1..{MAX_TRACKED_ID}")
    return STATISTICS_BASE + STATISTICS_STRIDE * tracked_id + offset


# metadata columns, which every table has, and the columns of position delete files (the Iceberg specification,
# "Reserved Field IDs" and "Position Delete Files")
FILE_COLUMN: Final = 2_147_483_646
POS_COLUMN: Final = 2_147_483_645
DELETED_COLUMN: Final = 2_147_483_644
SPEC_ID_COLUMN: Final = 2_147_483_643
PARTITION_COLUMN: Final = 2_147_483_642
ROW_ID_COLUMN: Final = 2_147_483_540
LAST_UPDATED_COLUMN: Final = 2_147_483_539
DELETE_FILE_PATH: Final = 2_147_483_546
DELETE_FILE_POS: Final = 2_147_483_545
