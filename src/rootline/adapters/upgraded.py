"""What came of `rootline upgrade`: values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rootline.schemas.log_position import LogId


class Upgraded(StrEnum):
    """When a log was upgraded. The value is what the command line prints."""

    NOT_YET = "not yet"
    NOW = "now"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class LakeUpgrade:
    """`members`: coordinators that run now: to be stopped first, or, if it was upgraded now, to be started again."""

    log: LogId
    upgraded: Upgraded
    members: tuple[str, ...] = ()
