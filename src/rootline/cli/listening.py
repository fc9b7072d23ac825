"""The error of a port that cannot be listened on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rootline.schemas.errors import Invalid


@contextlib.contextmanager
def port_refused(what: str, host: str, port: int, option: str) -> Iterator[None]:
    """An `OSError` of the block as `Invalid` (`setting-invalid`); `option` is how the caller names another port."""
    try:
        yield
    except OSError as error:
        raise Invalid(
            "setting-invalid",
            f"{what} cannot listen on {host}:{port}: {error.strerror or error}; give another {option}, or 0 to let the "
            "system pick one",
        ) from error
