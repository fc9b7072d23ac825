"""An object of the store as a file that Arrow reads on a thread, part by part.

Owns: the position, and the wait for a part. Does not own: what is read (`data_files`), the store's requests.
Invariants: used on one thread beside the loop's own; holds no part; every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import io
from typing import Final

from rootline.ports.object_store import ObjectParts
from rootline.schemas.errors import RootlineError, Unavailable
from rootline.schemas.identifiers import ObjectKey

_WAIT_S: Final = 300.0


class ObjectFile(io.RawIOBase):
    """`key`, of `length` bytes. `failed`: why a part could not be read, which Arrow may have said in other words."""

    def __init__(self, parts: ObjectParts, key: ObjectKey, length: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._parts, self._key, self._length, self._loop = parts, key, length, loop
        self._at = 0
        self.failed: RootlineError | None = None

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As `io.RawIOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        """Where the next part begins."""
        return self._at

    def size(self) -> int:
        """The object's length."""
        return self._length

    def read(self, size: int | None = -1) -> bytes:
        """The next part; shorter only at the end. Raises what the store does."""
        left = max(0, self._length - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        asked = asyncio.run_coroutine_threadsafe(self._parts.part_of(self._key, self._at, wanted), self._loop)
        try:
            found = asked.result(_WAIT_S)
        except RootlineError as error:
            self.failed = error
            raise
        except TimeoutError:
            asked.cancel()
            self.failed = Unavailable("store-unavailable", f"{self._key}: no answer within {_WAIT_S:.0f} s")
            raise self.failed from None
        body = found or b""
        self._at += len(body)
        return body
