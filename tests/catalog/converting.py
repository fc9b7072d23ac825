"""Converters of a table in a memory store, and what their results say to our own readers.

Owns: the base that engines see. Does not own: tables (`tests.storage`), what is right (the tests).
Invariants: an entry is read by its own numbers, and its file is as long as it says.
"""

from __future__ import annotations

from typing import Any

import pytest

from rootline.catalog.converted_deletes import ConvertedDeletes
from rootline.catalog.export_keys import FormatVersion, KnownDeletes, listed_prefix
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.object_reader import vector_in
from rootline.storage.rows.row_deletes import read_positions
from tests.storage.stored_tables import TABLE, StoredTable

V2, V3 = FormatVersion.V2, FormatVersion.V3
BASE = "s3://bucket/wh/test/rows/"
FORMATS = pytest.mark.parametrize("format_version", [V2, V3])


def absolute(location: str) -> str:
    return BASE + location


def converter(
    table: StoredTable, format_version: FormatVersion, known: KnownDeletes | None = None, store: Any = None
) -> ConvertedDeletes:
    return ConvertedDeletes(
        table.store if store is None else store,
        TABLE,
        table.definition,
        format_version,
        absolute,
        KnownDeletes(format_version) if known is None else known,
    )


async def stored_names(table: StoredTable, format_version: FormatVersion) -> list[str]:
    keys = (await table.store.list(listed_prefix(TABLE, format_version))).keys
    return [key.rpartition("/")[2] for key in keys]


async def body_of(table: StoredTable, entry: ContentEntry) -> bytes:
    found = await table.store.get(key_of(TABLE, entry.location))
    assert found is not None
    return found.body


async def deleted_rows(table: StoredTable, entry: ContentEntry) -> list[int]:
    """Of the one data file that a converted delete is of, as our readers read it."""
    body = await body_of(table, entry)
    assert len(body) == entry.file_size_in_bytes
    if entry.deletion_vector is not None:
        return list(vector_in(body, entry))
    found = read_positions(body, entry)
    assert list(found) == [absolute(entry.referenced_file or "")]
    return list(found[absolute(entry.referenced_file or "")])


class NoStore:
    """Fails the test that asks it."""

    async def get(self, key: ObjectKey) -> None:
        raise AssertionError(f"{key} was read")

    async def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        raise AssertionError(f"{key} was written")
