"""Frozen values, made quickly: for the few classes of which thousands are made.

Owns: another way to the same constructor. Does not own: the values.
Invariants: what comes out is of the class itself, and equal to what its own constructor makes of the same arguments.

Theory. The constructor of a frozen dataclass goes around its own ban on assignment with one call of
`object.__setattr__` for each field: 1.5 µs for the 16 of a content entry, where plain assignment takes 0.2 µs. A twin
of the class that is not frozen, with the same slots and so the same layout, assigns its fields and then changes its
class to the frozen one. Its constructor is compiled from source, as that of any dataclass is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def quick(made: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
    """The constructor of a frozen dataclass with slots, without `__post_init__`; same arguments, same defaults."""
    frozen: Any = made
    members = fields(frozen)
    known: dict[str, Any] = {"frozen": frozen, "MISSING": MISSING}
    known |= {f"default_{item.name}": item.default for item in members}
    known |= {f"make_{item.name}": item.default_factory for item in members}
    lines = [
        f"def __init__(self, {', '.join(map(_parameter, members))}):",
        *map(_assignment, members),
        "    self.__class__ = frozen",
    ]
    exec("\n".join(lines), known)
    names = tuple(item.name for item in members)
    return type(frozen.__name__, (), {"__slots__": names, "__init__": known["__init__"]})


def _parameter(item: Field[Any]) -> str:
    if item.default is not MISSING:
        return f"{item.name}=default_{item.name}"
    return item.name if item.default_factory is MISSING else f"{item.name}=MISSING"


def _assignment(item: Field[Any]) -> str:
    if item.default_factory is MISSING:
        return f"    self.{item.name} = {item.name}"
    return f"    self.{item.name} = make_{item.name}() if {item.name} is MISSING else {item.name}"
