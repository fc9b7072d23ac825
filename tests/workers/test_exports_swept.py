"""Exports that no one needs are swept; those that engines may be reading, or exporters go on from, never are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rootline.catalog.export_keys import ENCODINGS, ExportFolder, FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.catalog.retained_exports import ExportReader
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.object_keys import OwnKind, key_of, own_kind, table_prefix
from rootline.workers.jobs.job import JobReport
from tests.workers.sweep_world import SweepWorld, tell
from tests.workers.test_sweep_job import of_kinds

BASE = "memory://lake"
SNAPSHOTS = {"rootline.export.snapshots": "1"}


async def export(
    world: SweepWorld, version: int | None = None, *, by: TableExporter | None = None, form: int = 3
) -> ExportedTable:
    exporter = by or TableExporter(world.store, BASE)
    return await exporter.export(world.table, FormatVersion(form), None if version is None else Version(version))


async def exports(world: SweepWorld) -> list[str]:
    return sorted(name for name in await world.keys() if name.startswith("export/"))


async def versions_exported(world: SweepWorld) -> list[int]:
    found = [name for name in await exports(world) if name.endswith(".metadata.json")]
    return sorted(int(name.split("-")[-1].partition(".")[0]) for name in found)


async def assert_whole(world: SweepWorld, exported: ExportedTable) -> None:
    """All that an engine would read of it is there, its data files as well."""
    location = exported.metadata_location.removeprefix(f"{BASE}/{table_prefix(world.table)}")
    reader = ExportReader(world.store, world.table)
    found = await reader.metadata(location)
    assert found is not None, f"{location} is gone"
    async for names in reader.names(found):
        for name in names:
            key = key_of(world.table, name)
            assert await world.store.get(key) is not None, f"{key} is gone"


async def give_up_all_but_the_head(world: SweepWorld) -> None:
    head = (await world.head()).header.version
    await world.expire(head)
    world.forget_roots(head)


async def sweep_until_quiet(world: SweepWorld) -> list[JobReport]:
    """Sweeps a little more than a retention apart, until one finds nothing."""
    found = []
    for _ in range(6):
        found.append(await world.sweep())
        await world.later(1.1)
    return found


def test_an_export_of_an_expired_version_goes_with_its_list_and_its_own_manifests() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        old = await export(world)
        await world.append("b")
        await give_up_all_but_the_head(world)
        new = await export(world)
        assert len(await versions_exported(world)) == 2
        await world.later(1.1)
        report = await world.sweep()
        assert of_kinds(report.condemned)["export-metadata"] == 1
        assert len(await versions_exported(world)) == 2, "condemned, and not yet deleted"
        await assert_whole(world, old)
        await world.later(1.1)
        removed = [of_kinds((await world.sweep()).removed) for _ in range(2)]
        assert "export-metadata" in removed[0]
        assert "export-list" not in removed[0], "what a metadata.json names goes after it"
        assert "export-list" in removed[1]
        assert await versions_exported(world) == [new.version]
        await assert_whole(world, new)

    tell(story, **SNAPSHOTS)


def test_exports_of_versions_that_can_be_read_stay_and_so_do_those_of_tags() -> None:
    async def story(world: SweepWorld) -> None:
        tagged = await world.append("a")
        await world.tag("keep", tagged)
        await world.append("b")
        kept = [await export(world, tagged), await export(world)]
        await world.append("c")
        head = (await world.head()).header.version
        await world.expire(head - 1, tagged)
        kept.append(await export(world))
        await sweep_until_quiet(world)
        for each in kept:
            if each.version == tagged or each.version >= head - 1:
                await assert_whole(world, each)
        assert tagged in await versions_exported(world)

    tell(story)


def test_the_newest_export_stays_whole_with_its_data_files_even_if_its_version_expired() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        exported = await export(world)
        await world.remove("a")
        await world.append("b")
        await give_up_all_but_the_head(world)
        await world.later(9)
        await sweep_until_quiet(world)
        await assert_whole(world, exported)
        assert await world.has("a")
        await export(world)  # a newer one: nothing needs the old one any more
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert not await world.has("a")
        assert exported.version not in await versions_exported(world)
        assert await world.has("b")

    tell(story, **SNAPSHOTS)


def test_what_a_metadata_log_names_stays_alone_until_the_export_that_names_it_goes() -> None:
    async def story(world: SweepWorld) -> None:
        for name in ("a", "b", "c"):
            await world.append(name)
        logged = (await world.head()).header.version
        await world.alter(owner="us")
        await world.append("d")
        exported = await export(world)
        assert await versions_exported(world) == [logged, exported.version]
        lists = [name for name in await exports(world) if "/lists/" in name]
        await give_up_all_but_the_head(world)
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert await versions_exported(world) == [logged, exported.version], "the newer can still be read"
        await assert_whole(world, exported)
        gone = set(lists) - set(await exports(world))
        assert [name.partition("/lists/")[2].split("-")[1] for name in gone] == ["1"], "only the log's version names it"
        await world.append("e")
        await give_up_all_but_the_head(world)
        newest = await export(world)
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert await versions_exported(world) == [newest.version]

    tell(story, **{"rootline.export.snapshots": "3"})


def test_what_an_older_release_exported_stays_while_its_version_can_be_read_and_then_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_before(warehouse: str, table: TableName, form: FormatVersion) -> ExportFolder:
        return replace(folder_of(warehouse, table, form), encoding=ENCODINGS[-1])

    folder_of = ExportFolder.of

    async def story(world: SweepWorld) -> None:
        await world.append("a")
        with monkeypatch.context() as patched:
            patched.setattr(ExportFolder, "of", of_before)
            old = await export(world)
        await world.append("b")
        new = await export(world)
        assert old.metadata_location.rpartition("/")[0] != new.metadata_location.rpartition("/")[0]
        await world.later(1.1)
        await sweep_until_quiet(world)
        await assert_whole(world, old)
        await world.assert_sound()
        await give_up_all_but_the_head(world)
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert await versions_exported(world) == [new.version], "no exporter continues from it"
        await assert_whole(world, new)

    tell(story, **SNAPSHOTS)


def test_a_young_export_is_needed_whatever_it_is_of() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.later(3)
        late = await export(world)
        await world.append("b")
        await give_up_all_but_the_head(world)
        await export(world)
        for _ in range(3):
            await world.sweep()
        assert of_kinds((await world.sweep()).condemned).get("export-metadata", 0) == 0
        await assert_whole(world, late)

    tell(story)


def test_an_exporter_forgets_what_it_knew_when_a_sweep_condemned_something() -> None:
    """Its memory names manifests that only an expired version's export had, and that are gone by now."""

    async def story(world: SweepWorld) -> None:
        stays = TableExporter(world.store, BASE)
        await world.append("a")
        await world.flush()
        await world.append("b")
        await export(world, by=stays)
        await world.remove("b")
        await export(world)  # another process
        await give_up_all_but_the_head(world)
        await export(world)
        await world.later(1.1)
        await sweep_until_quiet(world)
        await world.append("c")
        await assert_whole(world, await export(world, by=stays))
        for version in range((await world.head()).header.versions.oldest, (await world.head()).header.version + 1):
            await assert_whole(world, await export(world, version, by=stays))

    tell(story, **SNAPSHOTS)


def test_a_manifest_that_was_condemned_is_not_found_again_but_made_under_another_name() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.flush()
        await world.append("b")
        tagged = (await world.head()).header.version
        await world.tag("keep", tagged)
        await export(world, tagged)
        before = set(await exports(world))
        for name in before:  # only its metadata.json is lost: the rest is nobody's, and old
            if own_kind(name) is OwnKind.EXPORT_METADATA:
                world.store.discard(ObjectKey(key_of(world.table, name)))
        await world.later(1.1)
        report = await world.sweep()
        assert of_kinds(report.condemned)["export-manifest"] >= 1
        again = await export(world, tagged)
        await assert_whole(world, again)
        await world.later(1.1)
        assert of_kinds((await world.sweep()).removed)["export-manifest"] >= 1
        await assert_whole(world, again)

    tell(story)


def test_an_expired_version_s_stored_export_is_refused_once_the_table_is_swept() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        exporter = TableExporter(world.store, BASE)
        old = await export(world, by=exporter)
        await world.append("b")
        await give_up_all_but_the_head(world)
        await world.later(9)
        await export(world)
        await world.sweep()
        assert old.version in await versions_exported(world)
        with pytest.raises(Invalid, match="expired") as caught:
            await export(world, old.version)
        assert caught.value.code == "version-unknown"

    tell(story)


def test_an_export_that_cannot_be_read_keeps_all_that_exports_may_name() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await export(world)
        await world.remove("a")
        await world.append("b")
        await give_up_all_but_the_head(world)
        (name,) = [name for name in await exports(world) if own_kind(name) is OwnKind.EXPORT_METADATA]
        await world.later(3)
        key = ObjectKey(key_of(world.table, name))
        found = await world.store.get(key)
        assert found is not None
        world.store.place(key, found.body[:-3])
        before = await exports(world)
        for report in await sweep_until_quiet(world):
            assert not {kind for kind in of_kinds(report.condemned) if kind.startswith(("export", "data"))}
        assert await exports(world) == before
        assert await world.has("a")
        world.store.place(key, found.body)

    tell(story)


def test_a_dropped_table_comes_back_with_its_exports_and_a_purged_one_leaves_none() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        kept = await export(world)
        table_uuid = world.builder.definition.table_uuid
        await world.committed(world.builder.intent(IntentKind.DROP, table_uuid=table_uuid))
        await world.later(2)
        await sweep_until_quiet(world)
        await assert_whole(world, kept)
        await world.committed(world.builder.intent(IntentKind.PURGE, table_uuid=table_uuid))
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert await exports(world) == []

    tell(story)


def test_two_sweepers_and_one_that_ends_between_two_deletions_leave_the_needed_ones_whole() -> None:
    class Ends:
        """A remover that ends after one key."""

        def __init__(self, world: SweepWorld) -> None:
            self.world = world

        def inventory(self, prefix: str) -> Any:
            return self.world.remover.inventory(prefix)

        async def remove(self, keys: Sequence[ObjectKey]) -> None:
            await self.world.remover.remove(keys[:1])
            raise Unavailable("store-unavailable", "the worker ended")

    async def story(world: SweepWorld) -> None:
        for name in "abc":
            await world.append(name)
            await export(world)
            await export(world, form=2)
        await give_up_all_but_the_head(world)
        kept = [await export(world), await export(world, form=2)]
        await world.later(1.1)
        await world.sweep()
        await world.later(1.1)
        before = len(await exports(world))
        for _ in range(3):
            with pytest.raises(Unavailable):
                await world.sweep(remover=Ends(world))
        assert 0 < before - len(await exports(world)) < before
        one, two = world.job(), world.job()
        await one.run(world.table)
        await two.run(world.table)
        for each in kept:
            await assert_whole(world, each)
            await assert_whole(world, await export(world, form=int(each.format_version)))
        oldest = (await world.head()).header.versions.oldest
        assert min(await versions_exported(world)) >= oldest

    tell(story, **SNAPSHOTS)


def test_a_dry_run_says_which_exports_would_go_and_touches_none() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await export(world)
        await world.append("b")
        await give_up_all_but_the_head(world)
        await export(world)
        await world.later(1.1)
        before = await exports(world)
        report = await world.job().dry_run(world.table)
        assert of_kinds(report.condemned)["export-metadata"] == 1
        assert await exports(world) == before

    tell(story, **SNAPSHOTS)


def test_an_export_that_took_long_asks_again_whether_what_it_found_was_condemned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is stopped just before its metadata.json, and a sweep condemns a manifest that it found."""

    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.flush()
        await world.append("b")
        tagged = (await world.head()).header.version
        await world.tag("keep", tagged)
        slow = TableExporter(world.store, BASE)
        put = world.store.put_if_absent

        async def interrupted(key: ObjectKey, body: bytes, **more: Any) -> Any:
            if "/lists/" in key and f"-{tagged}-" in key:
                monkeypatch.setattr(world.store, "put_if_absent", put)
                answer = await put(key, body, **more)
                await world.later(1.1)
                report = await world.sweep()
                assert of_kinds(report.condemned).get("export-manifest"), (report, await exports(world))
                now_s = time.monotonic()
                monkeypatch.setattr("rootline.catalog.export_memory.time.monotonic", lambda: now_s + 3600)
                return answer
            return await put(key, body, **more)

        monkeypatch.setattr(world.store, "put_if_absent", interrupted)
        with pytest.raises(Unavailable) as caught:
            await export(world, tagged, by=slow)
        assert caught.value.code == "export-unfinished"
        assert await versions_exported(world) == []
        monkeypatch.undo()
        again = await export(world, tagged, by=slow)
        await world.later(1.1)
        await world.sweep()
        await assert_whole(world, again)

    tell(story)


def test_json_of_a_metadata_that_is_none_is_refused_by_name() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        exported = await export(world)
        location = exported.metadata_location.removeprefix(f"{BASE}/{table_prefix(world.table)}")
        reader = ExportReader(world.store, world.table)
        key = ObjectKey(key_of(world.table, location))
        for body in (b"", b"[]", b"{}", json.dumps({"format-version": 9, "location": 1}).encode()):
            world.store.place(key, body)
            with pytest.raises(Corrupt) as caught:
                await reader.metadata(location)
            assert caught.value.code == "export-corrupt"
        world.store.place(key, exported.metadata)

    tell(story)


def test_no_metadata_is_ever_stored_without_what_it_names_however_early_that_was_condemned() -> None:
    """What a crash left was condemned while another exporter found it: it goes a retention after that one's export."""

    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.flush()
        await world.append("b")
        exported = await export(world)
        location = exported.metadata_location.removeprefix(f"{BASE}/{table_prefix(world.table)}")
        key = ObjectKey(key_of(world.table, location))
        world.store.discard(key)
        await world.later(1.1)
        assert of_kinds((await world.sweep()).condemned)["export-list"] >= 1
        await world.store.put_if_absent(key, exported.metadata)  # it had read the head before
        await world.later(1.1)
        await world.sweep()
        await assert_whole(world, exported)
        await world.append("c")
        await give_up_all_but_the_head(world)
        await export(world)
        await world.sweep()
        await assert_whole(world, exported)
        await world.later(0.8)
        await world.sweep()
        await assert_whole(world, exported)
        await world.later(1.1)
        await sweep_until_quiet(world)
        assert exported.version not in await versions_exported(world)

    tell(story, **SNAPSHOTS)
