"""Vectors converted for an export: position delete files in V2, copies with absolute names and gaps in V3."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from rootline.catalog.converted_deletes import encode_position_deletes
from rootline.catalog.export_keys import FormatVersion
from rootline.schemas.bytes.vector_codec import VectorBlob, decode_puffin, encode_puffin, spread_puffin
from rootline.schemas.content_entry import DeletionVector, FileFormat
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from tests.catalog.converting import (
    FORMATS,
    V2,
    V3,
    absolute,
    body_of,
    converter,
    deleted_rows,
    stored_names,
)
from tests.storage.stored_deletes import at
from tests.storage.stored_tables import TABLE, StoredTable, flights, flights_definition


@pytest.fixture
def table() -> StoredTable:
    """One data file of partition UA, whose rows 0 and 1 a vector deletes."""
    table = StoredTable(flights_definition("carrier"))
    (data,) = table.write(flights(*range(0, 20, 2)))
    table.entries = [at(data, 1), at(table.vector(at(data, 1), [0, 1]), 3)]
    table.commit()
    return table


async def test_v2_makes_a_position_delete_file_of_each_vector_and_keeps_its_numbers_and_partition() -> None:
    table = StoredTable(flights_definition("carrier"))
    files = [at(entry, 2) for entry in table.write(flights(*range(20)))]
    vectors = [at(table.vector(file, [n, 9]), 3 + n) for n, file in enumerate(files)]
    found = await converter(table, V2).vectors([files[0], *vectors])
    assert found[0] is files[0]
    for entry, vector, rows in zip(found[1:], vectors, ([0, 9], [1, 9]), strict=True):
        assert await deleted_rows(table, entry) == rows
        assert (
            replace(
                entry,
                location=vector.location,
                file_format=FileFormat.PUFFIN,
                file_size_in_bytes=vector.file_size_in_bytes,
                deletion_vector=vector.deletion_vector,
            )
            == vector
        )
        assert (entry.file_format, entry.deletion_vector, len(entry.content_stats)) == (FileFormat.PARQUET, None, 1)


async def test_a_position_delete_file_is_as_the_specification_says(table: StoredTable) -> None:
    [entry] = await converter(table, V2).vectors([table.entries[1]])
    file = pq.ParquetFile(pa.BufferReader(await body_of(table, entry)))
    columns = [file.schema.column(at) for at in range(2)]
    assert [(column.name, column.max_definition_level) for column in columns] == [("file_path", 0), ("pos", 0)]
    ids = [field.metadata[b"PARQUET:field_id"] for field in file.schema_arrow]
    assert ids == [b"2147483546", b"2147483545"]
    statistics = file.metadata.row_group(0).column(0).statistics
    assert statistics.min == statistics.max == absolute(table.entries[0].location)
    assert file.read().to_pydict() == {"file_path": [absolute(table.entries[0].location)] * 2, "pos": [0, 1]}


def test_position_delete_files_of_many_rows_stay_sorted_across_row_groups() -> None:
    rows = BitMap64(random.Random(6).sample(range(2**40), 5_000))
    rows |= BitMap64(range(2**41, 2**41 + 1_100_000))
    body = encode_position_deletes("s3://b/" + "long" * 300, rows)
    assert pq.read_schema(pa.BufferReader(body)).field("file_path").type == pa.string()
    file = pq.ParquetFile(pa.BufferReader(body), read_dictionary=["file_path"])
    assert file.metadata.num_row_groups == 2
    found = file.read()
    assert found.column("pos").to_pylist() == list(rows)
    paths = {path for chunk in found.column("file_path").chunks for path in chunk.dictionary.to_pylist()}
    assert paths == {"s3://b/" + "long" * 300}
    assert file.metadata.row_group(1).column(0).statistics.max == "s3://b/" + "long" * 300


async def test_v3_copies_a_whole_puffin_file_once_with_absolute_names_and_gaps() -> None:
    table = StoredTable(flights_definition())
    [one], [other] = table.write(flights(*range(10))), table.write(flights(*range(10)))
    puffin = encode_puffin([VectorBlob(one.location, BitMap64([1])), VectorBlob(other.location, BitMap64([2, 3]))])
    location = "metadata/vectors/both.puffin"
    table.store.place(key_of(TABLE, location), puffin.body)
    vectors = [
        replace(
            table.vector(file, rows),
            location=location,
            file_size_in_bytes=len(puffin.body),
            deletion_vector=replace(
                table.vector(file, rows).deletion_vector, offset=place.offset, size_in_bytes=place.size
            ),
        )
        for file, rows, place in zip((one, other), ([1], [2, 3]), puffin.places, strict=True)
    ]
    found = await converter(table, V3).vectors(vectors)
    assert len({entry.location for entry in found}) == len(await stored_names(table, V3)) == 1
    body = await body_of(table, found[0])
    blobs = decode_puffin(body, name=found[0].location)
    assert [(blob.referenced_data_file, list(blob.vector)) for blob in blobs] == [
        (absolute(one.location), [1]),
        (absolute(other.location), [2, 3]),
    ]
    assert [await deleted_rows(table, entry) for entry in found] == [[1], [2, 3]]
    first, second = (entry.deletion_vector for entry in found)
    assert first == vectors[0].deletion_vector
    assert second is not None
    assert (second.offset or 0) > puffin.places[1].offset
    assert [blob.place.offset for blob in blobs] == [4, second.offset]


async def test_v3_leaves_the_first_vector_of_an_adopted_file_where_it_is_and_copies_the_others(
    table: StoredTable,
) -> None:
    names = ["s3://old/data/x.parquet", "s3://old/data/y.parquet"]
    puffin = encode_puffin([VectorBlob(name, BitMap64([at])) for at, name in enumerate(names)])
    table.store.place(ObjectKey("s3://old/data/v.puffin"), puffin.body)
    first, second = (
        replace(
            table.entries[1],
            location="s3://old/data/v.puffin",
            referenced_file=name,
            record_count=1,
            file_size_in_bytes=len(puffin.body),
            deletion_vector=DeletionVector(place.offset, place.size),
        )
        for name, place in zip(names, puffin.places, strict=True)
    )
    own = replace(table.entries[1], referenced_file=names[0])
    found = await converter(table, V3).vectors([first, second, own])
    assert [found[0], found[2]] == [first, own]
    assert await deleted_rows(table, found[1]) == [1]
    blobs = decode_puffin(await body_of(table, found[1]), name=found[1].location)
    assert [blob.referenced_data_file for blob in blobs] == names


async def test_names_of_an_adopted_table_stay_even_if_its_old_folder_is_called_like_ours(table: StoredTable) -> None:
    other, old = (f"file:///old/wh/test/rows/data/{name}.parquet" for name in "ax")
    puffin = encode_puffin([VectorBlob(other, BitMap64([5])), VectorBlob(old, BitMap64([7]))])
    table.store.place(ObjectKey("file:///old/wh/test/rows/data/v.puffin"), puffin.body)
    vector = replace(
        table.entries[1],
        location="file:///old/wh/test/rows/data/v.puffin",
        referenced_file=old,
        record_count=1,
        file_size_in_bytes=len(puffin.body),
        deletion_vector=DeletionVector(puffin.places[1].offset, puffin.places[1].size),
    )
    [entry] = await converter(table, V3).vectors([vector])
    blobs = decode_puffin(await body_of(table, entry), name=entry.location)
    assert [blob.referenced_data_file for blob in blobs] == [other, old]


async def test_names_by_an_url_of_the_table_itself_become_those_that_engines_see(table: StoredTable) -> None:
    vector = table.entries[1]
    body = await body_of(table, vector)
    resized = spread_puffin(body, "file:///elsewhere/test/rows/{}".format, name="v.puffin")
    table.store.place(key_of(TABLE, vector.location), resized)
    [entry] = await converter(table, V3).vectors([replace(vector, file_size_in_bytes=len(resized))])
    [blob] = decode_puffin(await body_of(table, entry), name=entry.location)
    assert blob.referenced_data_file == absolute(table.entries[0].location)


@FORMATS
async def test_a_damaged_vector_is_never_converted(table: StoredTable, format_version: FormatVersion) -> None:
    vector = table.entries[1]
    body = bytearray(await body_of(table, vector))
    body[12] ^= 1
    table.store.place(key_of(TABLE, vector.location), bytes(body))
    with pytest.raises(Corrupt, match="CRC"):
        await converter(table, format_version).vectors([vector])
    assert await stored_names(table, format_version) == []
