"""The part `restores`: the last restore, the last replace, and the last change of the definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.identifiers import SequenceNumber, Version
from rootline.schemas.parts.header_part import HeaderPart, decimal_of, number_of

RESTORED_AT_KEY: Final = "rootline.restored-at"
REPLACED_AT_KEY: Final = "rootline.replaced-at"
REDEFINED_IN_KEY: Final = "rootline.redefined-in"


@dataclass(frozen=True, slots=True)
class Restores:
    """The latest changes after which a plan made on an older version may not fit the table any more.

    * `restored_at`: the sequence number of the last restore, 0 without one. It may have restored rows, and their
      entries do not have a new sequence number.
    * `replaced_at`: the sequence number of the last replace, 0 without one. It removed all earlier entries.
    * `redefined_in`: the version that last changed the table's definition, or `None` if it never changed.
    """

    restored_at: SequenceNumber = SequenceNumber(0)
    replaced_at: SequenceNumber = SequenceNumber(0)
    redefined_in: Version | None = None

    @property
    def through(self) -> SequenceNumber:
        """The sequence number of the last restore or replace, whichever is later. Rewrites up to that number may have
        been undone.
        """
        return max(self.restored_at, self.replaced_at)


def _decode(metadata: Mapping[str, bytes]) -> Restores:
    return Restores(
        SequenceNumber(decimal_of(metadata.get(RESTORED_AT_KEY, b"0"))),
        SequenceNumber(decimal_of(metadata.get(REPLACED_AT_KEY, b"0"))),
        Version(decimal_of(metadata[REDEFINED_IN_KEY])) if REDEFINED_IN_KEY in metadata else None,
    )


RESTORES: Final[HeaderPart[Restores]] = HeaderPart(
    "restores",
    {
        RESTORED_AT_KEY: lambda restores: number_of(restores.restored_at) if restores.restored_at else None,
        REPLACED_AT_KEY: lambda restores: number_of(restores.replaced_at) if restores.replaced_at else None,
        REDEFINED_IN_KEY: lambda restores: None if restores.redefined_in is None else number_of(restores.redefined_in),
    },
    _decode,
    needs_profile_2=lambda restores: restores.redefined_in is not None or restores.replaced_at > 0,
)
