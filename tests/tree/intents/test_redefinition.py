"""Intents that bring files and change the definition at once: the changes come first, the files are judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent, encode_intent_json
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat, Status, VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind
from rootline.schemas.intent_rules import SHAPES, KindShape
from rootline.schemas.root_header import Operation
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.draft import Draft
from rootline.tree.evolution.changes import DefinitionChange, DefinitionChanges, SetProperties, schema_changes
from rootline.tree.evolution.next_definition import evolved
from rootline.tree.intents.append import fast_append_row
from tests.tree.tables import (
    DEFINITION,
    Lake,
    append,
    data_file,
    equality_delete,
    intent,
    new_lake,
    removed,
    stats,
)

MORE, OTHER = 5, 6
MORE_SCHEMA = Schema(*DEFINITION.schema.fields, NestedField(MORE, "more", LongType(), required=False), schema_id=0)
OTHER_SCHEMA = Schema(*MORE_SCHEMA.fields, NestedField(OTHER, "other", StringType(), required=False), schema_id=0)
WITH_MORE = {MORE: FieldStatistics(7, 9, True)}
FILES: Final = ("add_data_files", "add_manifests", "remove_files", "add_equality_deletes", "add_vectors")
SHAPES_OF_CB577A9: Final = {
    IntentKind.APPEND: KindShape(frozenset(FILES[:2])),
    IntentKind.OVERWRITE: KindShape(frozenset(FILES[:3])),
    IntentKind.ROW_DELTA: KindShape(frozenset({*FILES} - {"remove_files"}), must_carry=frozenset(FILES[3:])),
}
"""What intents of these kinds could carry in the first released version."""


def changes(lake: Lake, *wanted: DefinitionChange) -> str:
    return DefinitionChanges(lake.head.header.definition.digest, wanted).to_json()


def more(lake: Lake) -> str:
    return changes(lake, *schema_changes(MORE_SCHEMA))


def file_under(definition: TableDefinition, name: str) -> DataFile:
    """A data file with statistics of the new column, encoded under `definition`."""
    codec = EntryCodec.of_definition(definition).statistics
    known = {**stats([1, 2], "UA"), **{key: item for key, item in WITH_MORE.items() if key in definition.tracked_by_id}}
    return data_file(name, ids=[1, 2], content_stats=codec.encode(known), stats_schema=codec.fingerprint)


def after(lake: Lake, text: str) -> TableDefinition:
    return evolved(lake.head.definition, DefinitionChanges.from_json(text))


def outcomes(lake: Lake, *intents: Intent) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in lake.put(*intents)]


def statistics(lake: Lake) -> dict[str, Mapping[int, FieldStatistics]]:
    return {place.location: dict(entry.content_stats) for place, entry in lake.live().items()}


def test_an_append_adds_a_column_and_the_rows_that_have_it_in_one_version() -> None:
    lake = new_lake(append("a"))
    before, version = statistics(lake), lake.head.header.version
    text = more(lake)
    with_rows = append("b", file_under(after(lake, text), "b"), definition=text, schema_id=1)
    assert outcomes(lake, with_rows) == ["committed"]
    header = lake.head.header
    assert header.version == version + 1
    assert header.snapshot.operation is Operation.APPEND
    assert header.snapshot.summary["rootline.definition"] == header.definition.digest.hex()
    assert lake.head.definition.schema.find_field("more").field_id == MORE
    assert statistics(lake)["data/b.parquet"][MORE] == WITH_MORE[MORE]
    assert {name: held for name, held in statistics(lake).items() if name in before} == before
    assert len(lake.objects) == 2, "the definitions of the table, and nothing else"


def test_every_kind_that_brings_rows_may_change_the_definition_with_them() -> None:
    lake = new_lake(append("a"), append("b"))
    text = more(lake)
    new = file_under(after(lake, text), "c")
    overwriting = intent(
        IntentKind.OVERWRITE,
        "overwrite",
        definition=text,
        add_data_files=[new],
        remove_files=[removed("data/a.parquet")],
    )
    assert outcomes(lake, overwriting) == ["committed"]
    assert sorted(statistics(lake)) == ["data/b.parquet", "data/c.parquet"]
    text = changes(lake, *schema_changes(OTHER_SCHEMA))
    under_other = after(lake, text)
    delta = intent(
        IntentKind.ROW_DELTA,
        "delta",
        definition=text,
        add_data_files=[file_under(under_other, "d")],
        add_equality_deletes=[equality_delete("e", 1, "UA")],
        add_vectors=[lake.vector("v", "data/b.parquet", [0])],
    )
    assert outcomes(lake, delta) == ["committed"]
    assert lake.deleted_rows() == {"data/b.parquet": {0}, "data/c.parquet": set(), "data/d.parquet": set()}
    assert lake.head.definition == under_other


def test_a_leaf_may_hold_the_files_that_have_the_column() -> None:
    lake = new_lake(append("a"))
    text = more(lake)
    definition = after(lake, text)
    codec = EntryCodec.of_definition(definition).statistics
    entries = []
    for number in range(3):
        file = file_under(definition, f"l{number}")
        entries.append(
            ContentEntry(
                content_type=ContentType.DATA,
                location=file.location,
                file_format=FileFormat.PARQUET,
                version_info=VersionInfo(Status.ADDED),
                partition_spec_id=file.partition_spec_id,
                record_count=file.record_count,
                file_size_in_bytes=file.file_size_in_bytes,
                content_stats=codec.decode(file.content_stats or b"")[0],
            )
        )
    encoded = encode_leaf(entries, definition, leaf_uuid=lake.head.definition.table_uuid, content=LeafContent.DATA)
    lake.leaves[encoded.location] = decode_leaf(encoded.body, location=encoded.location)
    leaf = AddedManifest(
        location=encoded.location,
        content_type=ContentType.DATA_MANIFEST,
        file_size_in_bytes=len(encoded.body),
        record_count=3,
        partition_spec_id=0,
    )
    assert outcomes(lake, intent(IntentKind.APPEND, "l", add_manifests=[leaf], definition=text)) == ["committed"]
    assert statistics(lake)["data/l2.parquet"][MORE] == WITH_MORE[MORE]


def test_a_rejected_intent_changes_no_definition() -> None:
    lake = new_lake(append("a"))
    text, before = more(lake), lake.head.header.definition
    twice = append("twice", file_under(after(lake, text), "a"), definition=text)
    gone = intent(IntentKind.OVERWRITE, "gone", definition=text, remove_files=[removed("data/no.parquet")])
    stranger = append("stranger", file_under(after(lake, text), "s"), definition=text, schema_id=7)
    assert outcomes(lake, twice, gone, stranger) == ["file-already-live", "file-not-live", "schema-unknown"]
    assert lake.head.header.definition == before
    assert outcomes(lake, append("good", file_under(after(lake, text), "g"), definition=text)) == ["committed"]


def test_changes_that_are_illegal_or_late_take_the_rows_down_with_them() -> None:
    lake = new_lake(append("a"))
    first, illegal = more(lake), Schema(*DEFINITION.schema.fields[1:], schema_id=0)
    late = append("late", data_file("late"), definition=first)
    in_one_batch = [append("b", data_file("b"), definition=first), late]
    assert outcomes(lake, *in_one_batch) == ["committed", "definition-changed"]
    partitioned = changes(lake, *schema_changes(Schema(*illegal.fields[1:], schema_id=0)))
    assert outcomes(lake, append("i", data_file("i"), definition=partitioned)) == ["evolution-illegal"]
    assert outcomes(lake, append("j", data_file("j"), definition="[]")) == ["definition-invalid"]
    without = DefinitionChanges(None, schema_changes(OTHER_SCHEMA)).to_json()
    assert outcomes(lake, append("k", data_file("k"), definition=without)) == ["definition-invalid"]
    assert sorted(statistics(lake)) == ["data/a.parquet", "data/b.parquet"]


def test_a_later_intent_of_the_batch_sees_the_definition_and_an_earlier_one_does_not() -> None:
    one, many = new_lake(append("a")), new_lake(append("a"))
    text = more(one)
    new = after(one, text)
    early = append("early", file_under(new, "early"))
    steps = [
        early,
        append("c"),
        append("d", file_under(new, "d"), definition=text),
        append("e", file_under(new, "e")),
        intent(IntentKind.REMOVE, "r", remove_files=[removed("data/c.parquet"), removed("data/a.parquet")]),
    ]
    expected = ["statistics-invalid", *["committed"] * 4]
    assert outcomes(one, *steps) == expected
    assert [outcomes(many, step) for step in steps] == [[each] for each in expected]
    assert statistics(one) == statistics(many)
    assert one.head.definition == many.head.definition


def test_changes_that_change_nothing_leave_an_append_what_it_is() -> None:
    lake = new_lake(append("a"))
    before = lake.head.header.definition
    nothing = changes(lake, *schema_changes(DEFINITION.schema))
    assert outcomes(lake, append("b", data_file("b"), definition=nothing)) == ["committed"]
    assert lake.head.header.definition == before
    assert "rootline.definition" not in lake.head.header.snapshot.summary


def test_properties_come_with_rows_and_need_no_digest() -> None:
    lake = new_lake(append("a"))
    text = DefinitionChanges(None, (SetProperties({"owner": "me"}),)).to_json()
    assert outcomes(lake, append("b", data_file("b"), definition=text)) == ["committed"]
    assert lake.head.definition.properties == {"owner": "me"}


def test_an_intent_that_was_sent_twice_is_committed_once_whatever_the_definition_is_by_then() -> None:
    lake = new_lake(append("a"))
    text = more(lake)
    stamped = append("b", file_under(after(lake, text), "b"), definition=text, writer_id="w", writer_sequence=0)
    again = stamped.model_copy(update={"intent_id": "b2"})
    assert outcomes(lake, stamped, stamped, again) == ["committed", "duplicate", "duplicate"]
    assert outcomes(lake, stamped, again) == ["duplicate", "duplicate"]
    assert sorted(statistics(lake)) == ["data/a.parquet", "data/b.parquet"]


def test_the_loser_of_two_plans_again_under_the_same_number() -> None:
    lake = new_lake(append("a"))
    first, who = more(lake), {"writer_id": "w", "writer_sequence": 0}
    outcomes(lake, append("winner", data_file("winner"), definition=first))
    lost = append("lost", data_file("l"), definition=first, **who)
    assert outcomes(lake, lost) == ["definition-changed"]
    again = append("again", data_file("l"), definition=changes(lake, *schema_changes(OTHER_SCHEMA)), **who)
    assert outcomes(lake, again, lost) == ["committed", "definition-changed"], "the answer that it had"
    assert sorted(statistics(lake)) == ["data/a.parquet", "data/l.parquet", "data/winner.parquet"]


def test_the_short_way_of_an_append_is_not_for_one_that_changes_the_definition() -> None:
    lake = new_lake(append("a"))
    plain = append("b")
    assert fast_append_row(Draft.on(lake.head), plain) is not None
    with_changes = replace_definition(plain, more(lake))
    assert fast_append_row(Draft.on(lake.head), with_changes) is None
    assert decode_intent(encode_intent(with_changes)) == with_changes
    assert decode_intent(encode_intent_json(with_changes)) == with_changes


def replace_definition(plain: Intent, text: str) -> Intent:
    return Intent.model_validate(plain.model_dump() | {"definition": text})


@pytest.mark.parametrize("encode", [encode_intent, encode_intent_json])
@pytest.mark.parametrize("kind", SHAPES_OF_CB577A9)
def test_a_coordinator_of_the_first_release_rejects_the_whole_intent(
    kind: IntentKind, encode: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake(append("a"))
    carried = {"add_data_files": [data_file("b")], "definition": more(lake)}
    if kind is IntentKind.ROW_DELTA:
        carried |= {"add_vectors": [lake.vector("v", "data/a.parquet", [0])]}
    if kind is IntentKind.OVERWRITE:
        carried |= {"remove_files": [removed("data/a.parquet")]}
    body = encode(intent(kind, "new", **carried))  # type: ignore[operator]
    monkeypatch.setitem(SHAPES, kind, SHAPES_OF_CB577A9[kind])  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=f"kind {kind} cannot carry definition") as error:
        decode_intent(body)
    assert error.value.code == "intent-malformed"


@pytest.mark.parametrize("kind", [IntentKind.REMOVE, IntentKind.REWRITE, IntentKind.FLUSH, IntentKind.TAG])
def test_other_kinds_change_no_definition(kind: IntentKind) -> None:
    assert "definition" not in SHAPES[kind].may_carry


@pytest.mark.parametrize("kind", SHAPES_OF_CB577A9)
def test_a_definition_alone_is_an_alter(kind: IntentKind) -> None:
    lake = new_lake()
    with pytest.raises(ValueError, match="must carry"):
        intent(kind, "alone", definition=more(lake))
