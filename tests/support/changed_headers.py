"""Changes of a root's header, for tests of what notices them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rootline.schemas.root_header import RootHeader

HeaderChange = Callable[[RootHeader], RootHeader]


def of_header(**members: object) -> HeaderChange:
    """Set fields of the header itself."""
    return lambda header: dataclasses.replace(header, **members)  # type: ignore[arg-type]


def of_part(name: str, **members: object) -> HeaderChange:
    """Set fields of one part of the header, or of its snapshot."""
    return lambda header: dataclasses.replace(header, **{name: dataclasses.replace(getattr(header, name), **members)})
