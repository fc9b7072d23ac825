"""The status and the exception type of every error of a writing request.

Owns: the table of codes, Iceberg's words for names that are missing or taken. Does not own: the body of an error
(`rootline.catalog.rest.responses`), codes and their explanations.
Invariants: the status decides what a client deletes. It deletes what it wrote after a 4xx, so a 4xx is only given if
nothing of the request was committed, and never will be. A request whose intent was published and has no verdict is a
504. A code that the table does not name has the status of its category.

Theory. Iceberg's Java client deletes manifests after 400, 401, 403, 404 and an exhausted 409, and Spark its data files.
PyIceberg deletes manifests after an exhausted 409. Both keep everything after 500 and 504.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

from rootline.catalog.rest.responses import Refusal, message_of, refusal_of
from rootline.schemas.errors import Conflict, Invalid, OutcomeUnknown, RootlineError, Unavailable


class Status(NamedTuple):
    """A status, the exception type that clients know, and Iceberg's words before the name, if it has any."""

    status: int
    kind: str
    words: str = ""


_COMMIT_FAILED: Final = Status(409, "CommitFailedException")
_NO_TABLE: Final = Status(404, "NoSuchTableException", "Table does not exist")
_TABLE_EXISTS: Final = Status(409, "AlreadyExistsException", "Table already exists")
STATUS_OF_CODE: Final[Mapping[str, Status]] = MappingProxyType(
    {
        "table-unknown": _NO_TABLE,
        "table-dropped": _NO_TABLE,
        "table-exists": _TABLE_EXISTS,
        "name-is-view": Status(409, "AlreadyExistsException", "View with same name already exists"),
        "view-exists": Status(409, "AlreadyExistsException", "View already exists"),
        "view-unknown": Status(404, "NoSuchViewException", "View does not exist"),
        "namespace-unknown": Status(404, "NoSuchNamespaceException", "Namespace does not exist"),
        "namespace-exists": Status(409, "AlreadyExistsException", "Namespace already exists"),
        "namespace-not-empty": Status(409, "NamespaceNotEmptyException", "Namespace is not empty"),
        "stale-source": _COMMIT_FAILED,
        "row-conflict": _COMMIT_FAILED,
        "isolation-conflict": _COMMIT_FAILED,
        "file-not-live": _COMMIT_FAILED,
        "definition-changed": _COMMIT_FAILED,
        "table-uuid-mismatch": _COMMIT_FAILED,
        "progress-moved": _COMMIT_FAILED,
        "request-refused": _COMMIT_FAILED,
        "sequence-reused": _COMMIT_FAILED,  # the id of a client's snapshot, with other files
        "view-changed": _COMMIT_FAILED,
        "file-already-live": Status(500, "CommitStateUnknownException"),  # the intent, or its files, are in the table
        "file-removed": Status(500, "CommitStateUnknownException"),  # an earlier version has the file
    }
)
"""The status of each code that is not a 400 when it refuses a change."""


@contextmanager
def about(name: str) -> Iterator[None]:
    """Turn the errors of a block into refusals about `name`, in Iceberg's words where it has any."""
    try:
        yield
    except RootlineError as error:
        raise refusal_of_change(error, name) from error


@contextmanager
def after_commit(name: str) -> Iterator[None]:
    """Turn every error of a block into an unknown outcome, because the change of `name` is committed."""
    try:
        yield
    except Exception as error:
        reason = message_of(error) if isinstance(error, RootlineError) else str(error)
        words = f"{name}: the change is committed, but it cannot be shown: {reason}"
        raise Refusal(500, "CommitStateUnknownException", words) from error


def refusal_of_change(error: Exception, name: str = "") -> Refusal:
    """The error response for `error`, which a writing request about `name` raised."""
    match error:
        case Refusal():
            return error
        case RootlineError() if error.code in STATUS_OF_CODE:
            known = STATUS_OF_CODE[error.code]
            words = f"{known.words}: {name}; " if known.words and name else ""
            return Refusal(known.status, known.kind, f"{words}{message_of(error)}")
        case Invalid() | Conflict():
            return Refusal(400, "BadRequestException", message_of(error))
        case OutcomeUnknown():
            return Refusal(504, "CommitStateUnknownException", message_of(error))
        case Unavailable():
            return Refusal(503, "ServiceUnavailableException", message_of(error))
        case _:
            return refusal_of(error)


def table_exists(name: str) -> Refusal:
    """The error for a name that a table has."""
    return Refusal(*_TABLE_EXISTS[:2], f"{_TABLE_EXISTS.words}: {name}; choose another name, or load it")


def requirement_failed(reason: str) -> Refusal:
    """The error for a requirement that is not met. Clients then reload the table and retry."""
    return commit_failed(f"Requirement failed: {reason}")


def commit_failed(reason: str) -> Refusal:
    """The error for a commit that may pass after the client has reloaded the table."""
    return Refusal(*_COMMIT_FAILED[:2], reason)
