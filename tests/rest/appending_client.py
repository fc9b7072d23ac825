"""`python -m tests.rest.appending_client URL TABLE FIRST COUNT`: append so many rows, one at a time, by PyIceberg.

It prints a line when it has loaded the table, and appends after it has read one.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from tests.catalog.pyiceberg_catalog import catalog_at


def main() -> None:
    url, name, first, count = sys.argv[1:]
    with catalog_at(url, "own") as catalog:
        table = catalog.load_table(name)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(first), int(first) + int(count)):
            table.append(pa.table({"id": pa.array([number], pa.int64())}))


if __name__ == "__main__":
    main()
