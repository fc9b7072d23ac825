"""Frozen values, made quickly: for the few that are made by the thousand.

Owns: another way to the same constructor. Does not own: the values.
Invariants: what comes out is of the very class, equal to what the class itself makes of the same arguments.

Theory. The constructor of a frozen dataclass goes around its own ban on assignment with one call of
`object.__setattr__` for each field: 1.5 µs for the 16 of a content entry, where plain assignment takes 0.2 µs. A twin
of the class that is not frozen, with the same slots and hence the same layout, assigns its fields and then says that
it is of the frozen class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def quick(made: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
    """The constructor of a frozen dataclass with slots, without `__post_init__`; same arguments, same defaults."""
    frozen: Any = made

    def freeze(value: Any) -> None:
        value.__class__ = frozen

    members: list[Any] = [
        (item.name, Any)
        if item.default is MISSING and item.default_factory is MISSING
        else (
            item.name,
            Any,
            field(default=item.default)
            if item.default_factory is MISSING
            else field(default_factory=item.default_factory),
        )
        for item in fields(frozen)
    ]
    twin: Any = make_dataclass(frozen.__name__, members, slots=True, namespace={"__post_init__": freeze})
    return twin  # type: ignore[no-any-return]  # a class is the constructor of its values
