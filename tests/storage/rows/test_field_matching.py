"""Which column of a file is which column of the table."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import LongType, NestedField

from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY
from rootline.storage.rows.arrow_types import FIELD_ID_KEY
from rootline.storage.rows.row_projection import finder_for


def wanted(field_id: int, name: str = "renamed") -> NestedField:
    return NestedField(field_id, name, LongType(), required=False)


def test_ids_decide_where_there_are_any_and_the_first_of_two_wins() -> None:
    fields = [pa.field(name, pa.int64(), metadata={FIELD_ID_KEY: name[1:]}) for name in ("c7", "c8", "c7")]
    place_of = finder_for(pa.schema(fields), {})(fields)
    assert [place_of(wanted(at, "c8")) for at in (7, 8, 9)] == [0, 1, None]


def test_without_ids_names_decide() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    place_of = finder_for(schema, {})(list(schema))
    assert [place_of(wanted(1, name)) for name in ("b", "a", "c")] == [1, 0, None]


def test_without_ids_the_tables_name_mapping_decides_and_the_first_known_name_in_the_file_wins() -> None:
    schema = pa.schema([("other", pa.int64()), ("newer", pa.int64()), ("older", pa.int64())])
    mapping = '[{"field-id": 1, "names": ["older", "newer"]}, {"field-id": 2, "names": ["gone"]}]'
    place_of = finder_for(schema, {NAME_MAPPING_PROPERTY: mapping})(list(schema))
    assert [place_of(wanted(at)) for at in (1, 2, 3)] == [1, None, None]


def test_a_wide_tables_columns_are_each_looked_at_once() -> None:
    class CountedFields(list[pa.Field]):
        looks = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            self.looks += 1
            return super().__iter__()

    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(1_000)])
    fields = CountedFields(schema)
    place_of = finder_for(schema, {})(fields)
    assert [place_of(wanted(at, f"c{at}")) for at in range(1_000)] == list(range(1_000))
    assert fields.looks == 1
