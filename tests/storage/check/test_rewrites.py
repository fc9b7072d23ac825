"""A check accepts what a rewrite leaves in the bucket, and finds what only pretends to be one."""

from __future__ import annotations

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import Status
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import version_of_root_key
from rootline.schemas.root_header import Operation
from rootline.tree.commit import next_header
from rootline.tree.commit.decide import Decisions
from rootline.tree.draft.change import Effect
from rootline.tree.draft.summary import REPLACED_FILES, REWRITTEN_FILES, operation_of
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.storage.check.damaged_table import findings_of, memory_of, metadata_objects
from tests.storage.check.test_broken_chains import Entries, forged
from tests.support.changed_headers import of_part

pytestmark = pytest.mark.slow
NOW = Decisions.ends_before


def rewrite(builder: TableBuilder, *sources: int, target: int) -> Intent:
    """The files of one region become one file, without the rows that their vectors delete."""
    removals = builder.removal(*sources).remove_files
    live = [live.entry for live in builder.state.live.entries()]
    places = {location_of(number) for number in sources}
    rows = sum(entry.record_count for entry in live if entry.location in places)
    rows -= sum(entry.record_count for entry in live if entry.referenced_file in places)
    whole = data_file(target)
    added = whole.model_copy(update={"record_count": rows, "statistics": whole.statistics[:1]})
    number = builder.state.header.snapshot.sequence_number
    return builder.intent(
        IntentKind.REWRITE, remove_files=removals, add_data_files=(added,), read_sequence_number=number
    )


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots as releases before decision 0132 wrote them: everything shares a root, and maintenance counts too."""
    by_effect = {
        Effect.ADDS: Operation.APPEND,
        Effect.REMOVES: Operation.DELETE,
        Effect.MAINTAINS: Operation.REPLACE,
        Effect.NOTHING: Operation.REPLACE,
    }
    monkeypatch.setattr(Decisions, "ends_before", lambda *_: False)
    monkeypatch.setattr(next_header, "operation_of", lambda effect: by_effect.get(effect, Operation.OVERWRITE))


async def operations(builder: TableBuilder) -> list[Operation]:
    """Of all roots, in the order of their versions."""
    objects = await metadata_objects(builder)
    roots = [decode_root(body, name=key) for key, body in objects.items() if version_of_root_key(key) is not None]
    return [root.header.snapshot.operation for root in sorted(roots, key=lambda root: root.header.version)]


async def rewritten_table() -> TableBuilder:
    """Rewrites of files in the root and in leaves, with vectors and without; beside an append, a flush, a removal."""
    builder = TableBuilder(MemoryObjectStore())
    await builder.create()
    await builder.append(*range(10))
    await builder.delete_rows({1: [1], 3: [2, 3]})
    await builder.flush()
    await builder.append(20, 21, 22, 40)
    await builder.delete_rows({3: [9], 22: [1, 2]})
    await builder.committed(rewrite(builder, 0, 3, target=300), await builder.flush_intent())
    await builder.committed(
        rewrite(builder, 20, target=302), builder.intent(IntentKind.APPEND, add_data_files=[data_file(70)])
    )
    await builder.flush()
    removal = builder.intent(IntentKind.REMOVE, remove_files=(RemovedFile(location=location_of(304)),))
    await builder.committed(rewrite(builder, 22, 40, target=304), removal)
    await builder.committed(rewrite(builder, 300, target=303))
    await builder.append(80, 81)
    await builder.committed(builder.removal(80), rewrite(builder, 303, target=305), await builder.flush_intent())
    return builder


async def test_rewrites_of_every_sort_leave_nothing_to_find() -> None:
    builder = await rewritten_table()
    assert await findings_of(memory_of(builder), builder.table) == []


@pytest.mark.usefixtures("as_before")
async def test_roots_in_which_releases_before_mixed_rewrites_and_changes_of_rows_leave_nothing_to_find() -> None:
    builder = await rewritten_table()
    assert (await operations(builder)).count(Operation.OVERWRITE) >= 3
    assert await findings_of(memory_of(builder), builder.table) == []


@pytest.mark.usefixtures("as_before")
async def test_a_table_of_a_release_before_goes_on_under_the_present_rules() -> None:
    builder = await rewritten_table()
    with pytest.MonkeyPatch.context() as undone:
        undone.setattr(Decisions, "ends_before", NOW)
        undone.setattr(next_header, "operation_of", operation_of)
        await builder.append(90)
        added = builder.intent(IntentKind.APPEND, add_data_files=[data_file(91)])
        await builder.committed(added, await builder.flush_intent(), rewrite(builder, 81, target=306))
    assert (await operations(builder))[-3:] == [Operation.APPEND, Operation.APPEND, Operation.REPLACE]
    assert await findings_of(memory_of(builder), builder.table) == []


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.DELETE, Operation.REPLACE])
async def test_an_operation_that_no_release_gave_such_a_root_is_found(operation: Operation) -> None:
    builder = await rewritten_table()
    assert (await operations(builder))[-1] is Operation.OVERWRITE
    await forged(builder, header=of_part("snapshot", operation=operation))
    assert {found.code for found in await findings_of(memory_of(builder), builder.table)} == {"live-set-wrong"}


@pytest.mark.parametrize("key", [REPLACED_FILES, REWRITTEN_FILES])
async def test_a_summary_that_counts_other_files_is_found(key: str) -> None:
    builder = await rewritten_table()
    summary = {**builder.state.header.snapshot.summary, key: "7"}
    await forged(builder, header=of_part("snapshot", summary=summary))
    assert {found.code for found in await findings_of(memory_of(builder), builder.table)} == {"live-set-wrong"}


async def test_a_rewrite_that_no_summary_mentions_is_found() -> None:
    builder = await rewritten_table()
    counted = builder.state.header.snapshot.summary
    summary = {name: text for name, text in counted.items() if name not in (REPLACED_FILES, REWRITTEN_FILES)}
    await forged(builder, header=of_part("snapshot", summary=summary))
    assert {found.code for found in await findings_of(memory_of(builder), builder.table)} == {"live-set-wrong"}


async def test_a_file_that_is_lost_in_a_root_with_a_rewrite_is_found() -> None:
    builder = await rewritten_table()
    own = builder.state.header.snapshot.snapshot_id

    def without_it(entries: Entries) -> Entries:
        kept = [entry for entry in entries if entry.version_info.snapshot_id != own]
        return [entry for entry in kept if entry.version_info.status is Status.EXISTING]

    await forged(builder, entries=without_it)
    assert "live-set-wrong" in {found.code for found in await findings_of(memory_of(builder), builder.table)}
