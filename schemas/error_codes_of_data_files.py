"""Error codes about the content of data files, and the way out that all codes about lost data files share."""

from __future__ import annotations

from typing import Final

from rootline.schemas.error_code import ErrorCode

WAY_OUT: Final = (
    "If no copy of a data file is left: `rootline check` prints an intent that takes it out of the table; publish that "
    "line with `rootline publish`."
)

CODES_OF_DATA_FILES: Final = (
    ErrorCode(
        "data-file-mismatch",
        "Invalid",
        "A data file's columns are not the table's: one has a type that the table's column cannot take in, or a field "
        "id that no schema of the table has, so that a column to come would read it.",
        f"Write the rows again, through Rootline or with the table's field ids. {WAY_OUT}",
    ),
    ErrorCode(
        "statistics-wrong",
        "Corrupt",
        "A data file has other counts of nulls than its entry says, or values outside its bounds: filters miss rows.",
        "Read the file's rows without a filter and write them again with `overwrite`.",
        "Do not trust scans with filters until then.",
    ),
)
