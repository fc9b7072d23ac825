"""Names of tables and namespaces, and the folders that they are."""

from __future__ import annotations

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import name_in_namespace, namespace_name, namespace_of, table_name
from rootline.schemas.object_keys import (
    MAX_VERSION,
    namespace_key,
    own_forms,
    table_in,
    table_prefix,
    version_of_namespace_key,
    version_of_root_key,
)

LONGEST = ".".join(["a" * 127, "b" * 127])


@pytest.mark.parametrize(
    ("text", "namespace", "name", "folder"),
    [
        ("a.t", "a", "t", "a/t/"),
        ("a.b.t", "a.b", "t", "a.b/t/"),
        ("a.b.c.d.t-1", "a.b.c.d", "t-1", "a.b.c.d/t-1/"),
        (f"{LONGEST}.t", LONGEST, "t", f"{LONGEST}/t/"),
    ],
)
def test_a_table_is_in_the_folder_of_its_whole_namespace(text: str, namespace: str, name: str, folder: str) -> None:
    table = table_name(text)
    assert (namespace_of(table), name_in_namespace(table)) == (namespace, name)
    assert (table_prefix(table), table_in(folder)) == (folder, table)
    assert namespace_name(namespace) == namespace
    assert own_forms(f"s3://lake/{folder}data/x.parquet", table)[1] == "data/x.parquet"


@pytest.mark.parametrize(
    "text",
    ["", "t", ".t", "a.", "a..t", "a.b.", "a b.t", "ä.t", "1a.t", "a.1", f"{LONGEST}bb.t", "a/b.t", "a.b\n", "."],
)
def test_what_is_no_name_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        table_name(text)
    assert caught.value.code == "table-name-invalid"
    assert "each part begins with a letter or _" in caught.value.message


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "a/b", "ä", "..", "1", "a" * 129, f"{LONGEST}b", ".namespace", "a\n"]
)
def test_what_is_no_namespace_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        namespace_name(text)
    assert caught.value.code == "namespace-invalid"
    assert "each part begins with a letter or _" in caught.value.message


def test_a_namespace_has_at_most_255_bytes() -> None:
    assert len(LONGEST) == 255
    assert namespace_name(LONGEST) == LONGEST


@pytest.mark.parametrize("folder", ["a/b.t/", "a/b/c/", "a/", "a.b/", "a/.namespace/", "a.b/.namespace/", "/t/", "a//"])
def test_other_folders_are_no_tables(folder: str) -> None:
    assert table_in(folder) is None


def test_a_namespaces_keys_sort_newest_first_and_are_no_roots() -> None:
    name = namespace_name("a.b")
    keys = [namespace_key(name, version) for version in (0, 1, 15, 16, 10**9, MAX_VERSION)]
    assert keys == sorted(keys, reverse=True)
    assert [version_of_namespace_key(key) for key in keys] == [0, 1, 15, 16, 10**9, MAX_VERSION]
    assert keys[0] == "a.b/.namespace/7fffffffffffffff-0.json"
    assert [version_of_root_key(key) for key in keys] == [None] * 6
    assert version_of_namespace_key("a/.namespace/7fffffffffffffff-1.json") is None
