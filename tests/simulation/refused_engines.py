"""Simulated engines whose lists this catalog must not take for appends: of a stale parent, or without a file.

Owns: how their lists differ from an append's. Does not own: what they retry and delete (`engines.Java`).
Invariants: whatever becomes of a list, it adds no files but the engine's own, and removes those that it states.

Source: iceberg-go before its issue 976; Iceberg's `MergingSnapshotProducer`, whose sources a worker rewrote meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from typing_extensions import override

from tests.simulation.engine_files import live_files, manifest_without
from tests.simulation.engines import Append, Heard, Java, Metadata


class StaleLists(Java):
    """A client that makes its list on the snapshot that it saw first, and requires the one that it saw last."""

    retries: ClassVar[int] = 3

    @override
    async def _commit(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        self.rows = await Java._below(self, append, metadata)
        await asyncio.sleep(self.rng.expovariate(1 / 0.5))
        return await Java._commit(self, append, await self._refreshed(append), files)

    @override
    async def _below(self, append: Append, metadata: Metadata) -> list[dict[str, Any]]:
        return self.rows if append.table == self.table else await Java._below(self, append, metadata)


class Overwriting(Java):
    """A client that replaces a file by its own ones. Half of its lists only add those, as if the file was gone."""

    retries: ClassVar[int] = 3

    @override
    async def _commit(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        append.words = {"operation": "overwrite", "deleted-data-files": "1"}
        append.removes = ("a file that was rewritten meanwhile",)
        self.is_honest = self.rng.random() < 0.5
        return await Java._commit(self, append, metadata, files)

    @override
    async def _below(self, append: Append, metadata: Metadata) -> list[dict[str, Any]]:
        rows = await Java._below(self, append, metadata)
        if not append.removes or not self.is_honest:
            return rows
        data = [row for row in rows if row["content"] == 0 and row["added_files_count"] + row["existing_files_count"]]
        if not data:
            return rows
        row = self.rng.choice(data)
        body = await self._read(row["manifest_path"])
        location = self.rng.choice(live_files(body))
        append.removes = (location.removeprefix(append.absolute("")),)
        made = manifest_without(metadata, row, body, location, append.snapshot_id)
        name = f"rest/metadata/{self._uuid()}-m{len(append.metadata)}.avro"
        await self._write(append, name, made)
        rewritten = {**row, "manifest_path": append.absolute(name), "manifest_length": len(made)}
        return [rewritten if each is row else each for each in rows]
