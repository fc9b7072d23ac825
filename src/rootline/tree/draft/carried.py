"""The parts of the header that a root carries forward unless an intent changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.locations import Locations
from rootline.schemas.parts.name import NameRecord
from rootline.schemas.parts.restores import Restores
from rootline.schemas.parts.versions import ReadableVersions
from rootline.schemas.root_header import RootHeader


@dataclass(frozen=True, slots=True)
class CarriedFields:
    """The parts of the next header that an intent may change. A change contains a complete new value of this class."""

    definition: DefinitionReference
    versions: ReadableVersions = ReadableVersions()
    tags: Mapping[str, int] = field(default_factory=dict)
    restores: Restores = Restores()
    locations: Locations = Locations()
    name: NameRecord = NameRecord()

    @staticmethod
    def of(header: RootHeader) -> CarriedFields:
        """The parts that a root carries forward."""
        return CarriedFields(
            header.definition, header.versions, header.tags, header.restores, header.locations, header.name
        )
