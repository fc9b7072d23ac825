"""How a failure looks on the command line.

Owns: exit codes, the one line that an error takes. Does not own: codes and their explanations (`error_codes`).
Invariants: 0 done, 1 the answer is no, 2 usage, 3 the service or store cannot be reached; never a traceback, unless
`ROOTLINE_TRACEBACK` asks for it.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Final

from rootline.schemas.errors import OutcomeUnknown, RootlineError, Unavailable

_USAGE_CODES: Final = {
    "column-unknown",
    "definition-invalid",
    "filter-invalid",
    "lake-closed",
    "property-invalid",
    "setting-invalid",
    "table-name-invalid",
}


class ExitCode(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3


def exit_code_of(error: Exception) -> ExitCode:
    """The exit code for an error that ended a command."""
    match error:
        case Unavailable() | OutcomeUnknown():
            return ExitCode.UNREACHABLE
        case RootlineError() if error.code in _USAGE_CODES:
            return ExitCode.USAGE
        case RootlineError():
            return ExitCode.NO
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError() | PermissionError():
            return ExitCode.USAGE
        case ConnectionError() | TimeoutError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.NO


def describe(error: Exception, *, as_json: bool) -> str:
    """One line: object and reason, then the next step."""
    if isinstance(error, RootlineError):
        code, message, step = error.code, error.message, f"rootline explain {error.code}"
    elif isinstance(error, OSError):
        code, message = "os-error", f"{error.filename or 'the system'}: {error.strerror or error}"
        step = "check the path and its permissions"
    else:
        code, message = "unexpected", f"{type(error).__name__}: {error}"
        step = "this is a fault of Rootline; set ROOTLINE_TRACEBACK=1 and report what it shows"
    message = " ".join(message.split())
    if as_json:
        return json.dumps({"error": code, "message": message, "next": step}, ensure_ascii=False)
    return f"error: {message} [{code}]; next: {step}"
