"""The header fields that a root carries forward unless an intent changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rootline.schemas.identifiers import SequenceNumber, Version
from rootline.schemas.root_header import Condemned, DefinitionReference, Drop, Expiry, NameState, RootHeader


@dataclass(frozen=True, slots=True)
class CarriedFields:
    """The fields of the next header that an intent may change. A change contains a complete new value of this class."""

    definition: DefinitionReference
    oldest_version: Version = Version(0)
    tags: Mapping[str, int] = field(default_factory=dict)
    restored_at: SequenceNumber = SequenceNumber(0)
    """The sequence number of the last restore."""
    horizon_ms: int = 0
    condemned: tuple[Condemned, ...] = ()
    expiry: Expiry | None = None
    name_is: NameState = NameState.TABLE
    drops: tuple[Drop, ...] = ()
    view: bytes | None = None
    replaced_at: SequenceNumber = SequenceNumber(0)
    """The sequence number of the last replace."""

    @staticmethod
    def of(header: RootHeader) -> CarriedFields:
        """The fields that a root carries forward."""
        return CarriedFields(
            header.definition,
            header.oldest_version,
            header.tags,
            header.restored_at,
            header.horizon_ms,
            header.condemned,
            header.expiry,
            header.name_is,
            header.drops,
            header.view,
            header.replaced_at,
        )
