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
from rootline.cli.options import COMPLETE_VARIABLE, Json, Log, Warehouse, Yes, check_folder, required
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


def print_settings(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Print every setting in force, with secrets masked."""
    for name, value in _settings(warehouse, log).items():
        output.line(as_json, {"setting": name, "value": value}, f"{name} = {'' if value is None else value}")


def check_settings(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Check that the settings are valid, and that the warehouse and the log can be reached."""
    import asyncio

    for fault in _unknown(_settings(warehouse, log)):
        raise Invalid("setting-invalid", fault)
    place = required(warehouse)
    asyncio.run(_reach(place, log))
    record = {"warehouse": masked("warehouse", place), "log": masked("log", log), "reachable": True}
    output.line(as_json, record, f"settings are valid; {record['warehouse']} and its log can be reached")
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
    from pydantic import ValidationError

    from rootline.catalog.rest.http_settings import catalog_settings, http_settings
    from rootline.connect import store_settings
    from rootline.coordinator.settings import CoordinatorSettings
    from rootline.schemas.model_faults import invalid_settings
    from rootline.workers.settings import WorkerSettings

    shown: dict[str, Any] = {"ROOTLINE_WAREHOUSE": warehouse, "ROOTLINE_LOG": log}
    shown |= _flat("ROOTLINE", store_settings().model_dump())
    for prefix, kind in (("ROOTLINE_COORDINATOR", CoordinatorSettings), ("ROOTLINE_WORKER", WorkerSettings)):
        try:
            shown |= _flat(prefix, kind().model_dump())
        except ValidationError as error:
            raise invalid_settings(error, f"{prefix}__") from None
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
    url: Annotated[str, typer.Argument(metavar="URL", help="The store: a path, or a file:// or s3:// URL.")],
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="How many races to run, each of 32 writers for one object.")
    ] = 3,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
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
    output.line(
        as_json, {"url": url, "conditional_put": "kept", "rounds": rounds}, f"{url}: this store can hold tables"
    )


def check_topics(log: Log = None, as_json: Json = False) -> None:
    """Check that the topics exist and keep their records. Ends with 1 when a topic would lose records."""
    from rootline.connect import open_topics

    topics = open_topics(log)
    problems = topics.check()
    for problem in problems:
        record = {
            "topic": problem.topic,
            "setting": problem.setting,
            "found": problem.found,
            "wanted": problem.wanted,
            "reason": problem.reason,
            "weight": problem.weight,
        }
        output.line(as_json, record, f"{problem.weight}: {problem}")
    refused = sum(problem.weight == "refused" for problem in problems)
    if refused:
        raise typer.Exit(ExitCode.NO)
    for name, identity in topics.identities().items():
        known = {"topic": name, "log": identity.log, "partitions": identity.partitions}
        output.line(as_json, known, f"{name}: {identity.partitions} partitions, {identity.log}")


def create_topics(partitions: Partitions = 12, copies: Copies = None, log: Log = None, as_json: Json = False) -> None:
    """Create the topics that do not exist yet."""
    from rootline.connect import open_topics

    topics = open_topics(log)
    made = topics.create(partitions=partitions, replication_factor=copies)
    known = topics.identities() if made else {}
    for name in made:
        count = known[name].partitions
        output.line(as_json, {"topic": name, "made": True, "partitions": count}, f"{name}: created, {count} partitions")
    if not made:
        output.note(as_json, "all topics exist; `rootline topics check` checks their settings")


def accept_topics(yes: Yes = False, log: Log = None, as_json: Json = False) -> None:
    """Accept the loss after `log-replaced` or `offset-out-of-range`, and continue with the records that are there.

    Without --yes nothing is changed. Ends with 1 while there is something to accept.
    """
    from rootline.connect import open_topics

    accepted = open_topics(log).accept(apply=yes)
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
        output.line(as_json, record, str(acceptance))
    if accepted and not yes:
        output.note(as_json, "nothing was changed; to accept this, stop the coordinators and repeat with --yes")
        raise typer.Exit(ExitCode.NO)
    if not accepted:
        output.note(as_json, "there is nothing to accept")


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code, as the error shows it. Without it, all codes are listed.",
            autocompletion=codes,
        ),
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Explain an error code: what it means, what to do, what not to do."""
    from rootline.schemas.error_codes import CODES, explained

    if code is None:
        records = [asdict(item) for item in CODES.values()]
        output.rows(as_json, records, ["code", "category", "meaning"], empty="no codes")
        return
    found = CODES.get(code.strip("[]"))
    if found is None:
        near = difflib.get_close_matches(code, CODES, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `rootline explain` lists all codes"
        typer.echo(f"error: there is no code {code!r}{hint}", err=True)
        raise typer.Exit(ExitCode.NO)
    explanation = explained(found)
    output.line(as_json, {**asdict(found), "do_not": explanation.do_not}, "\n".join(explanation.lines()))


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
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the lake. Default: --warehouse, else ./demo-lake.")
    ] = None,
    months: Annotated[int, typer.Option("--months", min=1, max=12, help="How many months of flights to load.")] = 2,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Try Rootline on flights of New York: append, delete, overwrite, flush, scan.

    The results are compared with pandas.
    """
    from rootline.demo.quick_demo import run_demo

    folder = str(root) if root is not None else warehouse or "demo-lake"
    with output.progress("flights of New York", total=8) as advance:
        report = run_demo(folder, log, months, lambda: advance(1))
    if as_json:
        output.line(True, asdict(report) | {"agrees": report.agrees}, "")
    else:
        for text in report.lines():
            output.note(False, text)
    if not report.agrees:
        raise typer.Exit(ExitCode.NO)
