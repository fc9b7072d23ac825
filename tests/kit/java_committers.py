"""Flink's and Kafka Connect's committers as a program in Java (`Committers.java`), run beside a catalog that is served.

Owns: compiling the program, its process, asking it. Does not own: the jars (`compatibility_kit`), the catalog.
Invariants: the program is compiled by Eclipse's compiler, which needs no JDK. It is stopped by its process id, and ends
with the tests also when these are killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.kit.compatibility_kit import kit_jars
from tests.services.cached_software import cached, carry_out
from tests.services.java_runtime import java_runtime
from tests.services.process_bond import bound

_SOURCE: Final = Path(__file__).with_name("Committers.java")
_NAME: Final = "the program with Iceberg's Java client"
_DEADLINE_S: Final = 120.0
_STOP_S: Final = 30.0


class JavaCommitters:
    """The running program."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def commit(self, table: str, **words: Any) -> dict[str, str]:
        """The outcome of a commit: `committed`, or the name of Java's exception with its message."""
        return self.ask(do="commit", table=table, **words)

    def race(self, *commits: dict[str, Any]) -> list[dict[str, str]]:
        """The outcomes of commits that were all made ready on the same version."""
        found: list[dict[str, str]] = self.ask(do="race", commits=commits)["outcomes"]
        return found

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        assert "failed" not in answer, answer
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        found, deadline = b"", time.monotonic() + _DEADLINE_S
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            if not part:
                why = "ended" if ready else f"did not answer within {_DEADLINE_S:.0f} s"
                raise RuntimeError(f"{_NAME} {why}: {self._log.read_text(errors='replace')[-2000:]}")
            found += part
        return found


@contextmanager
def running_committers(url: str, folder: Path) -> Iterator[JavaCommitters]:
    """The program as a client of the catalog's warehouse `own`, until the block ends. Its log is in `folder`."""
    java, log = java_runtime(_NAME), folder / "committers.log"
    classes = f"{_classes(java.command)}{os.pathsep}{kit_jars()}/*"
    quick = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [java.command, *quick, quiet, "-cp", classes, "Committers", url, "own"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    with bound(process.pid):
        try:
            yield JavaCommitters(process, log)
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _classes(java: str) -> Path:
    jars = kit_jars()

    def compiled(folder: Path) -> Path:
        words = ("-17", "-proc:none", "-nowarn", "-d", "classes", "-cp", os.pathsep.join(map(str, jars.glob("*.jar"))))
        [compiler] = jars.glob("ecj-*.jar")
        command = [java, "-cp", str(compiler), "org.eclipse.jdt.internal.compiler.batch.Main", *words, str(_SOURCE)]
        carry_out(_NAME, "compiling it, once", command, folder, timeout_s=120)
        return folder / "classes"

    digest = hashlib.sha256(_SOURCE.read_bytes() + jars.name.encode()).hexdigest()[:12]
    with cached("java-committers", digest, compiled) as classes:
        return classes
