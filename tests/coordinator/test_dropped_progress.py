"""A job whose progress a root has no room for any more is dropped, and an operator learns of it."""

from __future__ import annotations

from structlog.testing import capture_logs

from rootline.schemas.intent import Intent
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import append_intent, running
from tests.tree.intents.test_client_commits import words_of

LONG = '"' * 3_700
"""The words of a job, more than 7 KiB as JSON."""


def moving(number: int) -> Intent:
    """A commit of job `job-<number>`."""
    made = append_intent(f"c{number}", writer_id=f"rest/{number}", writer_sequence=0, read_sequence_number=0)
    return made.model_copy(update={"summary": words_of(number, {f"job-{number}": LONG})})


async def test_progress_that_is_dropped_is_logged_with_its_job_and_counted() -> None:
    name = "rootline_progress_dropped_total"
    async with running() as service:
        registry = service.service.metrics.registry
        await service.create()
        with capture_logs() as lines:
            for number in range(1, 9):
                assert (await service.commit(moving(number)))[0].kind is VerdictKind.COMMITTED
            assert registry.get_sample_value(name) == 0, "eight fit"
            for number in (9, 10):
                assert (await service.commit(moving(number)))[0].kind is VerdictKind.COMMITTED
            assert registry.get_sample_value(name) == 2
    dropped = [line for line in lines if line["action"] == "progress_dropped"]
    assert [line["reason"] for line in dropped] == ["job-1", "job-2"]
    assert {(line["log_level"], line["table"]) for line in dropped} == {("warning", "a.b")}
