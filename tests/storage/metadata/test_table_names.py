"""Which tables there are is found by their folders, whatever else lies beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import list_names, names_of_folders

TABLE = TableName("demo.flights")


@pytest.mark.parametrize("odd", ["a\u200cb", "a\\\\b", "a\nb", "x" * 255, "with.dots", "-"])
async def test_folders_that_no_name_can_have_are_passed_over(tmp_path: Path, odd: str) -> None:
    for folder in (tmp_path / odd / "t", tmp_path / "demo" / odd / "data"):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"of other software")
    store = LocalObjectStore(tmp_path)
    await store.put_if_absent(ObjectKey(root_key(TABLE, Version(0))), b"a root")
    assert await list_names(store) == [TABLE]
    assert TABLE in await names_of_folders(store)
    await store.close()
