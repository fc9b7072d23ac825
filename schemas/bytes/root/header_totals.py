"""The header's totals, encoded as a list of numbers."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from rootline.schemas.bytes.root.header_numbers import count_of
from rootline.schemas.root_header import Totals

_NAMES: Final = tuple(field.name for field in fields(Totals))
_numbers: Final = attrgetter(*_NAMES)


def list_of_totals(totals: Totals) -> list[int]:
    """The numbers, in the order of the fields of `Totals`."""
    return list(_numbers(totals))


def totals_of_list(numbers: list[Any]) -> Totals:
    """The totals with exactly these numbers. Raises `ValueError` or `TypeError`."""
    if len(numbers) != len(_NAMES):
        raise ValueError(f"rootline.totals has {len(numbers)} numbers, not {len(_NAMES)}")
    return Totals(*map(count_of, numbers))
