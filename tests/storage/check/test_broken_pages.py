"""A check finds pages that were lost, cut short or made up, although every digest is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, LedgerRows, encode_ledger_row
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES, PagedOutcomes
from rootline.schemas.error_codes import CODES
from rootline.schemas.identifiers import ObjectKey, Version, WriterId
from rootline.schemas.object_keys import key_of
from rootline.schemas.parts.ledger import CommittedRun, WriterRecord
from rootline.schemas.parts.outcomes import OutcomeException
from rootline.schemas.parts.page_reference import CoveredOffset
from rootline.schemas.root_header import RootHeader
from tests.maintenance.table_builder import LOG, TableBuilder
from tests.storage.check.damaged_table import everything_table, memory_of
from tests.storage.check.test_broken_chains import codes, forged

pytestmark = pytest.mark.slow


def with_ledger_page(
    builder: TableBuilder, header: RootHeader, without: str | None, **more: WriterRecord
) -> RootHeader:
    """The header with its one page of ledger made anew: less a writer, or with other records."""
    [page] = builder.state.pages.of(LEDGER_PAGES)
    rows = {writer: row for writer, row in page.content.rows.items() if writer != without}
    rows |= {WriterId(writer): encode_ledger_row(WriterId(writer), record) for writer, record in more.items()}
    fresh, body = LEDGER_PAGES.encode(header.table_uuid, LedgerRows(rows))
    memory_of(builder).place(key_of(builder.table, fresh.reference.location), body)
    return replace(header, ledger=replace(header.ledger, pages=(fresh.reference,)))


async def found_at(builder: TableBuilder, key: ObjectKey) -> set[str]:
    found = await codes(builder)
    assert all(code in CODES for _, code in found)
    return {code for where, code in found if where == key}


async def test_the_table_has_a_page_of_each_kind_and_a_ledger_in_its_header() -> None:
    header = (await everything_table()).state.header
    assert (len(header.ledger.pages), len(header.outcomes.pages)) == (1, 1)
    assert header.ledger.writers
    assert await codes(await everything_table()) == set()


async def test_a_page_that_a_root_drops_is_missed() -> None:
    builder = await everything_table()
    key = await forged(builder, header=lambda header: replace(header, ledger=replace(header.ledger, pages=())))
    assert await found_at(builder, key) == {"progress-lost"}


async def test_a_writer_that_is_left_out_of_a_page_is_missed() -> None:
    builder = await everything_table()
    key = await forged(builder, header=lambda header: with_ledger_page(builder, header, "backfill-40"))
    assert await found_at(builder, key) == {"progress-lost"}


async def test_a_page_made_anew_with_the_same_rows_is_sound() -> None:
    builder = await everything_table()
    await forged(builder, header=lambda header: with_ledger_page(builder, header, None))
    assert await codes(builder) == set()


@pytest.mark.parametrize(
    "record",
    [
        WriterRecord((CommittedRun(7, 7, Version(1), 0),), (), 2_000_000_000_000),
        WriterRecord((CommittedRun(8, 9, Version(8), 0),), (), 2_000_000_000_000),
        WriterRecord((), (), 2_000_000_000_000),
        WriterRecord((CommittedRun(7, 7, Version(8), 0),), (), 5),
    ],
    ids=["another version", "another sequence", "nothing", "seen earlier"],
)
async def test_a_record_that_says_less_or_something_else_is_found(record: WriterRecord) -> None:
    builder = await everything_table()
    key = await forged(builder, header=lambda header: with_ledger_page(builder, header, "", **{"backfill-40": record}))
    assert "progress-lost" in await found_at(builder, key)


async def test_a_rejection_that_is_gone_is_found() -> None:
    builder = await everything_table()
    record = WriterRecord((), (), 2_000_000_000_000)
    key = await forged(builder, header=lambda header: with_ledger_page(builder, header, "", **{"w-40": record}))
    assert await found_at(builder, key) == {"progress-lost"}


async def test_a_sequence_that_is_committed_in_header_and_page_is_found() -> None:
    builder = await everything_table()
    again = {
        WriterId("backfill-40"): WriterRecord(
            (CommittedRun(7, 7, builder.state.header.version, 0),), (), builder.state.header.snapshot.timestamp_ms
        )
    }
    key = await forged(
        builder,
        header=lambda header: replace(
            header, ledger=replace(header.ledger, writers={**header.ledger.writers, **again})
        ),
    )
    assert await found_at(builder, key) == {"progress-lost"}


async def test_a_header_over_its_limit_is_found() -> None:
    builder = await everything_table()
    many = {WriterId(f"writer-{number:04d}"): WriterRecord(last_seen_ms=1) for number in range(700)}
    key = await forged(
        builder,
        header=lambda header: replace(header, ledger=replace(header.ledger, writers={**header.ledger.writers, **many})),
    )
    assert "header-too-large" in await found_at(builder, key)
    builder = await everything_table()
    item = OutcomeException(LOG, 0, 3, builder.state.header.version, "c", "x" * 20_000, None)
    key = await forged(
        builder,
        header=lambda header: replace(
            header, outcomes=replace(header.outcomes, newest=replace(header.outcomes.newest, exceptions=(item,)))
        ),
    )
    assert "header-too-large" in await found_at(builder, key)


async def test_an_outcome_that_is_gone_before_older_ones_is_missed() -> None:
    builder = await everything_table()

    def without_one(header: RootHeader) -> RootHeader:
        return replace(
            header,
            outcomes=replace(
                header.outcomes, newest=replace(header.outcomes.newest, runs=header.outcomes.newest.runs[1:])
            ),
        )

    key = await forged(builder, header=without_one)
    assert await found_at(builder, key) == {"progress-lost"}, "its page says that nothing after it was acknowledged"


async def test_outcomes_that_go_in_the_order_of_their_offsets_are_taken_for_acknowledged() -> None:
    builder = await everything_table()
    await forged(builder, header=lambda header: replace(header, outcomes=replace(header.outcomes, pages=())))
    assert await codes(builder) == set()


async def test_an_outcome_that_a_page_makes_up_is_found() -> None:
    builder = await everything_table()
    [page] = builder.state.pages.of(OUTCOME_PAGES)
    outcomes = page.content.outcomes
    runs = (outcomes.runs[0]._replace(version=Version(3)), *outcomes.runs[1:])

    def with_other_page(header: RootHeader) -> RootHeader:
        fresh, body = OUTCOME_PAGES.encode(header.table_uuid, PagedOutcomes(replace(outcomes, runs=runs)))
        memory_of(builder).place(key_of(builder.table, fresh.reference.location), body)
        return replace(header, outcomes=replace(header.outcomes, pages=(fresh.reference,)))

    key = await forged(builder, header=with_other_page)
    assert await found_at(builder, key) == {"progress-lost"}


async def test_a_reference_that_does_not_fit_its_page_names_the_page() -> None:
    builder = await everything_table()
    page = key_of(builder.table, builder.state.header.outcomes.pages[0].location)
    covers = (CoveredOffset(LOG, 0, 1),)
    await forged(
        builder,
        header=lambda header: replace(
            header, outcomes=replace(header.outcomes, pages=(header.outcomes.pages[0]._replace(covers=covers),))
        ),
    )
    assert await found_at(builder, page) == {"page-corrupt"}


async def test_a_page_whose_rows_no_root_could_have_made_is_named() -> None:
    builder = await everything_table()
    overlapping = (CommittedRun(1, 5, Version(1), 0), CommittedRun(4, 9, Version(2), 0))
    record = WriterRecord(overlapping, (), 1)

    def with_other_page(header: RootHeader) -> RootHeader:
        return with_ledger_page(builder, header, None, new=record)

    await forged(builder, header=with_other_page)
    named = {where.split("/")[-2] for where, code in await codes(builder) if code == "progress-lost"}
    assert named == {"pages", "roots"}
