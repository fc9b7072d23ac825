"""The order in which an intent is checked: an intent with several faults is rejected for the first of them."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

from rootline.schemas.intent import Intent
from rootline.tree.commit import decide
from tests.tree.intents.test_rewrite import rewrite
from tests.tree.sweeps import SweptLake, swept_lake
from tests.tree.tables import append, codes, data_file, kinds

OLD_MS = 1
REFUSED = ("not-permitted", "this principal may not write here")


def answer(
    lake: SweptLake, item: Intent, *, oldest_ms: int | None = OLD_MS, refusal: tuple[str, str] | None = None
) -> str:
    """The verdict on one intent: its code, or its kind if it has none."""
    [record] = lake.records([item])
    verdicts = lake.put_records([replace(record, oldest_file_ms=oldest_ms, refusal=refusal)])
    return codes(verdicts)[0] or kinds(verdicts)[0]


def lake_with_a_past() -> SweptLake:
    """A table with a horizon, a live file `live`, a file `gone` that was rewritten, and a writer with a sequence."""
    lake = swept_lake(append("live"), append("gone"))
    first = append("first", writer_id="w", writer_sequence=1)
    merged = data_file("merged", rows=10)
    assert codes(lake.put(rewrite(lake, "r", "data/gone.parquet", adds=(merged,)), first)) == [None, None]
    assert codes(lake.put(lake.sweep("s", horizon_ms=lake.youngest_ms))) == [None]
    return lake


def test_the_header_lists_the_steps_in_the_order_in_which_they_run() -> None:
    listed = re.findall(r"^    (\w+) {2,}\S", decide.__doc__ or "", flags=re.MULTILINE)
    assert listed == [step.__name__ for step in decide.STEPS]


def test_an_intent_with_a_fault_for_every_step_is_rejected_for_the_first_that_is_left() -> None:
    lake = lake_with_a_past()
    gone, live, new = data_file("gone"), data_file("live"), data_file("new")
    writer = {"writer_id": "w", "writer_sequence": 1}
    later = {"writer_id": "w", "writer_sequence": 2}
    another = uuid.UUID(int=1)
    given = [
        answer(lake, append("0", gone, live, live, table_uuid=another, **writer), refusal=REFUSED),
        answer(lake, append("1", gone, live, live, **writer), refusal=REFUSED),
        answer(lake, append("2", gone, live, live, **later), refusal=REFUSED),
        answer(lake, append("3", gone, live, live, **later)),
        answer(lake, append("4", gone, live, **later)),
        answer(lake, append("5", gone, new, **later)),
        answer(lake, append("6", new, data_file("other"), **later)),
        answer(lake, append("7", new, data_file("other"), **later), oldest_ms=lake.now_ms),
    ]
    assert given == [
        "table-uuid-mismatch",
        "duplicate",
        "not-permitted",
        "file-named-twice",
        "file-already-live",
        "file-removed",
        "expired",
        "committed",
    ]


def test_a_row_of_the_fast_append_is_checked_like_any_other_change() -> None:
    lake = lake_with_a_past()
    assert answer(lake, append("1", data_file("gone"))) == "duplicate"
    assert answer(lake, append("2", data_file("new"))) == "expired"
    assert answer(lake, append("3", data_file("new")), oldest_ms=lake.now_ms) == "committed"


def test_only_a_publisher_with_permission_adds_to_the_ledger_of_this_table() -> None:
    lake = lake_with_a_past()
    another = append("other table", writer_id="new", writer_sequence=1, table_uuid=uuid.UUID(int=1))
    refused = append("refused", writer_id="new", writer_sequence=2)
    assert answer(lake, another) == "table-uuid-mismatch"
    assert answer(lake, refused, refusal=REFUSED) == "not-permitted"
    assert "new" not in lake.head.header.ledger.writers
    assert answer(lake, refused) == "expired"
    assert answer(lake, refused, oldest_ms=lake.now_ms) == "expired"  # the ledger has the rejection
