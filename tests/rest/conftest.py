"""A catalog that writes, shared by the tests of a module, and a new table in it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rest.hand_made import HandMade
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, writing_catalog


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WritingCatalog]:
    with writing_catalog(tmp_path_factory.mktemp("rest") / "lake") as found:
        yield found


@pytest.fixture
def table(catalog: WritingCatalog, request: pytest.FixtureRequest) -> str:
    """A new table, named after the test."""
    name = f"t{abs(hash(request.node.name))}"
    assert catalog.create("demo", name=name, schema=SCHEMA, properties={"owner": "me"}).status_code == 200
    return f"demo.{name}"


@pytest.fixture
def client(catalog: WritingCatalog, table: str) -> HandMade:
    """A client of an empty table."""
    return HandMade(catalog, table)
