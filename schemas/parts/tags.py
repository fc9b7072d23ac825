"""The part `tags`: names for versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of, object_in

TAGS_KEY: Final = "rootline.tags"


def _decode(metadata: Mapping[str, bytes]) -> Mapping[str, int]:
    return {tag: count_of(version) for tag, version in object_in(metadata, TAGS_KEY).items()}


TAGS: Final[HeaderPart[Mapping[str, int]]] = HeaderPart("tags", {TAGS_KEY: lambda tags: json_of(dict(tags))}, _decode)
