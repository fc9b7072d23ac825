"""A lake in a folder that an older version wrote: opened, read, checked and appended to by this one.

How it was made is in `make`. Its log has intents that no coordinator has decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.schemas.bytes.avro_encoding import read_head
from rootline.schemas.bytes.root.header_codec import KEYS
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.errors import Invalid
from tests.stored.stored_lake import (
    Facts,
    append_to_all,
    assert_as_stored,
    assert_sound,
    assert_told_as_before,
    feed_files,
    unpack,
)
from tests.stored.story import AGAIN, BROUGHT_BACK, COMPACTED, DROPPED, FEED, REPLACED, TRIPS, VIEW


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts.of("folder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack("folder", tmp_path)


@pytest.fixture
def stored(folder: Path) -> Iterator[Lake]:
    with connect(folder) as lake:
        yield lake


def test_every_version_has_its_rows_and_every_table_grows_and_stays_sound(stored: Lake, facts: Facts) -> None:
    assert_as_stored(stored, facts)
    assert_sound(stored)
    append_to_all(stored)
    assert_sound(stored)


def test_a_decided_intent_that_is_sent_again_is_not_decided_again(stored: Lake, facts: Facts) -> None:
    assert any(told.verdict.kind.value == "rejected" for told in facts.told)
    assert_told_as_before(stored, facts)


def test_what_waited_on_the_log_is_decided_once_in_its_order(stored: Lake, facts: Facts) -> None:
    with stored.producer() as producer:
        kinds = [producer.publish(intent).verdict() for intent in facts.undecided]
    assert [(verdict.kind.value, verdict.code) for verdict in kinds] == [
        ("duplicate", None),
        ("duplicate", None),
        ("rejected", "file-already-live"),
        ("duplicate", None),
    ]
    assert feed_files(stored) == sorted(
        {*facts.files, "data/first.parquet", "data/third.parquet"} - {"data/second.parquet"}
    )


def test_dropped_tables_come_back_with_their_rows(stored: Lake, facts: Facts) -> None:
    with pytest.raises(Invalid, match="table-dropped"):
        stored.table(DROPPED)
    assert stored.restore_table(DROPPED).scan().to_arrow()["id"].to_pylist() == [0, 1, 2]
    stored.drop_table(AGAIN)
    assert len(stored.restore_table(AGAIN).scan().to_arrow()) == len(facts.rows(AGAIN))


def test_an_older_version_is_restored_and_a_view_is_changed(stored: Lake, facts: Facts) -> None:
    restored = stored.table(COMPACTED)
    restored.restore(tag="kept")
    assert sorted(restored.scan().to_arrow()["id"].to_pylist()) == list(range(8))
    stored.table(TRIPS).restore(12)
    view = stored.view(VIEW)
    view.rollback(1)
    assert view.sql() == facts.view["versions"][0]["representations"][0]["sql"]
    assert_sound(stored)


def test_the_stored_roots_have_every_key_of_the_header(folder: Path) -> None:
    """Or the lake does not use what the format has: add it to the story."""
    roots = {str(path): path.read_bytes() for path in folder.rglob("roots/*.avro")}
    headers = [decode_root(body, name=name).header for name, body in roots.items()]
    assert set(KEYS) <= {key for body in roots.values() for key in read_head(body).metadata}
    assert any(header.is_tombstone for header in headers)
    of = {table: [header for header in headers if header.table == table] for table in (TRIPS, COMPACTED, FEED)}
    assert any(header.locations.condemned for header in of[COMPACTED])
    assert any(header.totals.equality_deletes for header in of[TRIPS])
    assert any(header.totals.vectors for header in of[TRIPS])
    assert any(header.totals.delete_manifests for header in headers)
    assert {header.table for header in headers if header.name.drops} == {AGAIN, DROPPED, BROUGHT_BACK}
    assert {header.table for header in headers if header.restores.replaced_at} == {REPLACED}
