"""The bodies of the REST catalog's responses, errors included.

Owns: their JSON, pages of lists, ETags, the snapshots that the mode `refs` omits, the status and type of each error.
Does not own: routes (`routes`), the content of a table's metadata (`table_metadata`), codes and their explanations.
Invariants: metadata is sent with the stored bytes, unless snapshots are omitted. An ETag identifies one metadata
location, one mode of snapshots and one set of storage settings. An error names object, reason and next step, and
contains no stack trace and no secret. A client that may retry gets the time to wait.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rootline.catalog.export_keys import FormatVersion
from rootline.schemas.error_codes import CODES
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.view_metadata import ViewMetadata

if TYPE_CHECKING:
    from rootline.catalog.exporter import ExportedTable

RETRY_AFTER_S: Final = 2
_NAME_CHARS_MAX: Final = 300
NO_TABLE: Final = frozenset(("table-unknown", "table-dropped", "table-name-invalid", "name-is-view"))
"""Codes for a name without a table. They are not faults: engines look for a table before they look for a view."""


class Refusal(Exception):
    """A refused request: its status, and the exception type that clients know."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    @property
    def headers(self) -> dict[str, str]:
        """The response headers that the status needs."""
        if self.status == 503:
            return {"Retry-After": str(RETRY_AFTER_S)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}

    @property
    def body(self) -> bytes:
        """The error as JSON in the protocol's error model."""
        error = {"message": self.message, "type": self.kind, "code": self.status}
        return json.dumps({"error": error}, ensure_ascii=False).encode()


def no_such_table(namespace: str, table: str) -> Refusal:
    """The error for an unknown table. Engines that probe metadata tables rely on the type."""
    return Refusal(
        404,
        "NoSuchTableException",
        f"Table does not exist: {_shown(namespace, table)}; `rootline table list` shows what exists",
    )


def no_such_namespace(namespace: str) -> Refusal:
    """The error for an unknown namespace. Iceberg's own tests compare the whole text."""
    return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {_shown(namespace)}")


def no_such_view(namespace: str, view: str) -> Refusal:
    """The error for an unknown view."""
    return Refusal(
        404,
        "NoSuchViewException",
        f"View does not exist: {_shown(namespace, view)}; `rootline view list` shows what exists",
    )


def bad_request(message: str) -> Refusal:
    """The error for an invalid parameter."""
    return Refusal(400, "BadRequestException", message)


def refusal_of(error: Exception) -> Refusal:
    """The error response for `error`."""
    match error:
        case Refusal():
            return error
        case Invalid() if error.code in NO_TABLE:
            return Refusal(404, "NoSuchTableException", message_of(error))
        case Invalid():
            return Refusal(400, "BadRequestException", message_of(error))
        case Unavailable() | OutcomeUnknown():
            return Refusal(503, "ServiceUnavailableException", message_of(error))
        case RootlineError():
            return Refusal(500, "InternalServerError", message_of(error))
        case _:
            return Refusal(
                500,
                "InternalServerError",
                f"this is a bug in Rootline ({type(error).__name__}); the server's log has details: please report it",
            )


def _shown(*names: str) -> str:
    """Names in readable form. The parts of a namespace arrive joined by a control character."""
    return ".".join(names).replace("\x1f", ".")[:_NAME_CHARS_MAX]


def message_of(error: RootlineError) -> str:
    """The text of an error, with its code and what to do."""
    known = CODES.get(error.code)
    step = "" if known is None else f"; {known.do}"
    return f"{error.message} [{error.code}]{step}"


PAGE_SIZE_MAX: Final = 1_000
WAREHOUSES: Final = {"v2": FormatVersion.V2, "v3": FormatVersion.V3, "own": None}
"""The warehouse names that an engine may use: each selects a format, and becomes the prefix of its paths.

`own` is the format of each table.
"""

_PREFIX: Final = "/v1/{prefix}/namespaces"
ENDPOINTS: Final = (
    f"GET {_PREFIX}",
    f"GET {_PREFIX}/{{namespace}}",
    f"HEAD {_PREFIX}/{{namespace}}",
    f"GET {_PREFIX}/{{namespace}}/tables",
    f"GET {_PREFIX}/{{namespace}}/tables/{{table}}",
    f"HEAD {_PREFIX}/{{namespace}}/tables/{{table}}",
    f"GET {_PREFIX}/{{namespace}}/views",
    f"GET {_PREFIX}/{{namespace}}/views/{{view}}",
    f"HEAD {_PREFIX}/{{namespace}}/views/{{view}}",
)
"""The served routes. An engine that supports this list does not try others."""


class SnapshotMode(StrEnum):
    """The choice of snapshots in a table's metadata."""

    ALL = "all"
    REFS = "refs"


def config_body(warehouse: str | None, writing: Sequence[str] = ()) -> bytes:
    """The first response to an engine. `warehouse` is the engine's configured warehouse, `writing` further endpoints.

    Raises:
        Refusal: there is no warehouse of this name.
    """
    if warehouse and warehouse not in WAREHOUSES:
        raise Refusal(
            404,
            "NoSuchWarehouseException",
            f"warehouse {warehouse[:80]!r} does not exist; use v2 or v3, the Iceberg format to read all tables in, "
            "or own, for the format that each table names (rootline.export.format; default 3)",
        )
    overrides = {"prefix": warehouse} if warehouse else {}
    return json_body({"defaults": {}, "overrides": overrides, "endpoints": [*ENDPOINTS, *writing]})


def namespaces_body(names: Sequence[str], token: str | None, size: str | None) -> bytes:
    """One page of namespaces."""
    page, further = _page(names, token, size)
    return json_body({"namespaces": [name.split(".") for name in page], "next-page-token": further})


def namespace_body(namespace: str, properties: Mapping[str, str]) -> bytes:
    """A namespace: its name, level by level, and its properties."""
    return json_body({"namespace": namespace.split("."), "properties": dict(properties)})


def identifiers_body(namespace: str, names: Sequence[str], token: str | None, size: str | None) -> bytes:
    """One page of the tables, or views, of a namespace."""
    page, further = _page(names, token, size)
    identifiers = [{"namespace": namespace.split("."), "name": name} for name in page]
    return json_body({"identifiers": identifiers, "next-page-token": further})


def table_body(exported: ExportedTable, mode: SnapshotMode, storage: Mapping[str, str]) -> bytes:
    """A table: the location of its metadata, the metadata, and the settings to read its files."""
    metadata = exported.metadata if mode is SnapshotMode.ALL else _referenced(exported.metadata)
    return b'{"metadata-location":%b,"metadata":%b,"config":%b}' % (
        json_body(exported.metadata_location),
        metadata,
        json_body(dict(storage)),
    )


def view_body(view: ViewMetadata, metadata_location: str) -> bytes:
    """A view: its metadata in the form for engines, and the location of the root that contains it."""
    return json_body({"metadata-location": metadata_location, "metadata": view_for_engines(view), "config": {}})


def view_for_engines(view: ViewMetadata) -> dict[str, Any]:
    """A view's metadata in the form for engines.

    Engines expect a schema id and a default namespace in each version. Rootline stores the default namespace with each
    SQL text of the version. A version without a schema names an empty one, which the view itself does not have.
    """
    metadata: dict[str, Any] = json.loads(view.to_json())
    metadata.setdefault("properties", {})
    schemas = metadata.setdefault("schemas", [])
    known = {schema.get("schema-id", 0) for schema in schemas}
    empty = next(number for number in itertools.count() if number not in known)
    for body, of_view in zip(metadata["versions"], view.versions, strict=True):
        first = of_view.sql_texts[0] if of_view.sql_texts else None
        body.setdefault("schema-id", empty if of_view.named_schema_id is None else of_view.named_schema_id)
        body.setdefault("default-namespace", list((first and first.default_namespace) or ()))
        if first is not None and first.default_catalog is not None:
            body.setdefault("default-catalog", first.default_catalog)
    if any(body["schema-id"] == empty for body in metadata["versions"]):
        schemas.append({"type": "struct", "schema-id": empty, "fields": []})
    current = next(body for body in metadata["versions"] if body["version-id"] == view.current_version_id)
    metadata["current-schema-id"] = current["schema-id"]
    return metadata


def etag_of(exported: ExportedTable, mode: SnapshotMode, storage: Mapping[str, str]) -> str:
    """The strong entity tag of `table_body`, computed from its inputs."""
    # the timestamp distinguishes a table from one that was deleted manually and recreated under the same name
    inputs = [exported.metadata_location, exported.snapshot_timestamp_ms, mode, sorted(storage.items())]
    return f'"{hashlib.sha256(json_body(inputs)).hexdigest()[:32]}"'


def is_known(etag: str, if_none_match: str | None) -> bool:
    """Whether the header names `etag`. The comparison is weak, as in caches."""
    named = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return etag in named or "*" in named


def snapshot_mode(text: str | None) -> SnapshotMode:
    """The parameter `snapshots`. Raises `Refusal`: it is neither `all` nor `refs`."""
    try:
        return SnapshotMode(text or SnapshotMode.ALL)
    except ValueError:
        raise bad_request(f"snapshots={(text or '')[:40]}: write all or refs") from None


def _referenced(metadata: bytes) -> bytes:
    """The metadata with only the snapshots that a branch or tag names. All else is unchanged, including the log."""
    found: dict[str, Any] = json.loads(metadata)
    named = {reference["snapshot-id"] for reference in found.get("refs", {}).values()}
    named.add(found.get("current-snapshot-id"))
    kept = [snapshot for snapshot in found.get("snapshots", []) if snapshot["snapshot-id"] in named]
    return json_body({**found, "snapshots": kept})


def _page(names: Sequence[str], token: str | None, size: str | None) -> tuple[Sequence[str], str | None]:
    """The names of the page that `token` begins, and the token of the next page. Without a token, all names.

    A token contains the last name before the page, so a concurrent change of the list skips and repeats no other name.
    """
    limit = _size(size)
    if token is None:
        return names, None
    after = _name_of(token)
    rest = [name for name in names if name > after]
    if len(rest) <= limit:
        return rest, None
    return rest[:limit], base64.urlsafe_b64encode(rest[limit - 1].encode()).decode()


def _size(text: str | None) -> int:
    if text is None:
        return PAGE_SIZE_MAX
    if not (text.isascii() and text.isdigit() and int(text[:10]) > 0):
        raise bad_request(f"pageSize={text[:40]}: write a number from 1 on")
    return min(int(text[:10]), PAGE_SIZE_MAX)


def _name_of(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise bad_request(
            f"pageToken={token[:40]}: no earlier response contained this token; restart with an empty one"
        ) from None


def json_body(value: Any) -> bytes:
    """`value` as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
