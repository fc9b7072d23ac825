"""The Java that the machine has, for whatever needs one.

Owns: looking for it. Does not own: installing it (`make setup-java`).
Invariants: one that is missing or too old fails the tests with one line that says what to install.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEEDED = 17


@dataclass(frozen=True)
class JavaRuntime:
    """A `java` command, and a name for its very version."""

    command: str
    version: str


def java_runtime(what: str, *, instead: str = "") -> JavaRuntime:
    """The Java that `what` shall run on: JAVA_HOME's, else the path's."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin/java")) if home else shutil.which("java")
    said = ""
    if java is not None and shutil.which(java):
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r' version "(\d+)', said)
    if java is None or found is None or int(found[1]) < _NEEDED:
        pytest.fail(
            f"{what} needs Java: install Java {_NEEDED} or newer (openjdk-17-jre-headless){instead}", pytrace=False
        )
    return JavaRuntime(java, f"{found[1]}-{hashlib.sha256(said.encode()).hexdigest()[:8]}")
