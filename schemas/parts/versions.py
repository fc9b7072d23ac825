"""The part `versions`: the versions of the table that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import Version
from rootline.schemas.parts.header_part import HeaderPart, count_of, decimal_of, json_of, list_in, number_of
from rootline.schemas.parts.page_reference import PageReference, json_of_page, page_of_json

OLDEST_VERSION_KEY: Final = "rootline.oldest-version"
EXPIRY_KEY: Final = "rootline.expiry"


class Expiry(NamedTuple):
    """The expiry of old versions. `given_up_bytes`: total size of all roots that can no longer be read.

    `kept`: the page of older versions that are still readable, including every tagged one, or `None` if there are none.
    """

    given_up_bytes: int
    kept: PageReference | None = None


@dataclass(frozen=True, slots=True)
class ReadableVersions:
    """The versions that can be read: `oldest` and all later ones, and the earlier ones that the page of `expiry` lists.
    `expiry`: `None` if every version since the first can be read.
    """

    oldest: Version = Version(0)
    expiry: Expiry | None = None

    @property
    def expired_bytes(self) -> int:
        """Total size of all roots that can no longer be read."""
        return 0 if self.expiry is None else self.expiry.given_up_bytes

    @property
    def retained_page(self) -> PageReference | None:
        """The page of readable versions before `oldest`, or `None` if there are none."""
        return None if self.expiry is None else self.expiry.kept


def _encode_expiry(versions: ReadableVersions) -> bytes | None:
    if versions.expiry is None:
        return None
    given_up_bytes, kept = versions.expiry
    return json_of([given_up_bytes, None if kept is None else json_of_page(kept)])


def _decode(metadata: Mapping[str, bytes]) -> ReadableVersions:
    return ReadableVersions(
        Version(decimal_of(metadata[OLDEST_VERSION_KEY])),
        _expiry(*list_in(metadata, EXPIRY_KEY)) if EXPIRY_KEY in metadata else None,
    )


def _expiry(given_up_bytes: Any, kept: Any) -> Expiry:
    return Expiry(count_of(given_up_bytes), None if kept is None else page_of_json(*kept))


VERSIONS: Final[HeaderPart[ReadableVersions]] = HeaderPart(
    "versions",
    {OLDEST_VERSION_KEY: lambda versions: number_of(versions.oldest), EXPIRY_KEY: _encode_expiry},
    _decode,
    needs_profile_2=lambda versions: versions.expiry is not None,
)
