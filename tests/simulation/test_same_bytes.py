"""Two replays are compared: the first object that differs is found, and explained by the keys of its header."""

from __future__ import annotations

from pathlib import Path

from rootline.schemas.bytes.avro_encoding import encode_bytes, encode_long
from tests.simulation.replayed_log import Journal as Writing
from tests.simulation.same_bytes import Journal, differences, explained

ROOT = "sim/events/metadata/roots/7ffffffffffffffe-1.avro"


def avro(**keys: str) -> bytes:
    pairs = b"".join(encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in keys.items())
    return b"Obj\x01" + encode_long(len(keys)) + pairs + encode_long(0) + b"rows"


def journal(folder: Path, *objects: tuple[str, bytes]) -> Journal:
    writing = Writing(folder)
    for key, body in objects:
        writing.note("put", key, body, "created")
    writing.note("verdict", "sim.events 0/1", b"v", "committed None")
    writing.close()
    return Journal.of(folder)


def test_replays_of_the_same_bytes_have_no_differences_whatever_table_was_first(tmp_path: Path) -> None:
    objects = [(ROOT, avro(tags="{}")), (ROOT.replace("events", "clicks"), b"x")]
    before, after = journal(tmp_path / "before", *objects), journal(tmp_path / "after", *reversed(objects))
    assert list(differences(before, after)) == []


def test_the_first_root_that_differs_is_named_with_the_keys_of_its_header_that_differ(tmp_path: Path) -> None:
    before = journal(tmp_path / "before", (ROOT, avro(content="root", tags='{"a": 1}')))
    after = journal(tmp_path / "after", (ROOT, avro(content="root", tags='{"a": 2}', horizon="5")))
    found = list(differences(before, after))
    assert found[0] == "sim/events: the first difference is number 0 of 2"
    assert ROOT in found[1]
    assert found[3:] == [
        "  tags: 8 bytes before, 8 after, the first difference is at 6",
        '  tags:   before: {"a": 1}',
        '  tags:   after:  {"a": 2}',
        "  horizon: only after: 5",
    ]


def test_an_object_that_is_lacking_and_a_byte_of_another_object_are_differences(tmp_path: Path) -> None:
    before, after = journal(tmp_path / "before", (ROOT, b"abc")), journal(tmp_path / "after")
    assert list(differences(before, after))[1].strip().startswith(f"before: put {ROOT}")
    assert next(iter(explained(b"abc", b"abd"))) == "3 bytes before, 3 after, the first difference is at 2"
