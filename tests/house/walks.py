"""The product as it runs: which files a warm append goes through, what an import loads. Written as JSON.

A file counts when one of its functions ran, in any thread or task. Each walk is taken a few times and the shortest
counts, because work in the background may fall into a longer one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

HOUSE: Final = Path(__file__).resolve().parents[2]
WARM_APPENDS: Final = 4
TIMES: Final = 3
LOADED: Final = {
    "modules loaded by coordinator.app": "import rootline.coordinator.app",
    "modules loaded by rootline --help": "from rootline.cli.app import main\nsys.argv = ['rootline', '--help']\nmain()",
    "modules loaded by connect": "import rootline\nrootline.connect('nowhere')",
    "modules loaded by Spark's source": "import rootline.spark.data_source",
}
_REPORT: Final = """
import atexit, sys
def report():
    names = [name for name in sys.modules if name.split(".")[0] == "rootline"]
    print("", *(name.replace(".", "/") for name in names), sep="\\n~")
atexit.register(report)
"""


class Walk:
    """The code that runs during an action, in all threads that begin after this is made."""

    def __init__(self) -> None:
        self._is_recording = False
        self._files: set[str] = set()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_recording and event == "call" and frame.f_code.co_name != "<module>":
            self._files.add(frame.f_code.co_filename)

    def shortest(self, action: Callable[[], object], before: Callable[[], object] = lambda: None) -> list[str]:
        """The files of the shortest of a few runs, by their paths in the repository."""
        runs: list[list[str]] = []
        for _ in range(TIMES):
            before()
            self._files = set()
            self._is_recording = True
            action()
            self._is_recording = False
            runs.append(_ours(self._files))
        return min(runs, key=len)


def _ours(files: set[str]) -> list[str]:
    found = {Path(name).resolve() for name in files if name.startswith("/")}
    inside = {path.relative_to(HOUSE) for path in found if path.is_relative_to(HOUSE)}
    return sorted(str(path) for path in inside if path.parts[0] in ("src", "schemas", "coordinator", "workers"))


def walks(folder: str) -> dict[str, list[str]]:
    """Walk → the files."""
    walk = Walk()
    import pyarrow as pa

    import rootline
    from rootline.hosting.rights import rights_of
    from rootline.workers.kinds import BY_HAND, maintain

    rows = pa.table({"carrier": ["UA", "AA", "UA"], "dep_delay": [3, None, 61]})
    with rootline.connect(folder) as lake:
        names = [f"demo.flights_{number}" for number in range(TIMES + 1)]
        tables = [lake.create_table(name, schema=rows.schema, partition_by=["carrier"]) for name in names]
        for each in tables * WARM_APPENDS:
            each.append(rows, timeout_s=60)
        table = tables[0]

        def append() -> None:
            table.append(rows, timeout_s=60)

        async def flushed(session: Any) -> Any:
            async with rights_of(folder, None, session.store) as rights:
                store, log, environment = session.store, session.log, session.environment
                kind = BY_HAND["flush"]
                return await maintain(store, log, environment, table.name, kind, dry_run=False, rights=rights)

        def flush() -> None:
            assert lake.holder.run(flushed).outcome == "committed"

        appended = walk.shortest(append)
        flush()
        flushed_by_hand = walk.shortest(flush, before=append)

    with rootline.connect(folder, coordinator="elsewhere") as reader:  # nothing runs beside the scan

        def scan() -> None:
            assert reader.table(names.pop()).scan(where="dep_delay > 60").to_arrow().num_rows > 0

        scan()
        scanned = walk.shortest(scan)
    return {
        "files that a warm append runs through": appended,
        "files that a filtered scan runs through": scanned,
        "files that a flush by hand runs through": flushed_by_hand,
    }


def loaded(statement: str) -> list[str]:
    """The modules of ours that a fresh process has loaded after the statement, as paths."""
    command = [sys.executable, "-c", _REPORT + statement]
    output = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    return sorted(line[1:] for line in output.splitlines() if line.startswith("~"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = walks(scratch)
        # on a busy machine a scan takes longer than the delay
        never = "from rootline.hosting import on_demand\non_demand.HOST_DELAY_S = 600.0\n"
        flights = f"rootline.connect({scratch!r}).table('demo.flights_0')"
        scan = f"{never}import rootline\n{flights}.scan('dep_delay > 60').count()"
        statements = LOADED | {"modules loaded by a first scan": scan}
        print(json.dumps(found | {name: loaded(statement) for name, statement in statements.items()}))
