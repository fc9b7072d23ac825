"""`rootline.spark.batch_appender`: a stream's batches into a table, each as `append` writes it, exactly once.

Owns: the name of a batch. Does not own: the append.
Invariants: a batch has the same name as `writeStream.format("rootline")` gives it, so that a query may change from one
to the other and goes on with its checkpoint; a replayed batch lands once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rootline.client import checks
from rootline.client.producer import DEFAULT_TIMEOUT_S
from rootline.schemas.errors import Invalid
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX
from rootline.spark.file_sink import QUERY_ID_PROPERTY
from rootline.spark.parquet_sink.append import append

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch_appender(
    name: str,
    *,
    writer_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warehouse: str | None = None,
    log: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """What `writeStream.foreachBatch` calls to append each batch to a table, in one commit.

    The batch is known by the query's id and its number, so that one that Spark sends again lands once.

    Args:
        name: `namespace.table`.
        writer_id: instead of the query's id; needed where Spark does not tell it.
        timeout_s: how many seconds to wait for each verdict.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `setting-invalid`. The function that comes back raises as `append`, which ends the query: start it
            again, and it goes on where it was.

    """
    table = checks.text(name, "name")

    def append_batch(batch: DataFrame, number: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if writer_id is None and not query_id:
            raise Invalid(
                "setting-invalid", f"{table}: Spark did not name the query: give batch_appender a writer_id of its own"
            )
        writer = writer_id or f"{QUERY_WRITER_PREFIX}{query_id}"
        append(
            batch,
            table,
            writer_id=writer,
            writer_sequence=number,
            timeout_s=timeout_s,
            warehouse=warehouse,
            log=log,
        )

    return append_batch
