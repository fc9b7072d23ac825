"""Objects as files under a folder, durable and created at most once by `link`.

Owns: the calls, their order and the locks, the list of file systems that are refused. Does not own: keys and absolute
locations (`object_key_rules`), deletion (`local_object_remover`).
Invariants: A name appears only with its whole body, synced. CREATED and EXISTS are returned after the folder was synced
too. A root is returned only after its folder was synced, and so is an object of a folder whose last sync by this
process failed. Only regular files are read. Absolute keys are not written. Creation takes a shared `flock` on the
folder, deletion an exclusive one. Temporary files are never valid keys, and hidden from LIST. A network file system is
refused by its type, because its locks, links and syncs depend on another machine. A file system of unknown type is
allowed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from typing_extensions import override

from rootline.adapters.object_key_rules import FILE_SCHEMES, RESERVED_PREFIX, AbsoluteKeys, check_key, check_prefix
from rootline.adapters.posix_files import (
    BlockingCalls,
    make_durable_folder,
    open_regular,
    read_regular,
    sync_file,
    sync_folder,
    unlock_and_close,
    wait_for_lock,
)
from rootline.ports.object_store import (
    Listing,
    LongObject,
    ObjectFiles,
    ObjectParts,
    ObjectStore,
    ObjectsUpTo,
    Predecessor,
    PutReply,
    PutStatus,
    StoredObject,
)
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import NAMESPACE_FOLDER, is_absolute

_NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb3|smbfs|ncpfs|afs|9p|ceph|glusterfs|lustre|beegfs|davfs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|davfs2|goofys|juicefs|mount-s3)"
)
_MOUNTS: Final = Path("/proc/mounts")


def check_file_system(folder: Path, *, mounts: str | None = None) -> None:
    """Check that `folder` (which need not exist yet) is on a disk of this machine. `mounts`: as in `/proc/mounts`.

    Raises:
        Invalid: `setting-invalid`, naming the file system.
    """
    kind = file_system_of(folder, _mounts() if mounts is None else mounts)
    if kind is not None and _NETWORK.fullmatch(kind):
        raise Invalid(
            "setting-invalid",
            f"{folder} is on a network file system ({kind}), and a commit cannot rely on its locks and links: "
            "use a folder on a disk of this machine, or an s3:// warehouse",
        )


def file_system_of(folder: Path, mounts: str) -> str | None:
    """The type of the file system of `folder`, or `None` if `mounts` does not list it."""
    path = folder.resolve()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[1]))
        # of two mounts at one path, the later one is effective
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), fields[2])
    return None if best is None else best[1]


def is_case_sensitive(folder: Path) -> bool | None:
    """Check whether two names in `folder` may differ only in case. `None`: it contains no name to test with.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return None
    for name in names:
        other = name.swapcase()
        if other == name:
            continue
        return other in names or not (folder / other).exists()
    return None


def _mounts() -> str:
    with contextlib.suppress(OSError):
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    return ""


_ROOTS_FOLDER: Final = "/metadata/roots/"
_LEFTOVER_AGE_S: Final = 3600
_LOCK_WAIT_S: Final = 10.0
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class _FirstName:
    """The first name of a folder, and the folder's state at that time (`_change_of`)."""

    change: tuple[int, int, int]
    name: str


class LocalObjectStore(ObjectStore, ObjectParts, ObjectsUpTo, ObjectFiles):
    """The store of one warehouse in the folder `root`, which the first put creates if it does not exist.

    `absolute_reads`: files outside it are read only below these locations. Empty: anywhere. `case_probe`: whether names
    in a folder may differ only in case. If they may not, `list` and `put_if_absent` raise `Invalid`
    (`name-differs-in-case`) for a table whose name differs only in case from an existing one.
    """

    def __init__(
        self,
        root: Path,
        absolute_reads: Sequence[str] = (),
        case_probe: Callable[[Path], bool | None] = is_case_sensitive,
    ) -> None:
        self._root = root.absolute()
        self._case_probe = case_probe
        self._is_case_sensitive: bool | None = None
        self._tables_of_exact_name: set[tuple[str, ...]] = set()
        self._absolute = AbsoluteKeys.limited(f"the folder {self._root}", FILE_SCHEMES, absolute_reads)
        self._durable_folders: set[Path] = set()
        self._unsynced_folders: set[Path] = set()
        self._first_names: dict[Path, _FirstName] = {}
        self._calls = BlockingCalls("rootline-files", _THREADS)

    def __repr__(self) -> str:
        return f"the folder {self._root}"

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        """Read the whole object. A root is returned only after its folder was synced."""
        found = await self._read(key, None)
        return found if isinstance(found, StoredObject) else None

    @override
    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        return await self._read(key, bytes_max)

    async def _read(self, key: ObjectKey, bytes_max: int | None) -> StoredObject | LongObject | None:
        if is_absolute(key):
            return await self._calls.run(partial(_get_elsewhere, key, Path(self._absolute.place_of(key)), bytes_max))
        check_key(key)
        return await self._calls.run(partial(self._get, key, bytes_max))

    @override
    async def length_of(self, key: ObjectKey) -> int | None:
        return await self._calls.run(partial(_length_at, key, self._path_of(key)))

    @override
    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        return await self._calls.run(partial(_part_at, key, self._path_of(key), start, length))

    @override
    async def path_of(self, key: ObjectKey) -> str | None:
        return await self._calls.run(partial(self._found_at, key, self._path_of(key)))

    @override
    def place_of(self, key: ObjectKey) -> str:
        return str(self._path_of(key))

    @override
    async def make_durable(self, key: ObjectKey) -> None:
        check_key(key)
        await self._calls.run(partial(self._synced, key))

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        check_key(key)
        return await self._calls.run(partial(self._put, key, body, after))

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        check_prefix(prefix)
        return await self._calls.run(partial(self._list, prefix, limit))

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        """The time at which the file was written, by the clock of the machine that wrote it."""
        check_key(key)
        return await self._calls.run(partial(_written_ms, self._root / key))

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        check_prefix(prefix)
        return await self._calls.run(partial(self._folders, prefix))

    @override
    async def close(self) -> None:
        """Wait for running calls. No file stays open between calls."""
        await self._calls.close()

    def _path_of(self, key: ObjectKey) -> Path:
        if is_absolute(key):
            return Path(self._absolute.place_of(key))
        check_key(key)
        return self._root / key

    def _get(self, key: ObjectKey, bytes_max: int | None) -> StoredObject | LongObject | None:
        path = self._root / key
        try:
            body = read_regular(path, bytes_max)
            if body is None:
                return None
            if _ROOTS_FOLDER in f"/{key}" or path.parent in self._unsynced_folders:
                sync_folder(path.parent)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable(path, error) from error
        return _object(key, body)

    def _found_at(self, key: ObjectKey, path: Path) -> str | None:
        if _length_at(key, path) is None:
            return None
        if path.parent in self._unsynced_folders:
            with _read_anywhere(key, path):
                sync_folder(path.parent)
        return str(path)

    def _synced(self, key: ObjectKey) -> None:
        path = self._root / key
        try:
            if not sync_file(path):
                raise FileNotFoundError
            sync_folder(path.parent)
            if path.parent not in self._durable_folders:
                make_durable_folder(path.parent, top=self._root)
                self._durable_folders.add(path.parent)
        except FileNotFoundError as error:
            raise Invalid(
                "file-missing", f"{key!r} does not exist, or is not a regular file. Upload it first"
            ) from error
        except OSError as error:
            raise _unavailable(path, error) from error

    def _list(self, prefix: str, limit: int | None) -> Listing:
        try:
            self._check_case(prefix)
            return Listing(tuple(islice(_walk(self._root / prefix, prefix, limit), limit)), None)
        except OSError as error:
            raise _unavailable(self._root / prefix, error) from error

    def _folders(self, prefix: str) -> Sequence[str]:
        try:
            return [f"{prefix}{name}" for name in sorted(_names_in(self._root / prefix)) if name.endswith("/")]
        except OSError as error:
            raise _unavailable(self._root / prefix, error) from error

    def _put(self, key: ObjectKey, body: bytes, after: Predecessor | None) -> PutReply:
        path = self._root / key
        try:
            self._check_case(key)
            folder = self._open_folder(path.parent)
        except OSError as error:
            raise _unavailable(path, error) from error
        try:
            # only deletion takes it exclusively, for a short time
            wait_for_lock(folder, fcntl.LOCK_SH, patience_s=_LOCK_WAIT_S)
            reply = self._created(folder, path, body, after)
            if reply.answer is PutStatus.EXISTS:
                os.fsync(folder)  # its creator may have died before it synced the name, and the caller relies on it
            return reply
        except OSError as error:
            raise _unavailable(path, error) from error
        finally:
            unlock_and_close(folder)

    def _created(self, folder: int, path: Path, body: bytes, after: Predecessor | None) -> PutReply:
        if after is not None and (refusal := self._refusal(folder, path, after)) is not None:
            return refusal
        if _exists(folder, path.name):
            return PutReply(PutStatus.EXISTS)
        reply = _create(folder, path, body)
        if reply.answer is PutStatus.NO_ANSWER:
            self._unsynced_folders.add(path.parent)
        elif after is not None and reply.answer is PutStatus.CREATED:
            first = min(path.name, path.name if after.key is None else _name_of(after.key))
            self._first_names[path.parent] = _FirstName(_change_of(folder), first)
        return reply

    def _refusal(self, folder: int, path: Path, after: Predecessor) -> PutReply | None:
        """The reply if the first name in `folder` is not the one in `after`. The caller's lock excludes deletion."""
        expected = None if after.key is None else _name_of(after.key)
        known = self._first_names.get(path.parent)
        # The names are listed only when the folder has changed since the last put of this process. A change within the
        # same tick of the file system's clock is missed. It can only be a creation, because nothing is deleted within
        # seconds of its creation, and `link` detects a creation of the same name.
        first = known.name if known is not None and known.change == _change_of(folder) else _first_name(folder)
        if first == expected:
            return None
        if _exists(folder, path.name):
            return PutReply(PutStatus.EXISTS)
        return PutReply(PutStatus.STALE, detail=f"{path.parent}: the first name is {first}, not {expected}")

    def _check_case(self, key: str) -> None:
        """Refuse a namespace or table if a name that differs only in case exists: both would be the same folder."""
        if self._is_case_sensitive is None:
            self._is_case_sensitive = self._case_probe(self._root)
        names = tuple(key.split("/")[:-1][:2])
        if self._is_case_sensitive is not False or names in self._tables_of_exact_name:
            return
        folder = self._root
        for name in names:
            there = (found.removesuffix("/") for found in _names_in(folder))
            if other := next((at for at in there if at != name and at.casefold() == name.casefold()), None):
                named = ".".join(part for part in names if part != NAMESPACE_FOLDER)
                raise Invalid(
                    "name-differs-in-case",
                    f"{named}: {folder / other} exists, and this file system cannot tell {name} from {other}. Use the "
                    "existing name, or a different one",
                )
            folder /= name
        if folder.exists():
            self._tables_of_exact_name.add(names)

    def _open_folder(self, folder: Path) -> int:
        """Open `folder`, and return its descriptor. If it is missing, create it durably with its parents first."""
        if folder in self._durable_folders:
            with contextlib.suppress(FileNotFoundError):
                return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        make_durable_folder(folder, top=self._root)
        _remove_leftovers(folder)
        self._durable_folders.add(folder)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _object(key: ObjectKey, found: bytes | int) -> StoredObject | LongObject:
    return LongObject(found) if isinstance(found, int) else StoredObject(key, found, None, None)


def _get_elsewhere(key: ObjectKey, path: Path, bytes_max: int | None) -> StoredObject | LongObject | None:
    with _read_anywhere(key, path):
        found = read_regular(path, bytes_max)
        return None if found is None else _object(key, found)
    return None


def _length_at(key: ObjectKey, path: Path) -> int | None:
    with _read_anywhere(key, path):
        found = path.stat()
        return found.st_size if stat.S_ISREG(found.st_mode) else None
    return None


def _part_at(key: ObjectKey, path: Path, start: int, length: int) -> bytes | None:
    with _read_anywhere(key, path), open_regular(path) as descriptor:
        return None if descriptor is None else os.pread(descriptor, length, start)
    return None


@contextlib.contextmanager
def _read_anywhere(key: ObjectKey, path: Path) -> Iterator[None]:
    """Translate the errors of a read into Rootline's. A missing file ends the block without an error."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
        if denied and is_absolute(key):  # a retry does not help
            reason = f"{key}: {error.strerror}. Give the user of this process the right to read it"
            raise Invalid("file-unreadable", reason) from error
        raise _unavailable(path, error) from error


def _create(folder: int, path: Path, body: bytes) -> PutReply:
    temporary = f"{RESERVED_PREFIX}-{uuid.uuid4().hex}.tmp"
    try:
        _write_synced(folder, temporary, body)
        os.link(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return PutReply(PutStatus.EXISTS)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
    try:
        os.fsync(folder)
    except OSError as error:
        return PutReply(PutStatus.NO_ANSWER, detail=f"{path}: linked, but its folder was not synced: {error.strerror}")
    return PutReply(PutStatus.CREATED)


def _write_synced(folder: int, name: str, body: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _exists(folder: int, name: str) -> bool:
    return os.access(name, os.F_OK, dir_fd=folder)


def _name_of(key: ObjectKey) -> str:
    return key.rpartition("/")[2]


def _change_of(folder: int) -> tuple[int, int, int]:
    """A value that changes when a name is created in or removed from the folder, or the folder is replaced."""
    found = os.fstat(folder)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _first_name(folder: int) -> str | None:
    return min((name for name in os.listdir(folder) if not name.startswith(RESERVED_PREFIX)), default=None)


def _names_in(folder: Path) -> list[str]:
    """The names in `folder`, with `/` at the end of folders, or an empty list if there is no such folder."""
    try:
        with os.scandir(folder) as found:
            return [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in found
                if not entry.name.startswith(RESERVED_PREFIX)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _walk(folder: Path, prefix: str, limit: int | None) -> Iterator[ObjectKey]:
    """Yield keys in ascending order. A folder sorts as its name with `/`, as the keys in it do."""
    names = _names_in(folder)
    flat = limit is not None and not any(name.endswith("/") for name in names)  # an empty folder yields no key
    for name in heapq.nsmallest(limit or 0, names) if flat else sorted(names):
        if name.endswith("/"):
            yield from _walk(folder / name, prefix + name, limit)
        else:
            yield ObjectKey(prefix + name)


def _remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a crash in `folder` that are older than an hour."""
    oldest_kept_s = time.time() - _LEFTOVER_AGE_S
    with os.scandir(folder) as found:
        leftovers = [entry for entry in found if _is_temporary(entry.name)]
    for entry in leftovers:
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest_kept_s:
                Path(entry.path).unlink()


def _is_temporary(name: str) -> bool:
    return name.startswith(f"{RESERVED_PREFIX}-") and name.endswith(".tmp")


_RIGHTS: Final = "give the user of this process the right to read and write it"
_LIMIT: Final = "raise the limit of open files (`ulimit -n`)"
_NEXT_STEPS: Final = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount the file system for writing",
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.EMFILE: _LIMIT,
    errno.ENFILE: _LIMIT,
    errno.ETIMEDOUT: "the next attempt may succeed; end the other process if it hangs",
}


def _unavailable(path: Path, error: OSError) -> Unavailable:
    step = _NEXT_STEPS.get(error.errno or 0, "check the disk and its file system")
    return Unavailable("store-unavailable", f"{path}: {error.strerror or error}: {step}")


def _written_ms(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1_000_000 if path.is_file() else None
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise _unavailable(path, error) from error
