"""The peers' software, in an environment of its own below this repository: `.venv-peers`.

Owns: which packages, their environment. Does not own: the versions (`constraints.txt` beside this file), Iceberg Java
(`iceberg_java`), the services (`tests.services`).
Invariants: the product's environment is not changed; an environment of other versions is replaced.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ENVIRONMENT: Final = HERE.parent.parent / ".venv-peers"
CONSTRAINTS: Final = HERE / "constraints.txt"
PACKAGES: Final = (
    "pyiceberg[pyiceberg-core,s3fs,sql-sqlite]",
    "deltalake",
    "pyarrow",
    "duckdb",
    "duckdb-extension-ducklake",
    "duckdb-extension-httpfs",
    "duckdb-extension-postgres-scanner",
    "duckdb-extension-sqlite-scanner",
)


def peers_ready() -> bool:
    """Whether the peers' environment is there, with these versions."""
    ready = ENVIRONMENT / "ready"
    return ready.exists() and ready.read_text() == _digest()


def peers_python() -> str:
    """The interpreter of the peers' environment, which is made now if it is not there."""
    python = ENVIRONMENT / "bin/python"
    if not peers_ready():
        print(f"installing the peers into {ENVIRONMENT.name} (about a minute)", flush=True)
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--progress-bar", "off", "-c", str(CONSTRAINTS)]
        subprocess.run([*install, *PACKAGES], check=True)
        (ENVIRONMENT / "ready").write_text(_digest())
    return str(python)


def _digest() -> str:
    return hashlib.sha256((CONSTRAINTS.read_text() + " ".join(PACKAGES)).encode()).hexdigest()


if __name__ == "__main__":
    peers_python()
