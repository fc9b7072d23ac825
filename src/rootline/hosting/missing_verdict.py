"""Why no verdict comes: which log, whether a coordinator was seen on it, how to start one.

Owns: what a process without a coordinator of its own can find out, cheaply. Does not own: what a host knows about its
own coordinator (`embedded_host`), the error itself (`rootline.client.producer`).
Invariants: never raises, and answers within a few seconds; a password is never in a URL, so URLs are shown as they are.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Final

from rootline.adapters.open import is_kafka, local_folder, log_name, open_lock, open_topics
from rootline.adapters.posix_files import LakeLock
from rootline.schemas.errors import RootlineError

_PATIENCE_S: Final = 3.0


def how_to_start(warehouse: str, log: str | None) -> str:
    """The command that starts a coordinator of this lake."""
    words = ["rootline", "up", "--warehouse", warehouse, *([] if log is None else ["--log", log])]
    return f"start one: {shlex.join(words)}"


async def seen_from_outside(warehouse: str, log: str | None) -> str:
    """What is known about coordinators in other processes."""
    try:
        if not is_kafka(log):
            return f"log {log_name(log, warehouse)}: {seen_at_lock(open_lock(warehouse, log), warehouse, log)}"
        members = await asyncio.to_thread(open_topics(log).group_members, timeout_s=_PATIENCE_S)
    except RootlineError as error:
        return f"log {log or warehouse}: whether a coordinator runs cannot be found out: {error.message}"
    where = f"log {log_name(log, warehouse)}"
    if not members:
        return f"{where} has no member in it, so no coordinator runs: {how_to_start(warehouse, log)}"
    return f"{where} has {members} member(s) in it, so a coordinator runs: see its log lines and its /readyz"


def seen_at_lock(lock: LakeLock | None, warehouse: str, log: str | None) -> str:
    """What the lock says of its holder."""
    if lock is None:
        return f"it is in memory, and no coordinator is hosted here: {_connect_instead(warehouse, log)}"
    if lock.is_held():
        return f"process {lock.holder_pid()} hosts the coordinator: see its log lines"
    return f"no process hosts a coordinator: {how_to_start(warehouse, log)}, or {_connect_instead(warehouse, log)}"


def _connect_instead(warehouse: str, log: str | None) -> str:
    what = str(local_folder(warehouse) or warehouse)
    return f"open the lake with rootline.connect({what!r}{'' if log is None else f', log={log!r}'}) to host it"
