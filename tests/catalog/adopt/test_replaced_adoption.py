"""A table that was adopted is replaced: all that the old manifests hold leaves, and comes back."""

from __future__ import annotations

import pytest

from rootline.client.lake import Lake
from rootline.workers.kinds import COMPACT, FLUSH
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopt.test_adoption import written_in
from tests.catalog.adopted_lake import NAME, findings, maintained
from tests.catalog.iceberg_tables import rows_of


@pytest.mark.parametrize("version", [1, 2])
def test_an_adopted_table_is_emptied_filled_and_brought_back(lake: Lake, once: Once, version: int) -> None:
    table, model = once(written_in(version))
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    before = rows_of(flights.scan().to_arrow())
    assert before == model
    flights.replace({"id": [1], "gate": ["A"]}, schema={"id": "long", "gate": "string not null"}, partition_by=[])
    assert flights.scan().to_arrow().to_pylist() == [{"id": 1, "gate": "A"}]
    assert findings(lake) == []
    maintained(lake, FLUSH)
    assert flights.scan().to_arrow().to_pylist() == [{"id": 1, "gate": "A"}]
    flights.restore(version=0)
    assert rows_of(flights.scan().to_arrow()) == model
    assert findings(lake) == []
    flights.replace()
    assert flights.scan().to_arrow().num_rows == 0
    maintained(lake, COMPACT)
    assert findings(lake) == []
