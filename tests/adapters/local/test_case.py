"""Names that differ only in case, on file systems that cannot tell them apart."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.adapters.local_object_store import LocalObjectStore, is_case_sensitive
from rootline.client.create_drop import build_definition, create_table
from rootline.client.session import WriterStamp
from rootline.ports.object_store import PutStatus
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey, TableName


def cannot(_: Path) -> bool:
    """A file system of the other kind."""
    return False


def key(table: str) -> ObjectKey:
    return ObjectKey(f"{table.replace('.', '/')}/metadata/roots/999-0.avro")


@pytest.mark.parametrize("table", ["a.B", "A.b", "A.other"])
async def test_a_name_that_differs_only_in_case_is_refused_where_it_would_be_the_same_folder(
    tmp_path: Path, table: str
) -> None:
    store = LocalObjectStore(tmp_path, case_probe=cannot)
    assert (await store.put_if_absent(key("a.b"), b"root")).answer is PutStatus.CREATED

    with pytest.raises(Invalid, match="this file system cannot tell") as put:
        await store.put_if_absent(key(table), b"root")
    with pytest.raises(Invalid) as listed:
        await store.list(f"{table.replace('.', '/')}/metadata/roots/", limit=1)

    assert put.value.code == listed.value.code == "name-differs-in-case"
    assert list((await store.list("")).keys) == [key("a.b")]
    await store.close()


async def test_other_names_and_the_same_name_are_as_before(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path, case_probe=cannot)
    for table in ("a.b", "a.c", "d.B"):
        assert (await store.put_if_absent(key(table), b"root")).answer is PutStatus.CREATED
        assert (await store.put_if_absent(key(table), b"root")).answer is PutStatus.EXISTS
        assert (await store.list(f"{table.replace('.', '/')}/")).keys == (key(table),)
    await store.close()


async def test_both_names_are_tables_where_the_file_system_tells_them_apart(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path, case_probe=lambda _: True)
    for table in ("a.b", "a.B", "A.b"):
        assert (await store.put_if_absent(key(table), b"root")).answer is PutStatus.CREATED
    await store.close()


async def test_creating_such_a_table_is_refused_before_an_intent_is_published(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path, case_probe=cannot)
    await store.put_if_absent(key("a.b"), b"root")
    session, stamp = _Unpublished(store), WriterStamp()
    definition = build_definition(pa.schema([("id", pa.int64())]), table_uuid=uuid.UUID(int=1))

    with pytest.raises(Invalid) as refusal:
        await create_table(session, stamp, TableName("a.B"), definition, timeout_s=1)  # type: ignore[arg-type]

    assert refusal.value.code == "name-differs-in-case"
    await store.close()


class _Unpublished:
    """A session of which nothing but the store may be used."""

    def __init__(self, store: LocalObjectStore) -> None:
        self.store = store


def test_the_probe_looks_at_names_that_are_there_and_changes_nothing(tmp_path: Path) -> None:
    assert is_case_sensitive(tmp_path / "nowhere") is None
    (tmp_path / "123").touch()
    assert is_case_sensitive(tmp_path) is None
    (tmp_path / ".rootline").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    here = is_case_sensitive(tmp_path)
    assert here is not (tmp_path / ".ROOTLINE").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_probe_knows_a_file_system_that_ignores_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "name").touch()
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: exists(path.with_name(path.name.lower())))
    assert is_case_sensitive(tmp_path) is False
