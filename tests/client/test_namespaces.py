"""Namespaces of a lake: created, listed, changed, dropped; with tables in them and without."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from rootline import Lake, connect
from rootline.schemas.errors import Invalid

SCHEMA = pa.schema([("id", pa.int64())])


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Invalid) as caught:
        call()
    return caught.value.code


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return connect(tmp_path / "lake")


def test_a_namespace_is_created_described_and_listed(lake: Lake) -> None:
    with lake:
        lake.create_namespace("sales", {"owner": "me"})
        lake.create_namespace("sales.eu.north")
        assert lake.namespaces() == ["sales", "sales.eu.north"]
        assert lake.namespace_properties("sales") == {"owner": "me"}
        assert lake.namespace_properties("sales.eu.north") == {}
        assert code_of(lambda: lake.namespace_properties("sales.eu")) == "namespace-unknown"


def test_a_namespace_is_created_once(lake: Lake) -> None:
    with lake:
        lake.create_namespace("sales", {"owner": "me"})
        assert code_of(lambda: lake.create_namespace("sales")) == "namespace-exists"
        lake.create_namespace("sales", {"owner": "you"}, if_not_exists=True)
        assert lake.namespace_properties("sales") == {"owner": "me"}


def test_a_table_makes_its_namespace_exist_and_its_properties_can_be_set(lake: Lake) -> None:
    with lake:
        lake.create_table("eu.north.t", SCHEMA)
        lake.create_table("eu.t", SCHEMA)
        assert lake.namespaces() == ["eu", "eu.north"]
        assert lake.list_tables() == ["eu.north.t", "eu.t"]
        assert lake.namespace_properties("eu.north") == {}
        assert code_of(lambda: lake.create_namespace("eu.north")) == "namespace-exists"
        lake.set_namespace_properties("eu.north", {"a": "1", "b": "2"})
        lake.set_namespace_properties("eu.north", {"b": "3"})
        lake.remove_namespace_properties("eu.north", ["a", "absent"])
        assert lake.namespace_properties("eu.north") == {"b": "3"}
        assert lake.namespaces() == ["eu", "eu.north"]


def test_a_table_in_a_namespace_of_several_levels_is_like_any_other(lake: Lake, tmp_path: Path) -> None:
    with lake:
        table = lake.create_table("a.b.c.t", SCHEMA)
        table.append({"id": [1, 2]})
        table.delete_where("id = 1")
        assert lake.table("a.b.c.t").scan().to_arrow().to_pydict() == {"id": [2]}
        assert list(table.check()) == []
        assert "/a.b.c/t/" in table.export().metadata_location
    assert sorted(path.name for path in (tmp_path / "lake").iterdir() if not path.name.startswith(".")) == ["a.b.c"]


def test_a_namespace_is_dropped_only_when_it_is_empty(lake: Lake) -> None:
    with lake:
        lake.create_namespace("eu", {"a": "1"})
        lake.create_table("eu.t", SCHEMA)
        assert code_of(lambda: lake.drop_namespace("eu")) == "namespace-not-empty"
        assert lake.namespace_properties("eu") == {"a": "1"}
        lake.create_namespace("us")
        lake.create_namespace("us.west")
        assert code_of(lambda: lake.drop_namespace("us")) == "namespace-not-empty"
        lake.drop_namespace("us.west")
        lake.drop_namespace("us")
        assert lake.namespaces() == ["eu"]
        for call in (
            lambda: lake.drop_namespace("us"),
            lambda: lake.namespace_properties("us"),
            lambda: lake.set_namespace_properties("us", {"a": "1"}),
            lambda: lake.remove_namespace_properties("us", ["a"]),
        ):
            assert code_of(call) == "namespace-unknown"
        lake.create_namespace("us", {"b": "2"})
        assert lake.namespace_properties("us") == {"b": "2"}


@pytest.mark.parametrize("name", ["", "a.", "a b", "..", "a/b", "x" * 256])
def test_a_name_that_is_none_is_refused_before_anything_is_looked_at(lake: Lake, name: str) -> None:
    with lake:
        assert code_of(lambda: lake.create_namespace(name)) == "namespace-invalid"
        assert code_of(lambda: lake.namespace_properties(name)) == "namespace-invalid"


def test_threads_that_change_different_properties_all_succeed(lake: Lake) -> None:
    with lake, ThreadPoolExecutor(32) as threads:
        lake.create_namespace("eu")
        list(threads.map(lambda at: lake.set_namespace_properties("eu", {f"k{at}": "v"}), range(32)))
        assert sorted(lake.namespace_properties("eu")) == sorted(f"k{at}" for at in range(32))
