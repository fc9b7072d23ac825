"""The object that says which files of others a table names: its bytes, and which names it has room for."""

from __future__ import annotations

import uuid

import pytest

from rootline.schemas.bytes.root.foreign_names import (
    ForeignNameNotes,
    ForeignNames,
    name_hash,
    names_of_adopted,
    names_read_later,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.object_keys import own_kind

OURS = f"{uuid.UUID(int=7)}.parquet"


def noted(*locations: str) -> ForeignNames:
    notes = ForeignNameNotes()
    notes.reference(locations)
    return notes.names()


def test_the_bytes_are_a_line_a_digest_and_ascending_hashes() -> None:
    names = noted(f"s3://a/{OURS}", "/b/spark-write=x/part-1.parquet", f"s3a://c/d/{OURS.upper()}")
    body = names.to_bytes()
    assert body.startswith(b"rootline-foreign-names/2\n")
    hashes = sorted({name_hash(OURS), name_hash("part-1.parquet")})
    assert body[25 + 32 :] == b"".join(item.to_bytes(8, "big") for item in hashes)
    assert ForeignNames.from_bytes(body, name="n").hashes.tolist() == hashes
    assert ForeignNames.from_bytes(noted().to_bytes(), name="n").hashes.tolist() == []


def test_a_name_that_a_folder_resolves_is_noted_as_the_file_that_it_is() -> None:
    assert noted(f"file:///a/{OURS}/.", f"/b/{OURS}//").hashes.tolist() == [name_hash(OURS)]


def test_damaged_bytes_are_corrupt_and_never_fewer_names() -> None:
    body = noted(*(f"s3://a/{uuid.UUID(int=number)}.parquet" for number in range(3))).to_bytes()
    for at in range(len(body)):
        for damaged in (body[:at], body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]):
            with pytest.raises(Corrupt, match="the object is damaged"):
                ForeignNames.from_bytes(damaged, name="n")


@pytest.mark.parametrize(
    "own",
    [
        f"data/{OURS}",
        f"data/day=2024-01-01/{OURS}",
        f"data/spark-write={uuid.UUID(int=1)}/part-00000-{uuid.UUID(int=2)}-c000.snappy.parquet",
        f"data/{'0' * 32}-deletes-{'0' * 16}.puffin",
        f"metadata/vectors/{'0' * 32}-{'0' * 16}.puffin",
        f"export/v2/{'0' * 16}/metadata/{'0' * 16}-1.metadata.json",
        f"export/v2/{'0' * 16}/lists/{'0' * 16}-1-{'0' * 16}.avro",
        f"export/v2/{'0' * 16}/manifests/{'0' * 32}.avro",
        f"export/v2/deletes/{'0' * 32}-1-2.parquet",
    ],
)
def test_every_name_that_rootline_gives_is_noted_where_it_is_absolute(own: str) -> None:
    assert own_kind(own) is not None
    assert noted(f"s3://bucket/lake/demo/t/{own}").hashes.tolist() == [name_hash(own)]
    assert noted(own).hashes.tolist() == []


@pytest.mark.parametrize(
    "name",
    [
        f"data/00000-0-{uuid.UUID(int=7)}-00001.parquet",
        f"data/at=2/20261101_120000_00007_abcde-{uuid.UUID(int=7)}.orc",
        f"metadata/snap-1-1-{uuid.UUID(int=7)}.avro",
        f"metadata/{uuid.UUID(int=7)}-m0.avro",
    ],
)
def test_names_that_a_sweep_of_clients_files_deletes_are_noted(name: str) -> None:
    assert own_kind(name, of_clients=True) is not None
    assert noted(f"s3://bucket/lake/demo/t/{name}").hashes.tolist() == [name_hash(name)]


def test_names_that_no_sweep_deletes_take_no_room() -> None:
    others = ("part-0.parquet", "snap-1.avro", "00001-3.metadata.json", f"{uuid.UUID(int=7)}/part-0.parquet")
    assert noted(*(f"s3://a/{name}" for name in others)).hashes.tolist() == []


def test_a_set_of_before_clients_wrote_is_read_anew() -> None:
    body = noted(f"s3://a/{OURS}").to_bytes()
    with pytest.raises(Corrupt):
        ForeignNames.from_bytes(body.replace(b"names/2", b"names/1"), name="n")


def test_no_sweep_deletes_these_objects() -> None:
    adopted = f"metadata/adopted/{'ab' * 16}.avro"
    assert names_of_adopted(adopted) == f"metadata/pages/foreign-{'ab' * 16}.names"
    assert names_read_later([adopted, "b"]) == names_read_later(["b", adopted]) != names_read_later([adopted])
    assert own_kind(names_of_adopted(adopted)) is own_kind(names_read_later([adopted])) is None
