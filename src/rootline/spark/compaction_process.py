"""`python -m rootline.spark.compaction_process MASTER TABLE`: the process that a worker starts to compact on a
cluster.

The lake is that of `ROOTLINE_WAREHOUSE` and `ROOTLINE_LOG`. The last line on stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import sys

from rootline.schemas.errors import RootlineError
from rootline.spark.compaction import compact


def main(master: str, table: str) -> int:
    """Compact `table`. Exit code 0: done. 1: refused, with the reason in the result. Any other: Spark failed."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(f"rootline compaction of {table}")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        done = compact(spark, table, only_due=True)
    except RootlineError as error:
        print(json.dumps({"code": error.code, "message": error.message, "kind": type(error).__name__}), flush=True)
        return 1
    finally:
        spark.stop()
    version = max((commit.version for commit in done.commits), default=None)
    print(json.dumps({"version": version, "files": done.files_before, "refused": done.refused}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
