"""A table that has pages of kept and condemned names is planned for, and looked at, like any other."""

from __future__ import annotations

from rootline.client.time_travel import PointInTime
from rootline.client.version_history import preview_restore
from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.schemas.identifiers import Version
from tests.support.loaded_tables import load_table
from tests.workers.test_expiry_job import Lake, told


async def expired(lake: Lake) -> None:
    """A lake that keeps a version, by a page, below the oldest one that can be read."""
    await lake.append(5)
    await lake.tag("kept", 3)
    await lake.append(20)
    await lake.job(now=True).run(lake.table)
    header = await lake.header()
    assert header.versions.expiry is not None
    assert header.versions.expiry.kept is not None
    assert header.versions.oldest > 3


def test_files_are_found_for_a_plan_without_reading_pages() -> None:
    async def story(lake: Lake) -> None:
        await expired(lake)
        state = await load_table(lake.store, lake.table)
        assert state is not None
        files = TableFiles(state)
        assert files.equality_deletes == ()
        assert len(list(files.data_files(2**40))) == 25

    told(story, Lake())


def test_a_restore_to_a_kept_version_is_previewed() -> None:
    async def story(lake: Lake) -> None:
        await expired(lake)
        found = await preview_restore(lake.store, lake.table, PointInTime(version=Version(3)))
        assert (len(found.added_files), len(found.removed_files)) == (0, 22)

    told(story, Lake())
