"""A view's metadata as JSON: the specification's examples, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.view_metadata import VIEW_BYTES_MAX, OtherRepresentation, ViewMetadata
from tests.golden_files import FOLDER

EXAMPLES: Final = {
    "created": (FOLDER / "views/example-created.json").read_bytes(),
    "replaced": (FOLDER / "views/example-replaced.json").read_bytes(),
}


def example(name: str = "replaced") -> dict[str, Any]:
    """An example's JSON, to be changed."""
    return dict(json.loads(EXAMPLES[name]))


def changed(path: str, value: Any) -> bytes:
    """The example with two versions, with one value of it replaced; `...` takes it out."""
    body = example()
    *steps, last = [int(step) if step.isdecimal() else step for step in path.split("/")]
    place: Any = body
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(body).encode()


def refusal(text: bytes) -> Invalid:
    with pytest.raises(Invalid) as caught:
        ViewMetadata.from_json(text, name="demo.v")
    assert caught.value.message.startswith("demo.v: ")
    return caught.value


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_of_the_specification_is_read_and_written_again_with_every_field(name: str) -> None:
    view = ViewMetadata.from_json(EXAMPLES[name])
    assert json.loads(view.to_json()) == json.loads(EXAMPLES[name])
    assert ViewMetadata.from_json(view.to_json()) == view


def test_an_examples_fields_are_where_a_reader_looks_for_them() -> None:
    view = ViewMetadata.from_json(EXAMPLES["replaced"])
    [text] = view.current_version.sql_texts
    assert (view.current_version_id, text.dialect, text.default_catalog) == (2, "spark", "iceberg")
    assert text.default_namespace == ("anorwood",)
    assert (view.current_version.parent_version_id, view.versions[0].parent_version_id) == (1, -1)
    assert view.versions[0].properties == {}
    assert view.current_version.properties is None
    assert view.current_version.summary["engineVersion"] == "spark-2.4.4"
    assert view.properties == {"comment": "View captures count of the data from the table"}
    assert [entry.version_id for entry in view.version_log] == [1, 2]
    schema = view.schema_by_id(2)
    assert schema is not None
    assert [field.name for field in schema.fields] == ["my_cnt"]
    assert view.schema_by_id(3) is None


def test_versions_name_their_schema_on_themselves_or_in_their_texts() -> None:
    view = ViewMetadata.from_json(EXAMPLES["replaced"])
    assert [version.named_schema_id for version in view.versions] == [1, 2]
    assert ViewMetadata.from_json(changed("versions/1/schema-id", 1)).current_version.named_schema_id == 1


def test_aliases_and_comments_are_as_long_as_the_schemas_top_level() -> None:
    text = changed("versions/0/representations/0/field-docs", ["docs", None])
    view = ViewMetadata.from_json(text)
    assert view.versions[0].sql_texts[0].field_docs == ("docs", None)
    assert json.loads(view.to_json()) == json.loads(text)
    for name in ("field-docs", "field-aliases"):
        error = refusal(changed(f"versions/0/representations/0/{name}", ["one"]))
        assert (error.code, name in error.message) == ("view-invalid", True)
    assert refusal(changed("versions/0/representations/0/field-aliases", ["a", None])).code == "view-invalid"


def test_fields_that_no_table_lists_are_kept() -> None:
    body = example()
    body["of-a-later-text"] = {"a": [1, None, 2.5]}
    body["versions"][0]["storage-table"] = {"namespace": ["a"], "name": "t"}
    body["versions"][0]["representations"][0]["hint"] = None
    body["version-log"][0]["by"] = "me"
    view = ViewMetadata.from_json(json.dumps(body).encode())
    assert json.loads(view.to_json()) == body


def test_a_representation_of_another_type_is_kept_and_is_no_sql() -> None:
    other = {"type": "substrait", "plan": {"root": [1]}}
    text = changed("versions/0/representations", [*example()["versions"][0]["representations"], other])
    view = ViewMetadata.from_json(text)
    assert isinstance(view.versions[0].representations[1], OtherRepresentation)
    assert len(view.versions[0].sql_texts) == 1
    assert json.loads(view.to_json()) == json.loads(text)


@pytest.mark.parametrize("found", [2, 3, 2**31, 10**400])
def test_a_later_format_version_is_refused(found: int) -> None:
    error = refusal(changed("format-version", found))
    assert error.code == "view-format-unsupported"
    assert "up to 1" in error.message


@pytest.mark.parametrize("found", [0, -1, "1", 1.5, None, True, ...])
def test_a_format_version_that_is_none_is_refused(found: object) -> None:
    assert refusal(changed("format-version", found)).code == "view-invalid"


def test_two_texts_in_one_dialect_are_refused_whatever_their_case() -> None:
    first = example()["versions"][0]["representations"][0]
    for dialect in ("presto", "Presto"):
        twice = [first, {**first, "dialect": dialect, "sql": "SELECT 1"}]
        error = refusal(changed("versions/0/representations", twice))
        assert error.code == "view-dialect-twice"
        assert "version 1" in error.message
    ViewMetadata.from_json(changed("versions/0/representations", [first, {**first, "dialect": "spark"}]))


def test_a_definition_of_ten_megabytes_is_refused() -> None:
    error = refusal(changed("versions/0/representations/0/sql", "x" * 10_000_000))
    assert error.code == "view-too-large"
    assert str(VIEW_BYTES_MAX) in error.message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"1",
        b"SELECT 1",
        b"{",
        EXAMPLES["created"][:-4],
        b"[" * 100_000,
        b'{"format-version": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"format-version": ' + b"1" * 5_000 + b"}",
        b'{"format-version": NaN}',
        EXAMPLES["created"].replace(b'"location"', b'"x": Infinity, "location"'),
        EXAMPLES["created"].replace(b"my_company", b"\\ud800"),
    ],
    ids=range(14),
)
def test_what_is_not_json_of_a_view_is_refused(text: bytes) -> None:
    assert refusal(text).code == "view-invalid"


FIELDS: Final = (
    "view-uuid",
    "location",
    "current-version-id",
    "properties",
    "versions",
    "versions/0",
    "versions/0/version-id",
    "versions/0/parent-version-id",
    "versions/0/timestamp-ms",
    "versions/0/summary",
    "versions/0/summary/operation",
    "versions/0/summary/engineVersion",
    "versions/0/properties",
    "versions/0/representations",
    "versions/0/representations/0",
    "versions/0/representations/0/type",
    "versions/0/representations/0/sql",
    "versions/0/representations/0/dialect",
    "versions/0/representations/0/schema-id",
    "versions/0/representations/0/default-catalog",
    "versions/0/representations/0/default-namespace",
    "versions/0/representations/0/field-aliases",
    "version-log",
    "version-log/0",
    "version-log/0/timestamp-ms",
    "version-log/0/version-id",
    "schemas",
    "schemas/0",
    "schemas/0/fields",
    "schemas/0/fields/0/type",
    "current-schema-id",
)


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("value", [False, 1.5, [1.5], {"a": 1.5}, -5, 2**70], ids=str)
def test_a_value_of_a_wrong_type_is_refused(path: str, value: object) -> None:
    assert refusal(changed(path, value)).code == "view-invalid"


@pytest.mark.parametrize("path", ["location", "current-version-id", "versions", "version-log"])
def test_what_a_view_must_have_is_missed(path: str) -> None:
    error = refusal(changed(path, ...))
    assert (error.code, f"{path} is missing" in error.message) == ("view-invalid", True)


@pytest.mark.parametrize("path", ["version-id", "timestamp-ms", "summary", "representations", "summary/operation"])
def test_what_a_version_must_have_is_missed(path: str) -> None:
    assert refusal(changed(f"versions/1/{path}", ...)).code == "view-invalid"


@pytest.mark.parametrize("path", ["type", "sql", "dialect"])
def test_what_a_representation_must_have_is_missed(path: str) -> None:
    assert refusal(changed(f"versions/1/representations/0/{path}", ...)).code == "view-invalid"


@pytest.mark.parametrize("path", ["timestamp-ms", "version-id"])
def test_what_an_entry_of_the_log_must_have_is_missed(path: str) -> None:
    assert refusal(changed(f"version-log/1/{path}", ...)).code == "view-invalid"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("current-version-id", 3, "current-version-id 3 is not in versions"),
        ("versions/1/version-id", 1, "twice"),
        ("versions/0/version-id", 0, "1 or more"),
        ("versions/0/summary/operation", "alter", "neither create nor replace"),
        ("versions/0/representations", [], "1 items or more"),
        ("versions", [], "1 items or more"),
        ("versions/0/representations/0/schema-id", 7, "schema-id 7 is not in schemas"),
        ("versions/0/schema-id", 7, "names schema-id 7"),
        ("versions/0/representations/0/sql", "", "1 characters or more"),
        ("current-schema-id", 7, "current-schema-id 7 is not in schemas"),
        ("schemas/1/schema-id", 1, "schema-id 1 is in schemas twice"),
        ("location", "", "1 characters or more"),
    ],
)
def test_what_does_not_fit_together_is_refused_and_said(path: str, value: object, said: str) -> None:
    error = refusal(changed(path, value))
    assert error.code == "view-invalid"
    assert said in error.message


def test_a_view_without_schemas_is_read() -> None:
    body = copy.deepcopy(example("created"))
    del body["schemas"], body["current-schema-id"], body["versions"][0]["representations"][0]["schema-id"]
    view = ViewMetadata.from_json(json.dumps(body).encode())
    assert view.schemas is None
    assert json.loads(view.to_json()) == body
