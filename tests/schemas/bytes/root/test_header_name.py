"""What a name is, as bytes: tombstones read back, and software that does not know them refuses them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from rootline.schemas.bytes.root.header_codec import PROFILE_KEY, decode_header, encode_header, profile_of
from rootline.schemas.bytes.root.root_codec import decode_root, encode_root, sync_marker
from rootline.schemas.errors import Corrupt
from rootline.schemas.field_ids import PROFILE, PROFILE_OF_EXPIRY
from rootline.schemas.identifiers import Version
from rootline.schemas.parts.name import DROPS_KEY, DROPS_MAX, VIEW_KEY, Drop, NameState
from rootline.schemas.root_header import RootHeader
from tests.golden_files import golden
from tests.schemas.bytes.root.test_root_codec import small_root
from tests.schemas.entry_values import example_header

OTHER = uuid.UUID(int=77)
HEADER = example_header()
DROP = Drop(HEADER.table_uuid, Version(3), 1_700_000_000_000)
TOMBSTONE = replace(
    HEADER, name=replace(HEADER.name, state=NameState.TOMBSTONE, drops=(Drop(OTHER, Version(1), 5, True), DROP))
)


def test_a_tombstone_says_which_tables_were_dropped_when_and_in_which_version() -> None:
    assert decode_header(encode_header(TOMBSTONE)) == TOMBSTONE
    assert TOMBSTONE.is_tombstone
    assert not HEADER.is_tombstone


def test_a_name_that_was_never_dropped_has_the_header_that_it_always_had() -> None:
    metadata = encode_header(HEADER)
    assert DROPS_KEY not in metadata
    assert metadata["content"] == b"root"
    assert profile_of(HEADER) == PROFILE


@pytest.mark.parametrize("state", [NameState.TABLE, NameState.TOMBSTONE])
def test_a_coordinator_of_profile_1_refuses_every_root_after_a_first_drop(state: NameState) -> None:
    root = decode_root(small_root(), name="root")
    drop = DROP._replace(table_uuid=root.header.table_uuid)
    header = replace(root.header, name=replace(root.header.name, state=state, drops=(drop,)))
    metadata = encode_header(header)
    # the released rule compares both as bytes, before it decodes anything
    assert (metadata["format-version"], metadata["content"]) in ((b"4", b"root"), (b"4", b"tombstone"))
    assert metadata[PROFILE_KEY] == PROFILE_OF_EXPIRY.encode() != PROFILE.encode()
    _, body = encode_root(header, root.blocks, root.codec, sync_marker(header.table_uuid))
    assert decode_root(body, name="root").header == header


def test_a_content_that_no_one_knows_is_refused() -> None:
    root = decode_root(small_root(), name="root")
    _, body = encode_root(root.header, root.blocks, root.codec, root.sync)
    with pytest.raises(Corrupt):
        decode_root(body.replace(b"\x0econtent\x08root", b"\x0econtent\x08rood"), name="root")


@pytest.mark.parametrize(
    "drops",
    [
        b"{}",
        b"[[]]",
        b"[1]",
        b'[["x",1,2,false]]',
        b'[["' + str(HEADER.table_uuid).encode() + b'",-1,2,false]]',
        b'[["' + str(HEADER.table_uuid).encode() + b'",1,2,0]]',
        b'[["' + str(HEADER.table_uuid).encode() + b'",true,2,false]]',
        b'[["' + str(OTHER).encode() + b'",1,2,false]]',
        b"[]",
        b"[" + b"[" * 100_000,
        b"[" + b",".join([b'["' + str(HEADER.table_uuid).encode() + b'",1,2,false]'] * (DROPS_MAX + 1)) + b"]",
    ],
)
def test_drops_of_the_wrong_type_or_of_another_table_than_the_tombstone_are_refused(drops: bytes) -> None:
    with pytest.raises(ValueError):
        decode_header({**encode_header(TOMBSTONE), DROPS_KEY: drops})


def test_released_bytes_of_a_tombstone_stay_readable() -> None:
    root = decode_root(small_root(), name="root")
    drop = DROP._replace(table_uuid=root.header.table_uuid)
    header = replace(root.header, name=replace(root.header.name, state=NameState.TOMBSTONE, drops=(drop,)))
    _, made = encode_root(header, root.blocks, root.codec, sync_marker(header.table_uuid))
    held = golden("root-tombstone.avro", made)
    assert held == made
    assert decode_root(held, name="root").header == header


VIEW = replace(HEADER, name=replace(HEADER.name, state=NameState.VIEW, view=b'{"format-version":1}'))


def test_a_views_metadata_is_in_its_header_and_software_of_profile_1_refuses_it() -> None:
    metadata = encode_header(VIEW)
    assert decode_header(metadata) == VIEW
    assert (metadata["content"], metadata[VIEW_KEY]) == (b"view", VIEW.name.view)
    assert profile_of(VIEW) == PROFILE_OF_EXPIRY
    assert decode_header(encode_header(replace(VIEW, name=replace(VIEW.name, drops=(DROP,))))).name.drops == (DROP,)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(VIEW, name=replace(VIEW.name, view=None)),
        replace(HEADER, name=replace(HEADER.name, view=VIEW.name.view)),
        replace(TOMBSTONE, name=replace(TOMBSTONE.name, view=VIEW.name.view)),
    ],
    ids=["view-without", "table-with", "tombstone-with"],
)
def test_only_a_view_has_a_views_metadata(wrong: RootHeader) -> None:
    with pytest.raises(ValueError, match=f"{VIEW_KEY} must be present for a view"):
        decode_header(encode_header(wrong))
