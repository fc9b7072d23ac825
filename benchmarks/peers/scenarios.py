"""What is measured, and how much of it.

Owns: the scenarios and their sizes. Does not own: services and records (`bench`), how a peer does it (the drivers).
Invariants: subjects take turns commit by commit, or phase by phase where many processes write at once; warm-up commits
do not count; a commit that failed counts as failed, and the store's own errors are counted apart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Spread
from benchmarks.peers import files
from benchmarks.peers.bench import Bench, Where, made
from benchmarks.peers.driver import Driver, DriverFailed, Missing
from benchmarks.peers.protocol import MOST, Place
from benchmarks.peers.rest_clients import PYICEBERG, SPARK, Written, write_round
from benchmarks.peers.subjects import FLOOR, Subject
from tests.services.s3_service import running_s3

_STORE_FAULTS: Final = (
    "BadRequest",
    "Bad Request",
    "InternalError",
    "SlowDown",
    "status 400",
    "status 500",
    "code: 400",
)
_KINDS: Final = 4
"""Kinds of failures that a record keeps."""
_UPKEEP_EVERY: Final = 500
_TURN: Final = 100
_PREPARED_PER_S: Final = 200


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all scenarios."""

    serial: int
    serial_far: int
    warm_up: int
    writers: tuple[int, ...]
    writers_far: tuple[int, ...]
    writing_s: float
    counted: int
    large: int
    large_rounds: int
    planned: int
    plan_rounds: int
    grown: tuple[int, ...]
    grown_commits: int
    fill_each: int
    one_rows: int
    one_row_minutes: float
    small_appends: int
    small_writers: int
    clients: int
    spark_clients: int
    clients_where: Where
    clients_s: float
    client_rounds: int
    rest_s: float = 3.0  # for what a commit leaves to the background


SCALES: Final = {
    "tiny": Scale(
        serial=2,
        serial_far=0,
        warm_up=1,
        writers=(2,),
        writers_far=(),
        writing_s=0.3,
        counted=2,
        large=20,
        large_rounds=1,
        planned=40,
        plan_rounds=1,
        grown=(0, 20),
        grown_commits=2,
        fill_each=20,
        one_rows=10,
        one_row_minutes=0.2,
        small_appends=2,
        small_writers=2,
        clients=2,
        spark_clients=0,
        clients_where="folder",
        clients_s=1.0,
        client_rounds=1,
        rest_s=1.0,
    ),
    "small": Scale(
        serial=10,
        serial_far=6,
        warm_up=2,
        writers=(4,),
        writers_far=(4,),
        writing_s=3.0,
        counted=8,
        large=1_000,
        large_rounds=2,
        planned=1_000,
        plan_rounds=1,
        grown=(0, 1_000),
        grown_commits=6,
        fill_each=1_000,
        one_rows=300,
        one_row_minutes=0.5,
        small_appends=8,
        small_writers=4,
        clients=4,
        spark_clients=4,
        clients_where="far",
        clients_s=5.0,
        client_rounds=1,
    ),
    "medium": Scale(
        serial=100,
        serial_far=30,
        warm_up=5,
        writers=(8, 32),
        writers_far=(8, 32),
        writing_s=10.0,
        counted=30,
        large=10_000,
        large_rounds=2,
        planned=20_000,
        plan_rounds=3,
        grown=(0, 1_000, 10_000),
        grown_commits=20,
        fill_each=10_000,
        one_rows=2_000,
        one_row_minutes=4.0,
        small_appends=50,
        small_writers=8,
        clients=32,
        spark_clients=32,
        clients_where="far",
        clients_s=30.0,
        client_rounds=1,
    ),
    "full": Scale(
        serial=200,
        serial_far=60,
        warm_up=10,
        writers=(8, 32),
        writers_far=(8, 32),
        writing_s=20.0,
        counted=50,
        large=10_000,
        large_rounds=5,
        planned=100_000,
        plan_rounds=5,
        grown=(0, 1_000, 10_000, 100_000),
        grown_commits=40,
        fill_each=10_000,
        one_rows=10_000,
        one_row_minutes=15.0,
        small_appends=100,
        small_writers=8,
        clients=32,
        spark_clients=32,
        clients_where="far",
        clients_s=60.0,
        client_rounds=3,
    ),
}


def serial(bench: Bench, scale: Scale) -> None:
    """Commit one file after another, near and far."""
    for where, commits in (("near", scale.serial), ("far", scale.serial_far)):
        if not commits:
            continue
        parameters = {"commits": commits}
        total = commits + scale.warm_up
        with bench.opened("serial", where, "files", parameters, prepared=total) as opened:
            found = _in_turn(opened, range(total))
            for subject, took in found.items():
                _record_latency(bench, "serial", subject, where, parameters, took[scale.warm_up :])


def writers(bench: Bench, scale: Scale) -> None:
    """Let many processes commit to one table in a closed loop, one subject after the other."""
    for where, numbers in (("near", scale.writers), ("far", scale.writers_far)):
        for number in numbers:
            for subject in bench.subjects:
                parameters = {"writers": number, "seconds": int(scale.writing_s)}
                if number > subject.processes_max:
                    reason = f"its catalog takes {subject.processes_max} process"
                    bench.run.miss("writers", subject, where, parameters, reason)
                    continue
                try:
                    _write_at_once(bench, subject, where, parameters, number, scale.writing_s)
                except (DriverFailed, Missing) as error:
                    bench.run.miss("writers", subject, where, parameters, str(error))


def _write_at_once(
    bench: Bench, subject: Subject, where: Where, parameters: dict[str, int], number: int, seconds: float
) -> None:
    each = int(seconds * _PREPARED_PER_S / number) + 20
    place = bench.place(subject, where, "files")
    with bench.drivers(subject, place, number) as drivers:
        for at in range(number):
            bench.prepare(subject, drivers[0], range(at * MOST, at * MOST + each))
        for at, driver in enumerate(drivers):
            driver.send(loop=at * MOST, seconds=seconds, most=each if subject.reads_files else MOST)
        answers = [driver.answer(seconds + 600) for driver in drivers]
        took = [one for answer in answers for one in answer["seconds"]]
        failed = [tuple(one) for answer in answers for one in answer["failed"]]
        figures = {
            "commits_per_s": len(took) / max(answer["elapsed"] for answer in answers),
            **_failure_figures(took, failed),
            **_latency_figures(took),
        }
        if not subject.plans:
            figures["files_found"] = float(drivers[0].ask(plan=None)["files"])
    bench.run.add("writers", subject, where, parameters, figures, _reasons(failed))


def requests(bench: Bench, scale: Scale) -> None:
    """Count what the store is asked for by one commit: requests by kind, bytes, objects."""
    folder = made(bench.root / "counted")
    access_log = folder / "access.log"
    parameters = {"commits": scale.counted}
    total = scale.warm_up + scale.counted
    with running_s3(folder, access_log=access_log) as store:
        for subject in bench.subjects:
            try:
                place = bench.place(subject, "near", "files", store)
                with bench.driver(subject, place) as driver:
                    bench.prepare(subject, driver, range(total))
                    driver.ask(commit=[0, scale.warm_up], each=1)
                    time.sleep(scale.rest_s)
                    offset = access_log.stat().st_size
                    answer = driver.ask(commit=[scale.warm_up, scale.counted], each=1)
                    time.sleep(scale.rest_s)
                    figures = _request_figures(list(_requests_in(access_log, offset)), len(answer["seconds"]))
            except (DriverFailed, Missing) as error:
                bench.run.miss("requests", subject, "near", parameters, str(error))
                continue
            figures |= _failure_figures(answer["seconds"], answer["failed"])
            bench.run.add("requests", subject, "near", parameters, figures, _reasons(answer["failed"]))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the store served. `size` is of the object that was put."""

    operation: str
    key: str
    status: int
    size: int

    @property
    def kind(self) -> str:
        """The kind that stores have a price for."""
        words = {"Get": "get", "Head": "head", "List": "list", "Delete": "delete", "Abort": "delete"}
        return next((kind for word, kind in words.items() if self.operation.startswith(word)), "put")


def asked_of(line: str) -> Asked | None:
    """A line of the store's access log, which has the fields of Amazon S3's; `None` if it is about no request.

    The log does not have the bytes that a GET read.
    """
    words = line.split(" ")
    if len(words) < 14 or not words[7].startswith("s3_"):
        return None
    status, size = (int(word) if word.isdigit() else 0 for word in (words[10], words[13]))
    return Asked(words[7].removeprefix("s3_"), words[8], status, size)


def _requests_in(access_log: Path, offset: int) -> Iterator[Asked]:
    """The requests that the store's log has from a position on."""
    with access_log.open() as lines:
        lines.seek(offset)
        yield from filter(None, map(asked_of, lines))


def _request_figures(asked: Sequence[Asked], commits: int) -> dict[str, float]:
    kinds = Counter(one.kind for one in asked)
    done = [one for one in asked if one.status == 200]
    totals = {
        "requests": len(asked),
        **{kind: kinds[kind] for kind in ("put", "get", "head", "list", "delete")},
        "objects": len({one.key for one in done if one.kind == "put"}),
        "bytes_written": sum(one.size for one in done if one.kind == "put"),
    }
    return {name: total / max(1, commits) for name, total in totals.items()}


def large(bench: Bench, scale: Scale) -> None:
    """Commit many files at once, several times to the same table."""
    parameters = {"files": scale.large, "rounds": scale.large_rounds}
    total = scale.large * (scale.large_rounds + 1)
    with bench.opened("large", "near", "files", parameters, prepared=total, fits=_stores_a_table) as opened:
        found = _in_turn(opened, range(scale.large_rounds + 1), each=scale.large)
        for subject, took in found.items():
            seconds, failed = _parted(took[1:])
            figures = _failure_figures(seconds, failed) | _latency_figures(seconds)
            if seconds:
                figures["files_per_s"] = scale.large / Spread.of(seconds).median
            bench.run.add("large", subject, "near", parameters, figures, _reasons(failed))


def planning(bench: Bench, scale: Scale) -> None:
    """Plan a scan of a large table, of all files and with a filter, each in a fresh process and then once more."""
    parameters = {"files": scale.planned}
    with bench.opened("planning", "near", "files", parameters, prepared=scale.planned, fits=_has_plans) as opened:
        places = {}
        for subject, (driver, place) in opened.items():
            try:
                _filled(driver, range(scale.planned), scale.fill_each)
            except DriverFailed as error:
                bench.run.miss("planning", subject, "near", parameters, str(error))
            else:
                places[subject] = place
            if subject.processes_max == 1:  # else nobody can open its catalog
                driver.end()
        _plan_in_turn(bench, scale, places, parameters)


def _plan_in_turn(bench: Bench, scale: Scale, places: dict[Subject, Place], parameters: dict[str, int]) -> None:
    for what in (None, files.selective(scale.planned, min(50, scale.planned // 4))):
        asked = {**parameters, "selective": int(what is not None)}
        plans: dict[Subject, list[tuple[float, float, int]]] = {subject: [] for subject in places}
        for _ in range(scale.plan_rounds):
            for subject, place in places.items():
                if what is not None and subject.selects:
                    continue
                try:
                    with bench.driver(subject, {**place, "creates": False}) as driver:
                        first, second = (driver.ask(plan=what) for _ in range(2))
                except DriverFailed as error:
                    bench.run.miss("planning", subject, "near", asked, str(error))
                else:
                    plans[subject].append((first["seconds"], second["seconds"], first["files"]))
        for subject, found in plans.items():
            if what is not None and subject.selects:
                bench.run.miss("planning", subject, "near", asked, subject.selects)
            elif found:
                figures = {
                    "cold_s": Spread.of([one[0] for one in found]).median,
                    "warm_s": Spread.of([one[1] for one in found]).median,
                    "planned": found[0][2],
                }
                bench.run.add("planning", subject, "near", asked, figures)


def growth(bench: Bench, scale: Scale) -> None:
    """Commit one file to a table of so many files."""
    total = scale.grown[-1] + scale.grown_commits * len(scale.grown) + scale.warm_up
    with bench.opened("growth", "near", "files", {}, prepared=total, fits=_stores_a_table) as opened:
        going, number = dict(opened), scale.warm_up
        _in_turn(going, range(number))
        for size in scale.grown:
            parameters = {"files": size, "commits": scale.grown_commits}
            if size > number:
                for subject, (driver, _) in list(going.items()):
                    try:
                        _filled(driver, range(number, size), scale.fill_each)
                    except DriverFailed as error:
                        bench.run.miss("growth", subject, "near", parameters, str(error))
                        del going[subject]
                number = size
            found = _in_turn(going, range(number, number + scale.grown_commits))
            number += scale.grown_commits
            for subject, took in found.items():
                _record_latency(bench, "growth", subject, "near", parameters, took)


def one_row(bench: Bench, scale: Scale) -> None:
    """Append a row at a time, with the upkeep that each one has, in turns of a hundred."""
    parameters = {"appends": scale.one_rows}
    turn = min(_TURN, max(1, scale.one_rows // 10))
    with bench.opened("one-row", "folder", "rows", parameters, fits=_has_upkeep) as opened:
        took: dict[Subject, list[Any]] = {subject: [] for subject in opened}
        peaks: dict[Subject, int] = dict.fromkeys(opened, 0)
        for first in range(0, scale.one_rows, turn):
            for subject, (driver, place) in opened.items():
                if sum(one for one, _ in took[subject]) >= scale.one_row_minutes * 60:
                    continue
                answer = driver.ask(append=[first, turn], rows=1)
                took[subject] += [(one, None) for one in answer["seconds"]] + [tuple(one) for one in answer["failed"]]
                if (first + turn) % _UPKEEP_EVERY == 0:
                    took[subject][-1] = (took[subject][-1][0] + driver.ask(upkeep=None)["seconds"], None)
                peaks[subject] = max(peaks[subject], _metadata_of(place)[0])
        time.sleep(scale.rest_s)
        for subject, (_, place) in opened.items():
            seconds, failed = _parted(took[subject])
            tenth = max(1, len(seconds) // 10)
            size, count = _metadata_of(place)
            figures = {
                "appends": len(seconds),
                "elapsed_s": sum(seconds),
                "first_ms": Spread.of(seconds[:tenth]).median * 1e3,
                "last_ms": Spread.of(seconds[-tenth:]).median * 1e3,
                "p99_ms": Spread.of(seconds).p99 * 1e3,
                **_failure_figures(seconds, failed),
            }
            if not subject.catalog:  # a database server has the metadata elsewhere
                figures |= {"metadata_peak_bytes": max(peaks[subject], size), "metadata_bytes": size, "files": count}
            bench.run.add("one-row", subject, "folder", parameters, figures, _reasons(failed))


def small_appends(bench: Bench, scale: Scale) -> None:
    """Append a thousand rows at a time to a folder: in turn by one process, then by many at once."""
    rows, number = 1_000, scale.small_appends
    parameters = {"appends": number, "rows": rows, "writers": 1}
    with bench.opened("small-appends", "folder", "rows", parameters, fits=_appends) as opened:
        found: dict[Subject, list[Any]] = {subject: [] for subject in opened}
        for at in range(-1, number):
            for subject, (driver, _) in opened.items():
                answer = driver.ask(append=[at + 1, 1], rows=rows)
                if at >= 0:
                    found[subject] += [(one, None) for one in answer["seconds"]]
                    found[subject] += [tuple(one) for one in answer["failed"]]
        for subject, took in found.items():
            _record_latency(bench, "small-appends", subject, "folder", parameters, took)
    parameters = {"appends": number, "rows": rows, "writers": scale.small_writers}
    for subject in bench.subjects:
        if subject.appends:
            continue
        if scale.small_writers > subject.processes_max:
            reason = f"its catalog takes {subject.processes_max} process"
            bench.run.miss("small-appends", subject, "folder", parameters, reason)
            continue
        try:
            _append_at_once(bench, subject, parameters, rows)
        except (DriverFailed, Missing) as error:
            bench.run.miss("small-appends", subject, "folder", parameters, str(error))


def _append_at_once(bench: Bench, subject: Subject, parameters: dict[str, int], rows: int) -> None:
    writers, each = parameters["writers"], max(1, parameters["appends"] // parameters["writers"])
    place = bench.place(subject, "folder", "rows")
    took: list[float] = []
    with bench.drivers(subject, place, writers) as drivers:
        for start, count in ((0, 1), (writers, each)):  # the first append of a process, which imports much, is apart
            first, began = took, time.perf_counter()
            for at, driver in enumerate(drivers):
                driver.send(append=[start + at * count, count], rows=rows)
            answers = [driver.answer() for driver in drivers]
            elapsed = time.perf_counter() - began
            took = [one for answer in answers for one in answer["seconds"]]
    failed = [tuple(one) for answer in answers for one in answer["failed"]]
    figures = {"commits_per_s": len(took) / elapsed, **_failure_figures(took, failed), **_latency_figures(took)}
    figures |= {"first_ms": Spread.of(first).median * 1e3} if first else {}
    bench.run.add("small-appends", subject, "folder", parameters, figures, _reasons(failed))


def clients(bench: Bench, scale: Scale) -> None:
    """Let Iceberg's own clients append at once through each REST catalog, round by round, and read all rows back."""
    servers = [subject for subject in bench.subjects if subject.serves]
    for client, number in ((PYICEBERG, scale.clients), (SPARK, scale.spark_clients)):
        if not number:
            continue
        where = scale.clients_where
        parameters = {client.words: number, "seconds": int(scale.clients_s), "rounds": scale.client_rounds}
        written = {subject: Written() for subject in servers}
        for _ in range(scale.client_rounds):
            for subject in list(written):
                try:
                    write_round(bench, subject, client, where, number, scale.clients_s, written[subject])
                except (DriverFailed, Missing) as error:
                    bench.run.miss("clients", subject, where, parameters, str(error))
                    del written[subject]
        for subject, one in written.items():
            commits = len(one.seconds)
            figures = {
                "commits_per_s": commits / one.elapsed_s,
                "least_per_s": min(one.rates),
                "most_per_s": max(one.rates),
                **_failure_figures(one.seconds, one.failed),
                **_latency_figures(one.seconds),
                "clients_cpu_ms": one.clients_cpu_s * 1e3 / max(1, commits),
                "servers_cpu_ms": one.servers_cpu_s * 1e3 / max(1, commits),
                "lost": one.lost,
                "doubled": one.doubled,
            }
            bench.run.add("clients", subject, where, parameters, figures, _reasons(one.failed))


SCENARIOS: Final[dict[str, Callable[[Bench, Scale], None]]] = {
    "serial": serial,
    "writers": writers,
    "requests": requests,
    "large": large,
    "planning": planning,
    "growth": growth,
    "one-row": one_row,
    "small-appends": small_appends,
    "clients": clients,
}


def _stores_a_table(subject: Subject) -> str:
    return "it stores no table" if subject.peer == FLOOR else _differs(subject)


def _has_plans(subject: Subject) -> str:
    return subject.plans or _differs(subject)


def _differs(subject: Subject) -> str:
    return "its defaults have fewer retries, which one writer does not need" if subject.only_retries else ""


def _has_upkeep(subject: Subject) -> str:
    return subject.appends or ("" if subject.settings == "best" else "upkeep is among the best settings")


def _appends(subject: Subject) -> str:
    return subject.appends


def _in_turn(
    opened: dict[Subject, tuple[Driver, Place]], numbers: Sequence[int], each: int = 1
) -> dict[Subject, list[Any]]:
    """Commit each number by each subject in turn: `(seconds, None)`, or `(seconds, reason)` of a failure."""
    found: dict[Subject, list[Any]] = {subject: [] for subject in opened}
    for number in numbers:
        for subject, (driver, _) in opened.items():
            answer = driver.ask(commit=[number * each, each], each=each)
            found[subject] += [(one, None) for one in answer["seconds"]] + [tuple(one) for one in answer["failed"]]
    return found


def _filled(driver: Driver, numbers: range, each: int) -> None:
    for start in range(numbers.start, numbers.stop, each):
        count = min(each, numbers.stop - start)
        answer = driver.ask(commit=[start, count], each=count)
        if answer["failed"]:
            raise DriverFailed(f"the table could not be filled: {answer['failed'][0][1]}")


def _parted(took: Sequence[Any]) -> tuple[list[float], list[Any]]:
    return [one for one, reason in took if reason is None], [one for one in took if one[1] is not None]


def _record_latency(
    bench: Bench, scenario: str, subject: Subject, where: Where, parameters: dict[str, int], took: Sequence[Any]
) -> None:
    seconds, failed = _parted(took)
    figures = _failure_figures(seconds, failed) | _latency_figures(seconds)
    bench.run.add(scenario, subject, where, parameters, figures, _reasons(failed))


def _latency_figures(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    spread = Spread.of(seconds)
    return {"min_ms": spread.minimum * 1e3, "p50_ms": spread.median * 1e3, "p99_ms": spread.p99 * 1e3}


def _failure_figures(seconds: Sequence[float], failed: Sequence[Any]) -> dict[str, float]:
    of_store = sum(_is_of_store(reason) for _, reason in failed)
    return {
        "tried": float(len(seconds) + len(failed)),
        "failed": float(len(failed) - of_store),
        "failed_by_store": float(of_store),
    }


def _is_of_store(reason: str) -> bool:
    return any(fault in reason for fault in _STORE_FAULTS)


def _reasons(failed: Sequence[Any]) -> dict[str, int]:
    return dict(
        Counter(reason.split(":")[0] if not _is_of_store(reason) else reason[:120] for _, reason in failed).most_common(
            _KINDS
        )
    )


def _metadata_of(place: Place) -> tuple[int, int]:
    """(bytes that are neither rows nor the driver's log, number of all files) below a table's folder."""
    size = count = 0
    for root in (Path(place["warehouse"]), Path(place["folder"])):
        for path in root.rglob("*"):
            try:
                found = path.stat().st_size if path.is_file() else None
            except FileNotFoundError:  # upkeep deletes meanwhile
                continue
            if found is None or path.suffix == ".err":
                continue
            count += 1
            is_rows = path.suffix == ".parquet" and not {"metadata", "_delta_log"} & set(path.parts)
            size += 0 if is_rows else found
    return size, count
