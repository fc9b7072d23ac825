"""`rootline config`, `store`, `topics`, `explain`, `completion` and `demo`: commands that need no lake.

Owns: arguments, masking secrets, printing. Does not own: settings, the trial of a store
(`rootline.storage.warehouse`), the needs of topics (the adapters of Kafka), explanations (`error_codes`), the shells'
scripts (typer), the story of the demo (`rootline.demo`).
Invariants: a secret's value is never printed, neither as a setting nor inside a URL. The checks change nothing.
`topics create` changes no topic that exists, and `topics accept` changes nothing without `--yes`. A command ends with 1
when the answer is no: a topic would lose records, there is something to accept, a store does not keep conditional PUTs,
there is no such code, the demo disagrees with pandas.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from rootline.cli import output
from rootline.cli.options import COMPLETE_VARIABLE, Given, Yes, check_folder
from rootline.cli.output import ExitCode
from rootline.schemas.errors import MASK, Invalid, RootlineError, masked_login

_SECRET_NAME: Final = re.compile(r"secret|password|token|credential|private|access_key", re.IGNORECASE)
_NOT_PRINTED: Final = ("ROOTLINE_SECRETS_DIR", "ROOTLINE_TRACEBACK")
Partitions = Annotated[
    int, typer.Option("--partitions", min=1, help="Partitions of the topics. Tables are spread over them.")
]
Copies = Annotated[
    int | None,
    typer.Option("--replication-factor", min=1, help="Copies of each record. Default: as the brokers are set."),
]


def codes(incomplete: str) -> list[str]:
    """The error codes to offer at `<TAB>`."""
    from rootline.schemas.error_codes import CODES

    return [code for code in CODES if code.startswith(incomplete)]


def print_settings(given: Given) -> None:
    """Print every setting in force, with secrets masked."""
    for name, value in _settings(given.warehouse, given.log).items():
        given.line({"setting": name, "value": value}, f"{name} = {'' if value is None else value}")


def check_settings(given: Given) -> None:
    """Check that the settings are valid, and that the warehouse and the log can be reached."""
    import asyncio

    for fault in _unknown(_settings(given.warehouse, given.log)):
        raise Invalid("setting-invalid", fault)
    place = given.place
    asyncio.run(_reach(place, given.log))
    record = {"warehouse": masked("warehouse", place), "log": masked("log", given.log), "reachable": True}
    given.line(record, f"settings are valid; {record['warehouse']} and its log can be reached")
    raise typer.Exit(ExitCode.DONE)


def masked(name: str, value: Any) -> Any:
    """The value of the setting `name`, masked if it is secret."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    if text and _SECRET_NAME.search(name):
        return MASK
    return masked_login(text)


async def _reach(warehouse: str, log: str | None) -> None:
    import asyncio

    from rootline.connect import is_kafka, open_parts, open_topics

    check_folder(warehouse)
    parts = await open_parts(warehouse, log)
    try:
        await parts.store.folders("")
        if is_kafka(log):
            await asyncio.to_thread(open_topics(log).identities)
    finally:
        await parts.close()


def _settings(warehouse: str | None, log: str | None) -> dict[str, Any]:
    from rootline.catalog.rest.http_settings import catalog_settings, http_settings
    from rootline.connect import store_settings
    from rootline.coordinator.settings import coordinator_settings
    from rootline.workers.settings import worker_settings

    shown: dict[str, Any] = {"ROOTLINE_WAREHOUSE": warehouse, "ROOTLINE_LOG": log}
    shown |= _flat("ROOTLINE", store_settings().model_dump())
    shown |= _flat("ROOTLINE_COORDINATOR", coordinator_settings().model_dump())
    shown |= _flat("ROOTLINE_WORKER", worker_settings().model_dump())
    shown |= _flat("ROOTLINE_CATALOG", catalog_settings().model_dump())
    shown |= _flat("ROOTLINE_HTTP", http_settings().model_dump())
    return {name: masked(name, value) for name, value in shown.items()}


def warn_of_unknown_settings() -> None:
    """Log each misspelt variable, for a service. It starts nevertheless: an older version lacks newer settings."""
    from rootline.library_log import library_logger

    with contextlib.suppress(RootlineError):  # an invalid setting is refused by the service that reads it
        for fault in _unknown(_settings(None, None)):
            library_logger().warning(fault, action="setting-unknown")


def _unknown(known: Mapping[str, Any]) -> Iterator[str]:
    """An error message for each misspelt variable: nothing reads it, and its setting keeps its default.

    A variable without `__` is one only if a setting has a similar name, because Kubernetes sets variables such as
    `ROOTLINE_COORDINATOR_PORT`.
    """
    sections = {name.partition("__")[0] for name in known if "__" in name}
    with_one_mark = {name.replace("__", "_"): name for name in known}
    alone = [name for name in (*known, *_NOT_PRINTED) if "__" not in name]
    for name in sorted(os.environ):
        upper = name.upper()
        section, marks, _ = upper.partition("__")
        if upper in known or upper in alone or (marks and section not in sections):
            continue
        if upper in with_one_mark:
            close = [with_one_mark[upper]]
        else:
            close = (
                difflib.get_close_matches(upper, known, 1) if marks else difflib.get_close_matches(upper, alone, 1, 0.9)
            )
        if marks or close:
            hint = f"did you mean {close[0]}?" if close else "`rootline config print` shows all"
            yield f"{name}: no setting has this name; {hint}"


def _flat(prefix: str, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in body.items():
        name = f"{prefix}__{key.upper()}" if prefix != "ROOTLINE" else f"ROOTLINE_{key.upper()}"
        if isinstance(value, dict):
            found |= _flat(name, value)
        else:
            found[name] = value
    return found


def probe_store(
    given: Given,
    url: Annotated[str, typer.Argument(metavar="URL", help="The store: a path, or a file:// or s3:// URL.")],
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="How many races to run, each of 32 writers for one object.")
    ] = 3,
) -> None:
    """Check that a store can hold tables: writers race for one object, and exactly one may win.

    Writes a few small objects outside every table. Ends with 1 when the store failed, with 3 when it did not answer.
    """
    import asyncio

    from rootline.connect import open_warehouse
    from rootline.storage import warehouse as store_probe

    async def run() -> None:
        store = open_warehouse(url)
        try:
            await store_probe.probe_store([store], lambda: uuid.uuid4().hex, rounds=rounds)
        finally:
            await store.close()

    with output.progress(f"probing {url}"):
        asyncio.run(run())
    given.line({"url": url, "conditional_put": "kept", "rounds": rounds}, f"{url}: this store can hold tables")


def check_topics(given: Given) -> None:
    """Check that the topics exist and keep their records. Ends with 1 when a topic would lose records."""
    from rootline.connect import open_topics

    topics = open_topics(given.log)
    problems = topics.check()
    for problem in problems:
        given.line(asdict(problem), f"{problem.weight}: {problem}")
    refused = sum(problem.weight == "refused" for problem in problems)
    if refused:
        raise typer.Exit(ExitCode.NO)
    for name, identity in topics.identities().items():
        known = {"topic": name, "log": identity.log, "partitions": identity.partitions}
        given.line(known, f"{name}: {identity.partitions} partitions, {identity.log}")


def create_topics(given: Given, partitions: Partitions = 12, copies: Copies = None) -> None:
    """Create the topics that do not exist yet."""
    from rootline.connect import open_topics

    topics = open_topics(given.log)
    made = topics.create(partitions=partitions, replication_factor=copies)
    known = topics.identities() if made else {}
    for name in made:
        count = known[name].partitions
        given.line({"topic": name, "made": True, "partitions": count}, f"{name}: created, {count} partitions")
    if not made:
        given.note("all topics exist; `rootline topics check` checks their settings")


def accept_topics(given: Given, yes: Yes = False) -> None:
    """Accept the loss after `log-replaced` or `offset-out-of-range`, and continue with the records that are there.

    Without --yes nothing is changed. Ends with 1 while there is something to accept.
    """
    from rootline.connect import open_topics

    accepted = open_topics(given.log).accept(apply=yes)
    for acceptance in accepted:
        record = {
            "partition": acceptance.partition,
            "remembered": acceptance.remembered,
            "remembered_log": acceptance.remembered_log,
            "log": acceptance.log,
            "next_offset": acceptance.next_offset,
            "removed": acceptance.removed,
            "parked": acceptance.parked,
            "accepted": yes,
        }
        given.line(record, str(acceptance))
    if accepted and not yes:
        given.note("nothing was changed; to accept this, stop the coordinators and repeat with --yes")
        raise typer.Exit(ExitCode.NO)
    if not accepted:
        given.note("there is nothing to accept")


def explain(
    given: Given,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code, as the error shows it. Without it, all codes are listed.",
            autocompletion=codes,
        ),
    ] = None,
) -> None:
    """Explain an error code: what it means, what to do, what not to do."""
    from rootline.schemas.error_codes import CODES

    if code is None:
        records = [asdict(item) for item in CODES.values()]
        given.rows(records, ["code", "category", "meaning"], empty="no codes")
        return
    found = CODES.get(code.strip("[]"))
    if found is None:
        near = difflib.get_close_matches(code, CODES, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `rootline explain` lists all codes"
        typer.echo(f"error: there is no code {code!r}{hint}", err=True)
        raise typer.Exit(ExitCode.NO)
    given.line({**asdict(found), "do_not": found.avoid}, "\n".join(found.lines()))


def completion(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="The shell: bash, zsh or fish.")
    ],
) -> None:
    """Print the completion for a shell.

    In bash and zsh: eval "$(rootline completion bash)". In fish: pipe it to source.
    """
    from typer import completion as scripts

    scripts.get_completion_inspect_parameters()
    root: Any = context.find_root().command
    scripts.shell_complete(root, {}, "rootline", COMPLETE_VARIABLE, f"source_{shell}")


def demo(
    given: Given,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the lake. Default: --warehouse, else ./demo-lake.")
    ] = None,
    months: Annotated[int, typer.Option("--months", min=1, max=12, help="How many months of flights to load.")] = 2,
) -> None:
    """Try Rootline on flights of New York: append, delete, overwrite, flush, scan.

    The results are compared with pandas.
    """
    from rootline.demo.quick_demo import run_demo

    folder = str(root) if root is not None else given.warehouse or "demo-lake"
    with output.progress("flights of New York", total=8) as advance:
        report = run_demo(folder, given.log, months, lambda: advance(1))
    given.line(asdict(report) | {"agrees": report.agrees}, "\n".join(report.lines()))
    if not report.agrees:
        raise typer.Exit(ExitCode.NO)
