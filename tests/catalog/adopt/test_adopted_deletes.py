"""Deletes of every format keep their meaning when a table is adopted, and live beside those that come later."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rootline
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Invalid
from tests.catalog.adopted_lake import NAME, findings
from tests.catalog.hand_written_table import HandWritten, into_folder, rows


def old(tmp_path: Path, version: Any) -> HandWritten:
    return HandWritten((tmp_path / "old").as_uri(), version, into_folder)


def version_2(tmp_path: Path) -> tuple[str, set[int]]:
    """Position deletes of a and b, equality deletes that reach a but not c, which came later."""
    table = old(tmp_path, 2)
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "UA"))], 1)
    deletes = [table.position_deletes("p", {"data/a.parquet": [1, 2], "data/b.parquet": [9]})]
    table.manifest("d1", deletes, 2)
    table.manifest("d2", [table.equality_deletes("e", rows(5, "UA", 2))], 3)
    table.manifest("m2", [table.data("c", rows(6, "UA", 1))], 4)
    gone = table.data("g", rows(90, "UA"), status=Status.DELETED, number=1)
    table.manifest("m3", [gone], 5)
    return table.finish(5), {0, 3, 4, 7, 8, 9, *range(10, 19), 6}


def version_3(tmp_path: Path) -> tuple[str, set[int]]:
    table = old(tmp_path, 3)
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "UA"))], 1)
    table.manifest("d1", [table.vector("v", "data/b.parquet", [0, 9])], 2)
    table.manifest("d2", [table.equality_deletes("e", rows(5, "UA", 1))], 3)
    return table.finish(3), {*range(5), *range(6, 10), *range(11, 19)}


def ids(table: TableHandle, **more: Any) -> set[int]:
    found = table.scan(**more).to_arrow().column("id").to_pylist()
    assert len(set(found)) == len(found)
    return set(found)


def more_rows(first: int) -> pa.Table:
    return pa.Table.from_pylist(rows(first, "AA", 5))


@pytest.mark.parametrize("made", [version_2, version_3])
def test_rows_follow_every_change_after_adoption(made: Any, lake: Lake, tmp_path: Path) -> None:
    location, model = made(tmp_path)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    assert ids(table) == model
    assert ids(table, where="carrier = 'UA' and id >= 4") <= {key for key in model if key >= 4}
    assert findings(lake) == []
    table.append(pa.table(more_rows(200)))
    model |= set(range(200, 205))
    assert ids(table) == model
    table.delete_where("id = 3 or id = 12 or id = 201")  # a vector of a file that position deletes reach, too
    model -= {3, 12, 201}
    assert ids(table) == model
    table.delete_where("id = 4 or id = 13")  # the vector that the first delete made is replaced
    model -= {4, 13}
    assert ids(table) == model
    table.overwrite(pa.table(more_rows(300)), where="carrier = 'AA'")
    model = {key for key in model if key < 200} | set(range(300, 305))
    assert ids(table) == model
    assert findings(lake) == []
    assert ids(table, version=0) >= {3, 4, 12, 13}
    table.restore(version=0)
    assert ids(table) == ids(table, version=0)
    assert findings(lake) == []


@pytest.mark.parametrize("made", [version_2, version_3])
def test_files_with_older_deletes_are_rewritten_into_what_is_left_of_them(
    made: Any, lake: Lake, tmp_path: Path
) -> None:
    location, model = made(tmp_path)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    table.rewrite()
    assert ids(table) == model
    assert findings(lake) == []


def test_a_dry_run_counts_deletes_by_their_kind(lake: Lake, tmp_path: Path) -> None:
    plan = lake.adopt(version_2(tmp_path)[0], NAME, dry_run=True).plan
    assert (plan.deletes.position_delete_files, plan.deletes.equality_delete_files, plan.deletes.vectors) == (1, 1, 0)
    assert (plan.totals.data_manifests, plan.totals.delete_manifests) == (2, 2)  # one lists nothing that is live
    assert (plan.totals.data_files, plan.totals.rows) == (3, 21)


def test_row_ids_of_version_3_stay_what_they_are(lake: Lake, tmp_path: Path) -> None:
    location, _ = version_3(tmp_path)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    found = {live.entry.location.rsplit("/", 1)[-1]: live.entry for live in table.tree().state.live.entries()}
    assert (found["a.parquet"].first_row_id, found["b.parquet"].first_row_id) == (0, 10)
    assert found["v.puffin"].version_info.sequence_number == 2
    table.append(pa.table(more_rows(200)))
    assert table.history()[0].row_ids.next == 25


def test_vectors_of_files_that_are_gone_are_passed_over(lake: Lake, tmp_path: Path) -> None:
    table = old(tmp_path, 3)
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1)
    table.manifest("d1", [table.vector("v", "data/gone.parquet", [0]), table.vector("w", "data/a.parquet", [3])], 2)
    location = table.finish(2)
    plan = lake.adopt(location, NAME).plan
    assert (plan.deletes.vectors, plan.deletes.orphan_vectors) == (1, 1)
    assert "1 deletion vectors belong to data files that were removed" in plan.warnings[0]
    adopted = lake.table(NAME)
    assert ids(adopted) == {0, 1, 2, *range(4, 10)}
    kinds = [row.entry.content_type for row in adopted.tree().state.root.rows]
    assert kinds.count(ContentType.MANIFEST_DV) == 1
    assert findings(lake) == []
    adopted.delete_where("id = 5")
    assert ids(adopted) == {0, 1, 2, 4, *range(6, 10)}
    assert findings(lake) == []


def test_counts_and_bounds_that_a_list_of_version_1_lacks_come_from_the_manifests(lake: Lake, tmp_path: Path) -> None:
    table = old(tmp_path, 1)
    nothing = dict.fromkeys(
        [f"{kind}_{what}_count" for kind in ("added", "existing", "deleted") for what in ("files", "rows")]
    )
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 0, **nothing)
    table.manifest("m2", [table.data("b", rows(10, "DL"))], 0, **nothing)
    lake.adopt(table.finish(), NAME)
    adopted = lake.table(NAME)
    assert ids(adopted) == set(range(20))
    plan = adopted.scan(where="carrier = 'DL'").plan()
    assert (len(plan), plan.leaves_pruned) == (1, 1)
    assert findings(lake) == []


def test_metadata_may_be_compressed(lake: Lake, tmp_path: Path) -> None:
    location, model = version_2(tmp_path)
    path = Path(location.removeprefix("file://"))
    zipped = path.with_name("1.gz.metadata.json")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    lake.adopt(str(zipped), NAME)
    assert ids(lake.table(NAME)) == model


def test_other_branches_and_tags_stay_behind_with_a_warning(lake: Lake, tmp_path: Path) -> None:
    table = old(tmp_path, 2)
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1)
    refs = {
        name: {"snapshot-id": 7, "type": kind} for name, kind in (("main", "branch"), ("dev", "branch"), ("v1", "tag"))
    }
    plan = lake.adopt(table.finish(1, refs=refs), NAME, dry_run=True).plan
    assert plan.warnings == (
        "branch 'dev' is omitted: only main is adopted",
        "tag 'v1' is omitted: only main is adopted",
    )


def _twice(table: HandWritten) -> None:
    entry = table.data("a", rows(0, "UA"))
    table.manifest("m1", [entry], 1)
    table.manifest("m2", [entry], 1)


def _two_vectors(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1)
    vectors = [table.vector(name, "data/a.parquet", [at]) for at, name in enumerate("vw")]
    table.manifest("d1", vectors, 1)


def _wrong_counts(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1, added_rows_count=11)


def _wrong_length(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1, manifest_length=11)


def _absent(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1, manifest_path=table.at("metadata/none.avro"))


def _later(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 9)


def _unknown_spec(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"))], 1, partition_spec_id=8)


def _encrypted(table: HandWritten) -> None:
    table.manifest("m1", [table.data("a", rows(0, "UA"), key_metadata=b"k")], 1)


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (_twice, "adoption-unsupported", "listed twice"),
        (_two_vectors, "adoption-unsupported", "2 deletion vectors"),
        (_wrong_counts, "adoption-unsupported", "m1.avro"),
        (_wrong_length, "leaf-corrupt", "its entry states 11"),
        (_absent, "object-missing", "none.avro"),
        (_later, "adoption-unsupported", "sequence number 9 is after the snapshot's, 5"),
        (_unknown_spec, "spec-unknown", "partition spec id 8"),
        (_encrypted, "adoption-unsupported", "encrypted"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_before_anything_is_written(
    make: Any, code: str, reason: str, lake: Lake, tmp_path: Path
) -> None:
    table = old(tmp_path, 3)
    make(table)
    location = table.finish(5)
    for dry_run in (True, False):
        with pytest.raises(rootline.RootlineError, match=reason) as caught:
            lake.adopt(location, NAME, dry_run=dry_run)
        assert caught.value.code == code
    assert lake.list_tables() == []
    assert not list((tmp_path / "lake").glob("new/**/*"))


def test_what_is_no_metadata_is_refused(lake: Lake, tmp_path: Path) -> None:
    for name, body in (("a.json", b"{"), ("b.json", b"[]"), ("c.json", b"{}"), ("d.gz", b"\x1f\x8bnothing")):
        (tmp_path / name).write_bytes(body)
        with pytest.raises(Invalid) as caught:
            lake.adopt(str(tmp_path / name), NAME)
        assert caught.value.code == "metadata-unreadable"
        assert name in caught.value.message
    with pytest.raises(Invalid, match="this object does not exist"):
        lake.adopt(str(tmp_path / "none.json"), NAME)
