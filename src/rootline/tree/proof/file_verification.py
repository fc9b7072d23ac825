"""The property `rootline.verify.files`: verification of new data files before an intent is accepted.

`none` accepts the lengths and row counts that an intent states, within the limits of `row_limits`. `footer` compares
them with the stored files: the length of each file, and the row count in the footer of each Parquet file.

Source: decision 0010.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rootline.schemas.content_entry import FileFormat
from rootline.schemas.table_definition import TableDefinition

PROPERTY: Final = "rootline.verify.files"
FOOTER: Final = "footer"


class StatedFile(NamedTuple):
    """A data file as stated by an intent or a leaf. Only the length of an encrypted file can be verified."""

    location: str
    file_format: FileFormat
    record_count: int
    size_in_bytes: int
    is_encrypted: bool


def verifies_files(definition: TableDefinition) -> bool:
    """Whether the table verifies new data files before it accepts them."""
    return definition.properties.get(PROPERTY) == FOOTER
