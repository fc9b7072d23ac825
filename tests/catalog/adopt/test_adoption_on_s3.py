"""A table in one folder of a bucket is adopted by a warehouse in another: nothing is copied, everything is read."""

from __future__ import annotations

import pytest

from rootline.catalog.adoption_plan import plan_adoption
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.filter.pruning import PruningFilter
from tests.catalog.hand_written_table import HandWritten, rows
from tests.coordinator.running_service import TABLE, running
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.services


async def ids(store: ObjectStore, version: int) -> list[int]:
    root = await read_root(store, TABLE, Version(version))
    definition = await read_definition(store, root.header)
    plan = await plan_scan(store, root, definition, PruningFilter.of(None, definition))
    found = await scan_table(store, TABLE, plan.tasks(), RowsWanted.of(definition, None))
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
async def test_a_table_of_the_same_endpoint_is_adopted_and_changed(scheme: str, s3_service: S3Service) -> None:
    old, lake = s3_service.store(), s3_service.store()
    written: dict[str, bytes] = {}
    prefix = f"{scheme}://{s3_service.bucket}/{old._prefix}"
    table = HandWritten(f"{prefix}wh/flights", 3, written.__setitem__)
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "DL"))], 1)
    table.manifest("d1", [table.vector("v", "data/a.parquet", [0, 9])], 2)
    location = table.finish(2)
    for name, body in written.items():
        await old.put_if_absent(ObjectKey(name.removeprefix(prefix)), body)

    plan = await plan_adoption(lake, TABLE, location)
    await lake.put_if_absent(key_of(TABLE, plan.named.location), plan.body)
    adopt = Intent(
        intent_id="adopt",
        table=TABLE,
        kind=IntentKind.CREATE,
        definition=plan.definition.to_json().decode(),
        adopt=plan.named,
    )
    gone = RemovedFile(location=table.at("data/b.parquet"))
    remove = Intent(intent_id="remove", table=TABLE, kind=IntentKind.REMOVE, remove_files=(gone,))
    async with running(lake) as service:
        for number, intent in enumerate((adopt, remove)):
            [verdict] = await service.commit(intent)
            assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, number), verdict
        assert await ids(lake, 0) == [*range(1, 9), *range(10, 20)]
        assert await ids(lake, 1) == list(range(1, 9))
        assert [finding async for finding in check_table(lake, TABLE)] == []
    for store in (old, lake):
        await store.close()
