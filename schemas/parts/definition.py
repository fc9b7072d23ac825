"""The part `definition`: the reference to the table's definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.parts.header_part import HeaderPart, digest_of, json_of, list_in, string_of

DEFINITION_KEY: Final = "rootline.definition"


@dataclass(frozen=True, slots=True)
class DefinitionReference:
    """The location of the table's definition, and the SHA-256 of its bytes."""

    location: str
    digest: bytes


def _decode(metadata: Mapping[str, bytes]) -> DefinitionReference:
    location, digest = list_in(metadata, DEFINITION_KEY)
    return DefinitionReference(string_of(location), digest_of(digest))


DEFINITION: Final[HeaderPart[DefinitionReference]] = HeaderPart(
    "definition", {DEFINITION_KEY: lambda definition: json_of([definition.location, definition.digest.hex()])}, _decode
)
