"""What a client of Spark Connect needs beside PySpark, fetched once through pip into a folder beside our environment.

Owns: which software, and its folder. Does not own: the cache (`cached_software`), the server and the client
(`test_connect`).
Invariants: our own environment is not touched; what it has already is not fetched.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.services.cached_software import cached, carry_out

GRPC = "1.76.0"
_PACKAGES = (f"grpcio=={GRPC}", f"grpcio-status=={GRPC}")
_NO_PINS = {"PIP_CONSTRAINT": "", "PIP_BUILD_CONSTRAINT": ""}


def connect_packages() -> Path:
    """A folder for `PYTHONPATH`, from the cache or fetched into it."""
    with cached("spark-connect", f"{GRPC}-{sys.version_info.major}.{sys.version_info.minor}", _fetch) as folder:
        return folder


def _fetch(folder: Path) -> Path:
    whole = folder / "whole"
    install = [sys.executable, "-m", "pip", "install", "-q", "--progress-bar", "off", "--no-deps"]
    what = "installing gRPC for Spark Connect, once (7 MB)"
    command = [*install, "--target", str(whole), *_PACKAGES]
    carry_out("Spark Connect", what, command, folder, timeout_s=600, environment=_NO_PINS)
    return whole
