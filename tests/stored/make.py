"""Makes the lakes in tests/golden/stored with the code of today.

`python -m tests.stored.make folder kafka` replaces both; name one to replace only that. Run it when a format gains
something that the stored lakes lack, in a commit of its own: what an older version wrote is then no longer tested. To
keep it, store the new lakes under other names.

Owns: where the lakes are while they are made, and packing. Does not own: their content (`story`).
Invariants: no test runs this file; a lake is packed when every process that writes to it has ended.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rootline.connect import connect
from tests.stored.stored_lake import STORED
from tests.stored.story import decide_all, facts_of, fill, publish_rejected, publish_undecided, put_in_folder


def make_folder(work: Path) -> None:
    """A warehouse in a folder, with the embedded log."""
    lake_folder = work / "folder"
    with connect(lake_folder) as lake:
        facts = fill(lake, str(lake_folder), None, put_in_folder(lake_folder))
    with connect(lake_folder, coordinator="elsewhere") as lake:
        publish_rejected(lake)
    with connect(lake_folder) as lake:
        decide_all(lake)
        facts |= facts_of(lake)
    with connect(lake_folder, coordinator="elsewhere") as lake:
        facts["undecided"] = publish_undecided(lake)
    pack(lake_folder, facts)


def pack(lake_folder: Path, facts: dict[str, Any]) -> None:
    """Store the folder under its name, and its facts beside it."""
    STORED.mkdir(parents=True, exist_ok=True)
    with tarfile.open(STORED / f"{lake_folder.name}.tar.xz", "w:xz", preset=9) as packed:
        packed.add(lake_folder, lake_folder.name, filter=_plain)
    text = json.dumps({"more": {}, **facts}, separators=(",", ":")).encode()
    (STORED / f"{lake_folder.name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names of whoever made it."""
    item.uid = item.gid = 0
    item.uname = item.gname = ""
    return item


def main(*names: str) -> None:
    makers = {"folder": make_folder}
    for name in names or makers:
        work = Path(tempfile.mkdtemp(prefix="stored-lake-"))
        try:
            makers[name](work)
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
