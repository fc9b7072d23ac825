"""`python -m tests.engines.sql_demo`: the demo of `examples.spark_demo`, with an INSERT by Spark SQL at its end.

Iceberg publishes its runtime for Spark up to 4.1. The demo's own Spark is newer, so the statement runs in the Spark 4.1
that the tests of engines use, which is installed once.

Owns: the choice of that Spark. Does not own: installing it (`iceberg_software`), the demo.
Invariants: a demo whose Spark 4.1 cannot be installed runs all the same, and says so at its beginning and its end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import pytest

from examples.spark_demo.__main__ import main as spark_demo
from examples.spark_demo.sql_insert import OpenSql, SqlUnavailable
from tests.engines.iceberg_software import iceberg_software
from tests.engines.iceberg_spark import started_iceberg_spark


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code."""
    return spark_demo(arguments, install_sql)


def install_sql() -> OpenSql:
    """Spark 4.1 with Iceberg's runtime, from the cache or fetched into it.

    Raises:
        SqlUnavailable: it cannot be installed, most often because there is no network.

    """
    try:
        return partial(started_iceberg_spark, iceberg_software())
    except (pytest.fail.Exception, TimeoutError) as error:
        raise SqlUnavailable(f"{error}. With a network, the next run tries again") from error


if __name__ == "__main__":
    sys.exit(main())
