"""Which type of file system a folder is on, and whether it tells `a` from `A`.

Owns: the list of file systems that a lake may not be on, and the look at names. Does not own: files (`object_store`).
Invariants: looking changes nothing; a network file system is refused by name, because its locks, links and syncs
depend on another machine; an unknown one is allowed.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from rootline.schemas.errors import Invalid

_NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb3|smbfs|ncpfs|afs|9p|ceph|glusterfs|lustre|beegfs|davfs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|davfs2|goofys|juicefs|mount-s3)"
)
_MOUNTS: Final = Path("/proc/mounts")


def check_file_system(folder: Path, *, mounts: str | None = None) -> None:
    """Pass if `folder` (which need not exist yet) is on this machine; `mounts` as in `/proc/mounts`.

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
    """The type of the file system that `folder` is on; `None` if `mounts` does not say."""
    path = folder.resolve()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[1]))
        # of two mounts on one place the later one is in force
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), fields[2])
    return None if best is None else best[1]


def tells_case_apart(folder: Path) -> bool | None:
    """Whether two names in `folder` may differ only in case; `None`: no name is there to find it out with.

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
