"""Removal in batches: what cannot be removed holds nothing else back, and is told at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from rootline.ports.object_remover import ObjectRemover
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey

FAILING_S_MAX: Final = 60.0
"""After failures that took so long together the rest waits for the next look: a store that is away answers slowly."""


async def remove_batches(
    remover: ObjectRemover, batches: AsyncIterator[Sequence[ObjectKey]], monotonic_s: Callable[[], float]
) -> Unavailable | None:
    """Remove all that goes; the first error if anything was left. An error of `batches` is raised."""
    left: Unavailable | None = None
    failing_s = 0.0
    async for keys in batches:
        began_s = monotonic_s()
        try:
            await remover.remove(keys)
        except Unavailable as error:
            left = left or error
            failing_s += monotonic_s() - began_s
            if failing_s > FAILING_S_MAX:
                break
    return left


async def in_batches(keys: Sequence[ObjectKey], size: int) -> AsyncIterator[Sequence[ObjectKey]]:
    """`keys`, at most `size` at a time."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
