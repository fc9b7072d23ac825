"""The line that a command prints for a verdict.

Owns: its words, its JSON record, and the exit code that follows. Does not own: waiting for verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rootline.cli import output
from rootline.cli.failure import ExitCode

if TYPE_CHECKING:
    from rootline.schemas.verdict import Verdict


def told(
    as_json: bool, name: str, record: Mapping[str, Any], verdict: Verdict, *, rejected: str = "rejected"
) -> ExitCode:
    """Print what became of the intent that the caller knows as `name`; `record` names it in JSON."""
    from rootline.schemas.verdict import VerdictKind

    version = "a version that is not kept any more" if verdict.version is None else f"version {verdict.version}"
    match verdict.kind:
        case VerdictKind.REJECTED:
            text = f"{rejected}: {verdict.message} [{verdict.code}]"
        case VerdictKind.DUPLICATE:
            text = f"duplicate: {verdict.table} has had it since {version}"
        case VerdictKind.COMMITTED:
            text = f"committed {verdict.table} {version} sequence number {verdict.sequence_number}"
    output.line(as_json, {**record, **verdict.model_dump(mode="json", exclude_none=True)}, f"{name}: {text}")
    return ExitCode.NO if verdict.kind is VerdictKind.REJECTED else ExitCode.DONE
