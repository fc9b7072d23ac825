"""The part `progress`: a job's sequence number only increases, and the job that was idle longest is dropped first.

Only commits of clients move jobs. Everything else carries the part forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rootline.schemas.parts.header_part import json_of
from rootline.schemas.parts.progress import JobProgress, Progress
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import PartRules

JOBS_MAX: Final = 64
PROGRESS_BYTES_MAX: Final = 64 * 1024
"""The most bytes of the part, as encoded in the header. Nothing moves to pages: the rest is dropped."""


def with_moved(progress: Progress, job: JobProgress) -> Progress:
    """`progress` after `job` moved. Jobs that were idle longest are dropped until the others fit. `job` stays."""
    jobs = [*(each for each in progress if each.identity != job.identity), job]
    sizes = [size_of(each) for each in jobs]
    size, first = 1 + sum(sizes), 0
    while first < len(jobs) - 1 and (len(jobs) - first > JOBS_MAX or size > PROGRESS_BYTES_MAX):
        size -= sizes[first]
        first += 1
    return tuple(jobs[first:])


def size_of(job: JobProgress) -> int:
    """The bytes of a job in the header, with the comma after it."""
    return len(json_of(job)) + 1


def _rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    if after.progress is before.progress:
        return  # as after most commits
    was = {job.identity: job for job in before.progress}
    now = {job.identity: job for job in after.progress}
    numbers = [job.sequence_number for job in after.progress]
    if len(now) != len(numbers) or numbers != sorted(numbers):
        yield "the jobs of its progress are not in the order in which they moved"
    for identity, job in now.items():
        known = was.get(identity)
        if job != known and not before.snapshot.sequence_number < job.sequence_number:
            number = None if known is None else known.sequence_number
            yield f"the progress of job {identity!r:.80} changed from sequence number {number} to {job.sequence_number}"
    stays = False
    for identity, job in was.items():
        if identity not in now and stays:
            yield f"the progress of job {identity!r:.80} was dropped before a job that was idle longer"
        stays = stays or now.get(identity) == job


def _own_rule(_before: RootHeader, after: RootHeader) -> Iterator[str]:
    jobs = after.progress
    if jobs and (len(jobs) > JOBS_MAX or 1 + sum(map(size_of, jobs)) > PROGRESS_BYTES_MAX):
        yield f"it has the progress of {len(jobs)} jobs, at most {JOBS_MAX} and {PROGRESS_BYTES_MAX} bytes are allowed"
    if jobs and jobs[-1].sequence_number > after.snapshot.sequence_number:
        yield f"a job moved at sequence number {jobs[-1].sequence_number}, after the snapshot's"


def _begins(before: RootHeader, after: RootHeader) -> Iterator[str]:
    if after.progress and after.progress[0].sequence_number <= before.snapshot.sequence_number:
        yield "it has the progress of a job of the earlier table of its name"


PROGRESS: Final = PartRules("progress", rule=_rule, begins=_begins, own_rule=_own_rule)
