"""Removes files of a warehouse's folder, under the lock that creation takes too.

Owns: the calls, their order and the lock. Does not own: the choice of files (workers), creation
(`local_object_store`).
Invariants: Names are removed only under the folder's exclusive `flock`, a few at a time, so that no commit waits long.
The folder is synced before the lock is released. Temporary files and other folders' names are never removed. Empty
folders stay, except in the folder of a write by Spark's own writer, which no other writer uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

from typing_extensions import override

from rootline.adapters.object_key_rules import RESERVED_PREFIX, check_key, check_prefix
from rootline.adapters.posix_files import BlockingCalls, unlock_and_close, wait_for_lock
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import spark_folder_of

_PAGE: Final = 1_000
_AT_ONCE: Final = 64
"""Names that are removed under one lock, which takes a millisecond or two."""
_LOCK_WAIT_S: Final = 10.0
_THREADS: Final = 1


class LocalObjectRemover(ObjectRemover):
    """Removes files of the warehouse in the folder `root`. An object's date is the time when its file was written."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._calls = BlockingCalls("rootline-removal", _THREADS)

    def __repr__(self) -> str:
        return f"the folder {self._root}"

    @override
    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        check_prefix(prefix)
        found = await self._calls.run(partial(self._inventory, prefix))
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]

    @override
    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for key in keys:
            check_key(key)
            folder, _, name = key.rpartition("/")
            by_folder[folder].append(name)
        for folder, names in by_folder.items():
            for start in range(0, len(names), _AT_ONCE):
                await self._calls.run(partial(_remove, self._root / folder, names[start : start + _AT_ONCE]))
        for write in {spark_folder_of(key) for key in keys} - {None}:
            await self._calls.run(partial(_remove_empty, self._root / str(write)))

    @override
    async def close(self) -> None:
        """Wait for running calls."""
        await self._calls.close()

    def _inventory(self, prefix: str) -> list[DatedObject]:
        try:
            return sorted(_files(self._root / prefix, prefix), key=attrgetter("key"))
        except OSError as error:
            raise _unavailable(self._root / prefix, error) from error


def _files(folder: Path, prefix: str) -> Iterator[DatedObject]:
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith(RESERVED_PREFIX):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, f"{prefix}{entry.name}/")
        else:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                found = entry.stat(follow_symlinks=False)
                yield DatedObject(ObjectKey(prefix + entry.name), found.st_size, found.st_mtime_ns // 1_000_000)


def _remove(folder: Path, names: Sequence[str]) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unavailable(folder, error) from error
    try:
        wait_for_lock(descriptor, fcntl.LOCK_EX, patience_s=_LOCK_WAIT_S)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)
        os.fsync(descriptor)
    except OSError as error:
        raise _unavailable(folder, error) from error
    finally:
        unlock_and_close(descriptor)


def _remove_empty(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # it is not empty
            Path(folder).rmdir()


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "store-unavailable",
        f"{path}: {error.strerror or error}: give the user of the worker the right to remove files of this folder",
    )
