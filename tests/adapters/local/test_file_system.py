"""A lake on a network file system is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.local_object_store import check_file_system, file_system_of
from rootline.schemas.errors import Invalid

MOUNTS = r"""/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/share nfs4 rw,vers=4.2 0 0
me@host:/ /mnt/over\040there fuse.sshfs rw 0 0
/dev/sdb1 /mnt/share/disk xfs rw 0 0
tmpfs /mnt/twice tmpfs rw 0 0
//nas/lake /mnt/twice cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/lake", "ext4"),
        ("/mnt/share/lake", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/over there/lake", "fuse.sshfs"),
        ("/mnt/share/disk/lake", "xfs"),
        ("/mnt/twice", "cifs"),
    ],
)
def test_the_innermost_and_latest_mount_is_the_file_system(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize("folder", ["/mnt/share/lake", "/mnt/over there", "/mnt/twice/a/b"])
def test_a_network_file_system_is_refused_with_what_to_do(folder: str) -> None:
    with pytest.raises(Invalid, match=r"network file system.*use a folder on a disk") as refusal:
        check_file_system(Path(folder), mounts=MOUNTS)

    assert refusal.value.code == "setting-invalid"


def test_disks_and_what_is_not_known_are_allowed(tmp_path: Path) -> None:
    check_file_system(Path("/mnt/share/disk/lake"), mounts=MOUNTS)
    check_file_system(Path("/srv/lake"), mounts="")
    check_file_system(tmp_path)
