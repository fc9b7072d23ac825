"""The UUID of a staged table, which belongs to one table of one name."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rootline.rest.table_changes import bound_uuid
from rootline.schemas.identifiers import TableName
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, problem

CREATE = [{"type": "assert-create"}]


def updates_of(table_uuid: str) -> list[dict[str, Any]]:
    """The updates that create a table with this UUID."""
    added = {"action": "add-schema", "schema": SCHEMA}
    return [{"action": "assign-uuid", "uuid": table_uuid}, added, {"action": "set-current-schema", "schema-id": -1}]


def staged(catalog: WritingCatalog, name: str) -> str:
    """The UUID of a table that was staged now."""
    answer = catalog.create("demo", name=name, schema=SCHEMA, **{"stage-create": True})
    return str(answer.json()["metadata"]["table-uuid"])


def test_a_staged_uuid_is_taken_by_its_own_name_only(catalog: WritingCatalog) -> None:
    one = staged(catalog, "first")
    status, message = problem(catalog.commit("demo.second", updates_of(one), CREATE))
    assert status == 400
    assert f"assign-uuid {one}: no catalog of this lake gave it to demo.second" in message
    created = catalog.commit("demo.first", updates_of(one.upper()), CREATE)
    assert created.json()["metadata"]["table-uuid"] == one
    assert "demo.second" not in catalog.lake.list_tables()


def test_a_uuid_that_no_catalog_gave_is_refused(catalog: WritingCatalog) -> None:
    taken = catalog.create("demo", name="taken", schema=SCHEMA).json()["metadata"]["table-uuid"]
    for made_up in (taken, str(uuid.uuid4())):
        assert problem(catalog.commit("demo.other", updates_of(made_up), CREATE))[0] == 400
    assert catalog.commit("demo.other", updates_of(taken)[1:], CREATE).status_code == 200


def test_the_uuid_of_a_dropped_table_is_refused_and_is_no_missing_table(catalog: WritingCatalog) -> None:
    one = staged(catalog, "dropped")
    assert catalog.commit("demo.dropped", updates_of(one), CREATE).status_code == 200
    catalog.lake.drop_table("demo.dropped")
    answer = catalog.commit("demo.dropped", updates_of(one), CREATE)
    status, message = problem(answer)
    assert (status, answer.json()["error"]["type"]) == (400, "BadRequestException")
    assert "create the new table with another uuid" in message
    assert catalog.commit("demo.dropped", updates_of(staged(catalog, "dropped")), CREATE).status_code == 200


@given(drawn=st.uuids())
def test_a_uuid_is_bound_to_one_name(drawn: uuid.UUID) -> None:
    first, second = TableName("a.b"), TableName("a.c")
    bound = bound_uuid(drawn, first)
    assert bound_uuid(bound, first) == bound
    assert bound_uuid(bound, second) != bound
    assert (bound.version, bound.variant) == (4, uuid.RFC_4122)
