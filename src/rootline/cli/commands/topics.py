"""`rootline topics check`, `create` and `accept`: Kafka's topics as Rootline needs them.

Owns: how they are asked for and shown. Does not own: what they must look like (the adapters of Kafka).
Invariants: `check` changes nothing and ends with 1 when a topic would lose records; `create` changes nothing that
exists; `accept` changes nothing without `--yes`, and ends with 1 while there is something to accept.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log

app = typer.Typer(help="Check and create the Kafka topics of a log.", no_args_is_help=True, rich_markup_mode=None)
Partitions = Annotated[
    int, typer.Option("--partitions", min=1, help="Partitions of the topics; tables are spread over them.")
]
Copies = Annotated[
    int | None,
    typer.Option("--replication-factor", min=1, help="Copies of each record. Default: as the brokers are set."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without --yes, only show what would be done.")]


@app.command("check")
def check(log: Log = None, as_json: Json = False) -> None:
    """Check that the topics exist and keep their records; ends with 1 when a topic would lose records."""
    from rootline.cli import output
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


@app.command("create")
def create(partitions: Partitions = 12, copies: Copies = None, log: Log = None, as_json: Json = False) -> None:
    """Create the topics that do not exist yet."""
    from rootline.cli import output
    from rootline.connect import open_topics

    topics = open_topics(log)
    made = topics.create(partitions=partitions, replication_factor=copies)
    known = topics.identities() if made else {}
    for name in made:
        count = known[name].partitions
        output.line(as_json, {"topic": name, "made": True, "partitions": count}, f"{name}: created, {count} partitions")
    if not made:
        output.note(as_json, "all topics exist; `rootline topics check` looks at their settings")


@app.command("accept")
def accept(yes: Yes = False, log: Log = None, as_json: Json = False) -> None:
    """Go on after `log-replaced` or `offset-out-of-range`, with the records that are there and without those lost.

    Without --yes nothing is changed; ends with 1 while there is something to accept.
    """
    from rootline.cli import output
    from rootline.connect import open_topics

    accepted = open_topics(log).accept(apply=yes)
    for held in accepted:
        record = {
            "partition": held.partition,
            "remembered": held.remembered,
            "remembered_log": held.remembered_log,
            "log": held.log,
            "next_offset": held.next_offset,
            "removed": held.removed,
            "parked": held.parked,
            "accepted": yes,
        }
        output.line(as_json, record, str(held))
    if accepted and not yes:
        output.note(as_json, "nothing was changed; to accept this, stop the coordinators and repeat with --yes")
        raise typer.Exit(ExitCode.NO)
    if not accepted:
        output.note(as_json, "there is nothing to accept")
