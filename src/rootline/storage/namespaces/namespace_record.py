"""One version of a namespace as JSON: its properties, or that it was dropped.

Owns: the value and its bytes, both ways. Does not own: where it is stored (`object_keys`), which version is the newest
(`namespace_chain`).
Invariants: a record is used only under its own name and version; two records of the same content differ in their
change id, so that who wrote one knows it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import NamespaceName
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.object_keys import namespace_key

RECORD_BYTES_MAX: Final = 1_000_000
FORMAT_VERSION: Final = 1


class NamespaceRecord(BaseModel):
    """A namespace from one version on."""

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=lambda name: name.replace("_", "-"))

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    namespace: str
    version: Annotated[int, Field(ge=0)]
    change_id: str
    dropped: bool
    properties: Mapping[str, str]


def encode_record(
    namespace: NamespaceName, version: int, properties: Mapping[str, str], *, change_id: str, dropped: bool = False
) -> bytes:
    """The bytes of version `version`. Raises `Invalid` (`namespace-invalid`): the properties are too long."""
    body = {
        "format-version": FORMAT_VERSION,
        "namespace": namespace,
        "version": version,
        "change-id": change_id,
        "dropped": dropped,
        "properties": dict(properties),
    }
    found = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(found) > RECORD_BYTES_MAX:
        raise Invalid(
            "namespace-invalid",
            f"{namespace}: its properties have {len(found)} bytes, and at most {RECORD_BYTES_MAX} are kept: "
            "shorten them",
        )
    return found


def decode_record(body: bytes, namespace: NamespaceName, version: int) -> NamespaceRecord:
    """The record that was stored as version `version` of `namespace`.

    Raises:
        Corrupt: `namespace-unreadable`.

    """
    key = namespace_key(namespace, version)
    try:
        found = NamespaceRecord.model_validate_json(body)
    except ValidationError as error:
        raise Corrupt(
            "namespace-unreadable", f"{key}: not what was written: {fault_of_model(error)}: restore it from a copy"
        ) from error
    if (found.namespace, found.version) != (namespace, version):
        raise Corrupt(
            "namespace-unreadable",
            f"{key}: holds version {found.version} of {found.namespace[:80]}: restore it from a copy",
        )
    return found
