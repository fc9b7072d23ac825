"""Exports of tables whose older versions have expired."""

from __future__ import annotations

import json

import pytest

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import TableExporter
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import root_key
from tests.workers.test_expiry_job import Lake, told


@pytest.mark.parametrize("format_version", FormatVersion)
def test_an_export_names_what_can_be_read_and_needs_no_root_that_is_gone(format_version: FormatVersion) -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        before = json.loads((await TableExporter(lake.store, "memory://").export(lake.table, format_version)).metadata)
        await lake.tag("release", 3)
        await lake.append(10)
        await lake.job(now=True).run(lake.table)
        header = await lake.header()
        assert await lake.store.get(root_key(lake.table, Version(5))) is None
        exporter = TableExporter(lake.store, "memory://")
        found = json.loads((await exporter.export(lake.table, format_version)).metadata)
        versions = [int(item["summary"]["rootline.version"]) for item in found["snapshots"]]
        assert versions == [3, *range(versions[1], header.version)], "the expiry changed no row"
        assert versions[1] >= header.versions.oldest
        of_before = {item["snapshot-id"]: item for item in before["snapshots"]}
        for item in found["snapshots"]:
            known = of_before.get(item["snapshot-id"], item)
            assert known.get("first-row-id") == item.get("first-row-id")
            assert known.get("added-rows") == item.get("added-rows")
        with pytest.raises(Invalid, match="has expired"):
            await TableExporter(lake.store, "memory://").export(lake.table, format_version, Version(5))
        tagged = json.loads((await exporter.export(lake.table, format_version, Version(3))).metadata)
        assert [int(item["summary"]["rootline.version"]) for item in tagged["snapshots"]] == [3]
        await exporter.close()

    told(story, Lake(dated=False))
