"""Whether a table has its new data files looked at: `rootline.verify.files`.

`none`: what an intent says of its files is taken, within the bounds of `row_limits`. `footer`: their lengths, and of
Parquet the rows that their footers count, are compared with what it says before the intent is accepted.

Source: decision 0010.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rootline.schemas.content_entry import FileFormat
from rootline.schemas.table_definition import TableDefinition

PROPERTY: Final = "rootline.verify.files"
FOOTER: Final = "footer"


class StatedFile(NamedTuple):
    """A data file as an intent, or a leaf of one, states it; of an encrypted one the length alone can be looked at."""

    location: str
    file_format: FileFormat
    record_count: int
    size_in_bytes: int
    is_encrypted: bool


def verifies_files(definition: TableDefinition) -> bool:
    """Whether new data files are looked at before they are accepted."""
    return definition.properties.get(PROPERTY) == FOOTER
