"""The kind `sweep`: horizons and condemned locations, and what they mean for every intent that follows."""

from __future__ import annotations

import pytest

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.field_ids import PROFILE_OF_EXPIRY
from rootline.schemas.intent import IntentKind, VectorReference
from rootline.schemas.verdict import VerdictKind
from rootline.tree.commit.arrival_rules import DateNeed
from rootline.tree.draft.draft import Draft
from rootline.tree.parts.locations import Closure
from tests.tree.intents.test_compact_vectors import PUFFIN, moving
from tests.tree.sweeps import DAY_MS, SweptLake, swept_lake
from tests.tree.tables import append, codes, data_file, equality_delete, intent, kinds, new_entry, remove, removed


def lake_with_horizon() -> tuple[SweptLake, int]:
    lake = swept_lake(append("a"))
    horizon_ms = lake.youngest_ms
    assert codes(lake.put(lake.sweep("s", horizon_ms=horizon_ms))) == [None]
    return lake, horizon_ms


def test_a_sweep_raises_the_horizon_and_condemns_and_the_root_reads_back_equal() -> None:
    lake = swept_lake(append("a"))
    before = lake.live().keys()
    horizon_ms = lake.youngest_ms
    assert kinds(lake.put(lake.sweep("s", ["data/x.parquet"], horizon_ms=horizon_ms))) == [VerdictKind.COMMITTED]
    header = lake.head.header
    assert (header.locations.horizon_ms, len(header.locations.condemned)) == (horizon_ms, 1)
    assert header.locations.condemned[0].since_version == header.version
    assert header.locations.condemned[0].since_ms >= header.snapshot.timestamp_ms
    assert lake.is_condemned("data/x.parquet")
    assert lake.live().keys() == before
    assert header.snapshot.summary["rootline.condemned-locations"] == "1"
    read = lake.reloaded()
    assert read.header == header
    assert read.known_pages == lake.head.pages
    assert PROFILE_OF_EXPIRY.encode() in lake.bodies[-1]


def test_a_table_that_was_never_swept_keeps_its_profile() -> None:
    lake = swept_lake(append("a"))
    assert PROFILE_OF_EXPIRY.encode() not in lake.bodies[-1]
    assert decode_root(lake.bodies[-1], name="head").header.locations.horizon_ms == 0


@pytest.mark.parametrize("kept_s", ["864000", "x", ""])
def test_nobody_can_expire_the_future(kept_s: str) -> None:
    lake = swept_lake()
    youngest_ms = lake.youngest_ms
    assert codes(lake.put(lake.sweep("s", horizon_ms=youngest_ms + 1_000))) == ["horizon-wrong"]
    assert codes(lake.put(lake.sweep("t", horizon_ms=youngest_ms))) == [None]


def test_a_clock_that_jumps_ahead_takes_no_horizon_along() -> None:
    lake = swept_lake(append("a"))
    before_ms = lake.youngest_ms
    lake.now_ms += 60 * DAY_MS
    assert codes(lake.put(lake.sweep("s", horizon_ms=before_ms + 10))) == ["horizon-wrong"]
    lake.put(append("b"))
    assert codes(lake.put(lake.sweep("t", horizon_ms=before_ms + 2 * DAY_MS))) == ["horizon-wrong"]
    lake.now_ms -= 60 * DAY_MS
    assert codes(lake.put(lake.sweep("u", horizon_ms=before_ms))) == [None]
    lake.dates["data/c.parquet"] = lake.now_ms
    assert codes(lake.put(append("c"))) == [None]


def test_the_horizon_only_rises() -> None:
    lake, horizon_ms = lake_with_horizon()
    assert codes(lake.put(lake.sweep("t", ["data/x.parquet"], horizon_ms=horizon_ms - DAY_MS))) == [None]
    assert lake.head.header.locations.horizon_ms == horizon_ms
    assert codes(lake.put(lake.sweep("u", horizon_ms=horizon_ms - DAY_MS))) == ["sweep-stale"]


def test_adding_what_is_condemned_is_refused_for_every_way_to_add_it() -> None:
    lake = swept_lake(append("a"))
    leaf = lake.written_leaf(new_entry(data_file("in-leaf")))
    other = lake.written_leaf(new_entry(data_file("fresh")))
    vector = lake.vector("v", "data/a.parquet", [1])
    taken_over = lake.leaf(lake.root_entries())
    names = ["data/x.parquet", "data/in-leaf.parquet", other.location, vector.location, "data/e.parquet"]
    lake.put(lake.sweep("s", [*names, taken_over.location]))
    tried = [
        append("1", data_file("x")),
        append("2", data_file("x"), data_file("y")),
        append("3", data_file("x", sort_order_id=0)),
        intent(IntentKind.APPEND, "4", add_manifests=[leaf]),
        intent(IntentKind.APPEND, "5", add_manifests=[other]),
        intent(IntentKind.ROW_DELTA, "6", add_vectors=[vector]),
        intent(IntentKind.ROW_DELTA, "7", add_equality_deletes=[equality_delete("e", 1, "UA")]),
        intent(
            IntentKind.REWRITE,
            "8",
            add_data_files=[data_file("x")],
            remove_files=[removed("data/a.parquet")],
            read_sequence_number=lake.head.header.snapshot.sequence_number,
        ),
        lake.flush("9", taken_over),
        intent(IntentKind.OVERWRITE, "10", add_data_files=[data_file("x")], remove_files=[removed("data/a.parquet")]),
    ]
    assert codes(lake.put(*tried)) == ["file-removed"] * len(tried)
    assert codes(lake.put(append("11", data_file("y")))) == [None]


def test_a_manifest_vector_does_not_move_to_a_condemned_object() -> None:
    lake = swept_lake(*(append(name) for name in "abcd"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed("data/a.parquet")))
    lake.put(lake.sweep("s", [PUFFIN]))
    assert lake.is_condemned(PUFFIN)
    assert codes(lake.put(moving(lake, [0]))) == ["file-removed"], "the object is about to be deleted"
    assert codes(lake.put(moving(lake, [0], "metadata/vectors/other.puffin"))) == [None]


def test_an_absolute_name_of_a_condemned_object_is_refused_too() -> None:
    lake = swept_lake(append("a"))
    lake.put(lake.sweep("s", ["data/x.parquet"]))
    for scheme in ("s3", "s3a", "s3n"):
        location = f"{scheme}://bucket/lake/demo/flights/data/x.parquet"
        assert lake.head.header.table == "demo.flights"
        assert Draft.on(lake.head).swept_locations.why_closed(location) is Closure.CONDEMNED
    assert not Draft.on(lake.head).swept_locations.why_closed("s3://bucket/lake/demo/other/data/x.parquet")


def test_what_is_live_when_a_sweep_is_applied_is_not_condemned() -> None:
    lake = swept_lake(append("a"))
    late = lake.sweep("s", ["data/b.parquet", "data/c.parquet", "data/in-leaf.parquet", "data/x.parquet"])
    lake.put(append("b"))
    leaf = lake.written_leaf(new_entry(data_file("in-leaf")))
    lake.put(intent(IntentKind.APPEND, "leaf", add_manifests=[leaf]))
    assert codes(lake.put(append("c"), late)) == [None, None]
    assert [lake.is_condemned(f"data/{name}.parquet") for name in ("b", "c", "in-leaf", "x")] == [False] * 3 + [True]
    assert lake.reloaded().pages == lake.head.pages


def test_what_the_batch_of_a_sweep_brought_before_it_is_not_condemned() -> None:
    lake = swept_lake(*(append(name) for name in "abcd"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed("data/a.parquet")))
    leaf, moved = lake.written_leaf(new_entry(data_file("in-leaf"))), moving(lake, [0])
    names = [leaf.location, "data/in-leaf.parquet", PUFFIN]
    added = intent(IntentKind.APPEND, "leaf", add_manifests=[leaf])
    assert codes(lake.put(added, moved, lake.sweep("s", [*names, "data/x.parquet"]))) == [None] * 3
    assert [lake.is_condemned(name) for name in (*names, "data/x.parquet")] == [False] * 3 + [True]
    lake.put(append("e"))
    lake.put(lake.sweep("t", [PUFFIN, "data/y.parquet"]))
    assert [lake.is_condemned(name) for name in (PUFFIN, "data/y.parquet")] == [False, True]


def test_what_a_sweep_condemns_in_a_batch_is_refused_later_in_the_same_batch() -> None:
    lake = swept_lake()
    assert codes(lake.put(lake.sweep("s", ["data/x.parquet"]), append("1", data_file("x")))) == [None, "file-removed"]


def test_leaves_vectors_and_pages_of_the_root_itself_are_never_condemned() -> None:
    lake = swept_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "v", add_vectors=[lake.vector("v", "data/a.parquet", [1])]))
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    definition = lake.head.header.definition.location
    lake.put(lake.sweep("s", [leaf.location, "data/v.puffin", definition, "data/x.parquet"], read_sequence_number=0))
    assert [lake.is_condemned(name) for name in (leaf.location, "data/v.puffin", definition)] == [False] * 3
    assert lake.is_condemned("data/x.parquet")


def test_a_page_is_needed_as_its_intent_names_it() -> None:
    lake = swept_lake()
    absent = lake.sweep("s", ["data/x.parquet"])
    assert absent.page is not None
    lake.objects.pop(absent.page.location)
    assert codes(lake.put(absent)) == ["page-invalid"]
    outside = lake.sweep("t", ["data/y.parquet"])
    assert outside.page is not None
    moved = outside.page.model_copy(update={"location": "data/page.avro"})
    assert codes(lake.put(outside.model_copy(update={"page": moved}))) == ["location-invalid"]


def test_a_page_goes_only_behind_the_horizon_or_into_a_page_that_names_all_of_it() -> None:
    lake = swept_lake()
    lake.put(lake.sweep("s", ["data/x.parquet", "data/y.parquet"]))
    digest = lake.head.header.locations.condemned[0].page.digest
    assert codes(lake.put(lake.sweep("t", ["data/x.parquet"], replaces=[digest]))) == ["page-invalid"]
    assert codes(lake.put(lake.sweep("u", ["data/x.parquet"], replaces=[bytes(32)]))) == ["sweep-stale"]
    whole = ["data/x.parquet", "data/y.parquet", "data/z.parquet"]
    assert codes(lake.put(lake.sweep("v", whole, replaces=[digest]))) == [None]
    assert [len(page.content.locations) for page in lake.head.pages.of(CONDEMNED_PAGES)] == [3]
    lake.days_pass(10)
    last = lake.head.header.locations.condemned[0]
    again = lake.sweep("w", replaces=[last.page.digest], horizon_ms=lake.youngest_ms)
    assert codes(lake.put(again)) == [None]
    assert lake.head.header.locations.condemned == ()
    assert lake.head.header.locations.horizon_ms > last.since_ms


def test_old_files_have_expired_and_young_ones_have_not() -> None:
    lake, horizon_ms = lake_with_horizon()
    assert codes(lake.put_claiming(horizon_ms - 1, append("old"))) == ["expired"]
    assert codes(lake.put_claiming(horizon_ms, append("young"))) == [None]
    assert codes(lake.put_claiming(lake.now_ms + DAY_MS, append("future"))) == ["oldest-file-wrong"]


def test_without_a_claim_the_store_is_asked_once_there_is_a_horizon() -> None:
    lake, horizon_ms = lake_with_horizon()
    lake.dates |= {"data/old.parquet": horizon_ms - 1, "data/young.parquet": horizon_ms}
    assert codes(lake.put(append("old"), append("young"), append("gone"))) == ["expired", None, "file-missing"]
    entries = [new_entry(data_file(f"many-{number}")) for number in range(1_000)]
    leaf = lake.written_leaf(*entries)
    assert codes(lake.put(intent(IntentKind.APPEND, "leaf", add_manifests=[leaf]))) == ["oldest-file-missing"]
    assert codes(lake.put_claiming(horizon_ms, intent(IntentKind.APPEND, "l2", add_manifests=[leaf]))) == [None]


def test_a_table_without_a_horizon_asks_for_no_date() -> None:
    lake = swept_lake(append("a"))
    assert not any(isinstance(need, DateNeed) for needs in lake.rounds for need in needs)
    assert codes(lake.put_claiming(1, append("b"))) == [None]


def test_what_was_committed_hears_duplicate_or_live_and_never_expired() -> None:
    stamped = append("w", writer_id="w", writer_sequence=0)
    lake = swept_lake(append("a"), stamped)
    lake.put(lake.sweep("s", horizon_ms=lake.youngest_ms))
    assert kinds(lake.put_claiming(1, stamped)) == [VerdictKind.DUPLICATE]
    assert codes(lake.put_claiming(1, append("a"))) == ["file-already-live"]
    lake.put(remove("r", removed("data/w.parquet")))
    lake.put(lake.sweep("t", ["data/w.parquet"]))
    assert kinds(lake.put_claiming(1, stamped)) == [VerdictKind.DUPLICATE]


def test_a_restore_brings_back_what_a_version_that_can_be_read_holds() -> None:
    lake = swept_lake(append("a"), append("b"))
    version = lake.head.header.version
    lake.put(remove("r", removed("data/b.parquet")))
    lake.put(lake.sweep("s", ["data/b.parquet"], horizon_ms=lake.youngest_ms))
    restored = intent(IntentKind.RESTORE, "back", ref={"version": version})
    assert codes(lake.put(restored)) == [None]
    assert {place.location for place in lake.live()} == {"data/a.parquet", "data/b.parquet"}


def test_merged_vectors_of_a_swept_table_have_a_name_of_their_root() -> None:
    def merged(lake: SweptLake) -> str:
        lake.put(append("f"))
        first = lake.vector("v1", "data/f.parquet", [1])
        second = lake.vector("v2", "data/f.parquet", [2])
        delta = [intent(IntentKind.ROW_DELTA, f"d{at}", add_vectors=[item]) for at, item in enumerate((first, second))]
        assert codes(lake.put(*delta)) == [None, None]
        vector = lake.head.vector_of("data/f.parquet")
        assert vector is not None
        return vector.location

    plain, again = merged(swept_lake()), merged(swept_lake(append("x")))
    assert plain == again, "without a horizon a rebase finds the object again"
    swept = swept_lake()
    swept.put(swept.sweep("s", ["data/nothing.parquet"]))
    assert merged(swept) != plain
    reference = VectorReference(location=plain, offset=4)
    assert reference.location.startswith("metadata/vectors/")
