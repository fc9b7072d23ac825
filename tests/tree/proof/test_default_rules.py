"""A default that is not of its type is refused when the table is created, by the name of the field."""

from __future__ import annotations

import json

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.definition_rules import check_definition
from tests.tree.tables import DEFINITION, Lake, changed_definition, create

LIST = {"type": "list", "element-id": 12, "element": "int", "element-required": False}
MAP = {"type": "map", "key-id": 12, "key": "int", "value-id": 13, "value": "int", "value-required": False}
STRUCT = {"type": "struct", "fields": [{"id": 12, "name": "x", "type": "int", "required": False}]}
STRUCT_KEY = {"type": "struct", "fields": [{"id": 15, "name": "k", "type": "int", "required": True}]}
LISTS = {"type": "struct", "fields": [{"id": 14, "name": "xs", "type": LIST, "required": False}]}
MUST = {"type": "struct", "fields": [{"id": 12, "name": "x", "type": "int", "required": True}]}
OF_A_NESTED_TYPE = [
    (LIST, [1, None]),
    (LIST, []),
    ({**LIST, "element": "double"}, [2**53 + 1, 10**30]),
    ({**MAP, "key": "double"}, {"keys": [0.0, -0.0, 1], "values": [1, 2, 3]}),
    (MAP, {"keys": [2, 1], "values": [2, None]}),
    (STRUCT, {}),
    (STRUCT, {"12": 1}),
    (STRUCT, {"12": None}),
    (MUST, {"12": 1}),
    (LISTS, {"14": [3]}),
]
NOT_OF_A_NESTED_TYPE = [
    (LIST, {"a": 1}, "not of type list<int>"),
    (LIST, "x", "not of type list<int>"),
    (LIST, 1, "not of type list<int>"),
    (LIST, ["x"], "[0] is 'x', which is not of type int"),
    ({**LIST, "element-required": True}, [None], "[0] is required, but null"),
    (MAP, [[1, 2]], "not of type map<int, int>"),
    (MAP, {"1": 2}, "two arrays"),
    (MAP, {"keys": [1], "values": []}, "one value for each key"),
    (MAP, {"keys": [1, 1], "values": [1, 2]}, "a key twice"),
    ({**MAP, "key": "double"}, {"keys": [1, 1.0], "values": [1, 2]}, "a key twice"),
    ({**MAP, "key": "float"}, {"keys": [0.1, 0.1000000001], "values": [1, 2]}, "a key twice"),
    ({**MAP, "key": "decimal(4, 2)"}, {"keys": ["1.0", "1.00"], "values": [1, 2]}, "a key twice"),
    ({**MAP, "key": "binary"}, {"keys": ["ab", "AB"], "values": [1, 2]}, "a key twice"),
    ({**MAP, "key": STRUCT_KEY}, {"keys": [{"15": 1}, {"15": 1, "14": 2}], "values": [1, 2]}, "a key twice"),
    (MAP, {"keys": [None], "values": [1]}, "key[0] is required, but null"),
    (MAP, {"keys": [1], "values": [True]}, "value[0] is True, which is not of type int"),
    (STRUCT, [1], "not of type struct<12: x: optional int>"),
    (STRUCT, {"x": 1}, "not the id of one of its fields"),
    (STRUCT, {"99": 1}, "not the id of one of its fields"),
    (STRUCT, {"12": 2**31}, "x is 2147483648, which is not of type int"),
    (STRUCT, {"12": float("nan")}, "not of type struct"),
    (MUST, {}, "x is required, has no default, and is missing"),
    (MUST, {"12": None}, "x is required, but null"),
    (LISTS, {"14": [1, "x"]}, "xs[1] is 'x', which is not of type int"),
]
OF_THEIR_TYPE = [
    ("boolean", True),
    ("int", -(2**31)),
    ("int", 2**31 - 1),
    ("long", 2**63 - 1),
    ("float", 1),
    ("float", 1.5),
    ("double", 1e300),
    ("decimal(4, 2)", "12.34"),
    ("decimal(4, 2)", "-1.5"),
    ("decimal(4, 0)", "9999"),
    ("date", "2013-01-31"),
    ("time", "10:30:00.000001"),
    ("timestamp", "2013-01-31T10:30:00.000001"),
    ("timestamptz", "2013-01-31T10:30:00.000001+00:00"),
    ("string", "x"),
    ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("fixed[2]", "00ff"),
    ("binary", "00ff01"),
]
NOT_OF_THEIR_TYPE = [
    ("boolean", 1),
    ("boolean", "true"),
    ("int", "x"),
    ("int", "7"),
    ("int", True),
    ("int", 1.5),
    ("int", 2**31),
    ("long", 2**63),
    ("long", [1]),
    ("float", "x"),
    ("float", 1e39),
    ("float", False),
    ("float", float("nan")),
    ("double", "1.5"),
    ("double", 10**400),
    ("double", float("inf")),
    ("decimal(4, 2)", "12.345"),
    ("decimal(4, 2)", "123.4"),
    ("decimal(4, 2)", "x"),
    ("decimal(4, 2)", "NaN"),
    ("decimal(4, 2)", {"a": 1}),
    ("date", "yesterday"),
    ("date", {"a": 1}),
    ("date", 2**60),
    ("time", "25:00:00"),
    ("time", 1.5),
    ("timestamp", "2013-01-31T10:30:00+00:00"),
    ("timestamp", "2013-02-31T10:30:00"),
    ("timestamptz", "2013-01-31T10:30:00"),
    ("string", 5),
    ("string", ["x"]),
    ("uuid", "x"),
    ("uuid", 7),
    ("fixed[2]", "0"),
    ("fixed[2]", "000000"),
    ("fixed[2]", 7),
    ("binary", "zz"),
    ("binary", 7),
]
NOT_KEPT = [
    ({**LIST, "element": "timestamp_ns"}, ["2013-01-31T10:30:00.123456789"]),
    ("timestamp_ns", "2013-01-31T10:30:00.123456789"),
    ("timestamptz_ns", "2013-01-31T10:30:00.123456789+00:00"),
]
KINDS = ["initial-default", "write-default"]


def _text(kind: str, of_type: object, value: object, *, nested: bool = False) -> str:
    field = {"id": 11, "name": "born", "type": of_type, "required": False, kind: value}
    if nested:
        inner = {"type": "struct", "fields": [field]}
        holder = {"type": "list", "element-id": 10, "element": inner, "element-required": False}
        field = {"id": 9, "name": "holder", "type": holder, "required": False}
    [schema] = json.loads(DEFINITION.to_json())["schemas"]
    schema["fields"] = [*schema["fields"], field]
    return changed_definition(schemas=[schema], last_column_id=20)


def _verdict_of(text: str) -> tuple[str | None, str]:
    [verdict] = Lake().put(create(text=text))
    return verdict.code, verdict.message or ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("of_type", "value"), OF_THEIR_TYPE)
def test_a_default_of_its_type_is_accepted_in_its_json_form(kind: str, of_type: str, value: object) -> None:
    text = _text(kind, of_type, value)
    assert _verdict_of(text) == (None, "")
    assert TableDefinition.from_json(TableDefinition.from_json(text.encode()).to_json()).to_json()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("of_type", "value"), NOT_OF_THEIR_TYPE)
def test_a_default_that_is_not_of_its_type_is_refused_by_the_name_of_its_field(
    kind: str, of_type: str, value: object
) -> None:
    code, message = _verdict_of(_text(kind, of_type, value))
    assert code == "definition-invalid"
    assert f"'born' has {kind} " in message
    assert f"not of type {of_type}" in message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("of_type", "value"), OF_A_NESTED_TYPE)
def test_a_stored_default_of_a_struct_list_or_map_is_read_and_a_new_one_is_refused(
    kind: str, of_type: object, value: object
) -> None:
    text = _text(kind, of_type, value)
    check_definition(TableDefinition.from_json(text.encode()))
    code, message = _verdict_of(text)
    assert code == "definition-invalid"
    assert f"'born' has {kind} " in message
    assert "other engines cannot read" in message
    [schema] = json.loads(TableDefinition.from_json(text.encode()).to_json())["schemas"]
    assert schema["fields"][-1][kind] == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("of_type", "value", "reason"), NOT_OF_A_NESTED_TYPE)
def test_a_default_that_is_no_such_struct_list_or_map_is_refused_with_the_place_where_it_is_not(
    kind: str, of_type: object, value: object, reason: str
) -> None:
    code, message = _verdict_of(_text(kind, of_type, value))
    assert code == "definition-invalid"
    assert f"'born' has {kind} " in message
    assert reason in message


def test_a_field_that_the_default_of_a_struct_lacks_may_be_required_if_it_has_a_default_of_its_own() -> None:
    member = {"id": 12, "name": "x", "type": "int", "required": True, "initial-default": 3}
    struct = {"type": "struct", "fields": [member]}
    check_definition(TableDefinition.from_json(_text("initial-default", struct, {}).encode()))
    code, message = _verdict_of(_text("write-default", struct, {}))
    assert (code, "x is required" in message) == ("definition-invalid", True)


@pytest.mark.parametrize("field_id", ["15", "20"])
def test_the_default_of_a_struct_may_name_a_field_that_was_dropped(field_id: str) -> None:
    check_definition(TableDefinition.from_json(_text("initial-default", STRUCT, {"12": 1, field_id: "x"}).encode()))


@pytest.mark.parametrize("field_id", ["21", "0", "-1", "015", "1e1", "٣", "1" * 5_000])
def test_the_default_of_a_struct_names_no_field_that_there_never_was(field_id: str) -> None:
    code, _ = _verdict_of(_text("initial-default", STRUCT, {field_id: 1}))
    assert code == "definition-invalid"


@pytest.mark.parametrize(("of_type", "value"), NOT_KEPT)
def test_a_default_that_cannot_be_kept_is_refused_with_what_to_do(of_type: object, value: object) -> None:
    code, message = _verdict_of(_text("initial-default", of_type, value))
    assert code == "definition-invalid"
    assert "'born' has initial-default " in message
    assert "omit it" in message


@pytest.mark.parametrize("value", ["x", 2**31, [1]])
def test_a_default_inside_a_list_of_structs_is_held_to_its_type_too(value: object) -> None:
    code, message = _verdict_of(_text("write-default", "int", value, nested=True))
    assert code == "definition-invalid"
    assert "'holder.element.born' has write-default " in message


def test_a_null_default_is_no_default() -> None:
    assert _verdict_of(_text("initial-default", LIST, None)) == (None, "")


def test_a_stored_definition_whose_default_is_of_another_type_can_still_be_read() -> None:
    text = _text("initial-default", "int", "x")
    found = TableDefinition.from_json(text.encode())
    with pytest.raises(Invalid, match="born"):
        check_definition(found)
