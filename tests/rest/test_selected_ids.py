"""Clients may select an added schema, spec or order by the id that they gave to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rest.writing_catalog import writing_catalog

ID = {"id": 1, "name": "id", "type": "long", "required": True}


def test_an_added_part_is_selected_by_the_id_that_its_client_gave(tmp_path: Path) -> None:
    with writing_catalog(tmp_path / "lake") as catalog:
        catalog.create("demo", name="t", schema={"type": "struct", "fields": [ID]})
        wider: dict[str, Any] = {"schema-id": 9, "type": "struct", "fields": [{**ID, "name": "key"}]}
        by_key = {"fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
        order = {"fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}]}
        added = [
            {"action": "add-schema", "schema": wider},
            {"action": "set-current-schema", "schema-id": 9},
            {"action": "add-spec", "spec": {**by_key, "spec-id": 7}},
            {"action": "set-default-spec", "spec-id": 7},
            {"action": "add-sort-order", "sort-order": {**order, "order-id": 5}},
            {"action": "set-default-sort-order", "sort-order-id": 5},
        ]
        first = {"type": "assert-current-schema-id", "current-schema-id": 0}
        metadata = catalog.commit("demo.t", added, [first]).json()["metadata"]
        assert [metadata[each] for each in ("current-schema-id", "default-spec-id", "default-sort-order-id")] == [
            1,
            1,
            1,
        ]
        renamed = {**wider, "schema-id": 1, "fields": [{**wider["fields"][0], "name": "k"}]}
        taken = [{"action": "add-schema", "schema": renamed}, {"action": "set-current-schema", "schema-id": 1}]
        second = {"type": "assert-current-schema-id", "current-schema-id": 1}
        assert catalog.commit("demo.t", taken, [second]).json()["metadata"]["current-schema-id"] == 1
