"""The answer when a request cannot be carried out.

Owns: which error becomes which status and type of the Iceberg REST catalog, and its JSON shape. Does not own: codes and
their explanations (`rootline.schemas.error_codes`).
Invariants: a message names object, reason and next step; no stack trace and no secret is sent; a client that may try
again is told when.
"""

from __future__ import annotations

import json
from typing import Final

from rootline.schemas.error_codes import CODES
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError, Unavailable

RETRY_AFTER_S: Final = 2
_NAME_CHARS_MAX: Final = 300
NO_TABLE: Final = frozenset(("table-unknown", "table-dropped", "table-name-invalid", "name-is-view"))
"""Codes of what is no table now: engines ask for a table before they ask for a view, so this is no fault."""


class Refusal(Exception):
    """A request that is not carried out: its status, and the exception that clients know."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    @property
    def headers(self) -> dict[str, str]:
        """The headers besides the status."""
        if self.status == 503:
            return {"Retry-After": str(RETRY_AFTER_S)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}

    @property
    def body(self) -> bytes:
        """The error as JSON in the protocol's error model."""
        error = {"message": self.message, "type": self.kind, "code": self.status}
        return json.dumps({"error": error}, ensure_ascii=False).encode()


def no_such_table(namespace: str, table: str) -> Refusal:
    """No table has this name. Engines that probe metadata tables rely on the type."""
    return Refusal(
        404,
        "NoSuchTableException",
        f"table {_shown(namespace, table)} does not exist in this warehouse; `rootline table list` shows what exists",
    )


def no_such_namespace(namespace: str) -> Refusal:
    """No namespace has this name."""
    return Refusal(
        404,
        "NoSuchNamespaceException",
        f"namespace {_shown(namespace)} does not exist: it was not created, and no table of this warehouse is in it; "
        "`rootline namespace list` shows what exists",
    )


def no_such_view(namespace: str, view: str) -> Refusal:
    """No view has this name."""
    return Refusal(
        404,
        "NoSuchViewException",
        f"view {_shown(namespace, view)} does not exist in this warehouse; `rootline view list` shows what exists",
    )


def bad_request(message: str) -> Refusal:
    """A parameter cannot be understood."""
    return Refusal(400, "BadRequestException", message)


def refusal_of(error: Exception) -> Refusal:
    """The answer for `error`."""
    match error:
        case Refusal():
            return error
        case Invalid() if error.code in NO_TABLE:
            return Refusal(404, "NoSuchTableException", _said(error))
        case Invalid():
            return Refusal(400, "BadRequestException", _said(error))
        case Unavailable() | OutcomeUnknown():
            return Refusal(503, "ServiceUnavailableException", _said(error))
        case RootlineError():
            return Refusal(500, "InternalServerError", _said(error))
        case _:
            return Refusal(
                500,
                "InternalServerError",
                f"this is a bug in Rootline ({type(error).__name__}); the server's log says more: please report it",
            )


def _shown(*names: str) -> str:
    """Names as people write them; the parts of a namespace arrive joined by a control character."""
    return ".".join(names).replace("\x1f", ".")[:_NAME_CHARS_MAX]


def _said(error: RootlineError) -> str:
    known = CODES.get(error.code)
    step = "" if known is None else f"; {known.do}"
    return f"{error.message} [{error.code}]{step}"
