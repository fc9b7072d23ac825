"""What the reference model and the plans that it is given share: rejections, and names of leaves."""

from __future__ import annotations


def leaf_of(intent_id: str, what: str, carrier: str | None) -> str:
    """The name of a leaf that an intent brings: one of each sort for each spec."""
    return f"{intent_id}/{what}" if carrier is not None else f"{intent_id}/{what} of all"


class Rejected(Exception):
    """By its code."""

    def __init__(self, code: str) -> None:
        self.code = code
