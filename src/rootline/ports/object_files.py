"""Objects that are files of this machine, for readers and writers that work on files themselves: beside `ObjectStore`.

A store that has no such files lacks the methods, and is asked for objects or for parts of them (`object_parts`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rootline.schemas.identifiers import ObjectKey


@runtime_checkable
class ObjectFiles(Protocol):
    """One warehouse in a folder. Raises as `ObjectStore.get` does."""

    async def path_of(self, key: ObjectKey) -> str | None:
        """The path of the regular file that holds the object, to be read only; `None` when there is no such object."""
        ...

    def place_of(self, key: ObjectKey) -> str:
        """The path that the object has, or would have: of a file that another program is to write."""
        ...

    async def make_durable(self, key: ObjectKey) -> None:
        """Of a file that another program wrote: from now on its bytes and the names that lead to it outlive a crash.

        Raises:
            Invalid: `file-missing`.
            Unavailable: `store-unavailable`.

        """
        ...
