"""`rootline upgrade`: from then on only versions that know it go on with a lake.

Owns: upgrading an embedded log while no process hosts its coordinator. Does not own: the layouts of its file
(`sqlite/log_layout`), Kafka's part (`kafka/group/upgrade`).
Invariants: nothing changes without `apply`; a second time changes nothing; no log is created.
"""

from __future__ import annotations

import asyncio

from rootline.adapters.local.lake_lock import LakeLock
from rootline.adapters.open import is_kafka, open_lock, open_log, open_topics
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_file import FILE_NAME
from rootline.adapters.upgraded import LakeUpgrade, Upgraded
from rootline.schemas.errors import Invalid, Unavailable


def upgrade_lake(warehouse: str, log: str | None, *, apply: bool) -> LakeUpgrade:
    """How a lake is, and with `apply` upgrade it. Blocks; not on an event loop.

    Raises:
        Invalid: `group-active`, naming the coordinators that run; `setting-invalid`. Fenced: `log-replaced`.
        Unavailable: `log-unavailable`.

    """
    if is_kafka(log):
        return open_topics(log).upgrade(apply=apply)
    return asyncio.run(_upgrade_embedded(warehouse, log, apply))


async def _upgrade_embedded(warehouse: str, log: str | None, apply: bool) -> LakeUpgrade:
    lock = open_lock(warehouse, log)
    if lock is not None and not (lock.folder / FILE_NAME).is_file():
        raise Unavailable(
            "log-unavailable",
            f"{lock.folder / FILE_NAME}: there is no log: check the folder; a log that is new needs no upgrade",
        )
    opened = open_log(log, warehouse)
    if not isinstance(opened, SqliteIntentLog):
        raise Invalid("setting-invalid", f"the log {log} is in memory and needs no upgrade; name another one")
    try:
        return await _upgrade_log(opened, lock, apply)
    finally:
        if lock is not None:
            lock.release()
        await opened.close()


async def _upgrade_log(log: SqliteIntentLog, lock: LakeLock | None, apply: bool) -> LakeUpgrade:
    identity = await log.identity()
    if log.upgraded_from() is not None:
        return LakeUpgrade(identity, Upgraded.BEFORE)
    if lock is not None and not lock.try_acquire():
        who = f"process {lock.holder_pid()}"
        if apply:
            raise Invalid("group-active", f"{identity}: {who} hosts the lake's coordinator; stop it first")
        return LakeUpgrade(identity, Upgraded.NOT_YET, (who,))
    if not apply:
        return LakeUpgrade(identity, Upgraded.NOT_YET)
    await log.upgrade()
    return LakeUpgrade(identity, Upgraded.NOW)
