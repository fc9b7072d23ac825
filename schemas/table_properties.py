"""The table properties that Rootline reads: their names, and the valid values of each.

Owns: the table of names, kinds and bounds, the reason why a value is invalid, parsing of numbers and switches. Does
not own: defaults and meanings (the modules that read them), the time of the check
(`rootline.tree.proof.definition_rules`).
Invariants: one rule for the coordinator, clients and readers. An unknown name below `rootline.` is a fault, because a
misspelt name would be ignored silently.

Source: docs/operations.md, "Table properties"; decision 0010.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY

ADOPTED_FROM: Final = "rootline.adopted-from"
"""The location of the metadata from which the table was adopted, with the history before the adoption."""
CASE_PROPERTY: Final = "rootline.names.case-sensitive"
"""Whether columns of one struct may have names that differ only in case."""
_PREFIX: Final = "rootline."
_SHOWN_CHARS_MAX: Final = 80
_NUMBER_MAX: Final = 2**31 - 1
_SECONDS_MAX: Final = 100 * 366 * 86_400
_WORDS_MAX: Final = 8
_ROWS_MAX: Final = 999_999_999_999

Fault = Callable[[str], str | None]
"""The reason why a text cannot be a property's value, as the end of a sentence; `None` when it can."""


def _number(most: int = _NUMBER_MAX, least: int = 1) -> Fault:
    def fault(text: str) -> str | None:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        return None if digits and least <= int(text) <= most else f"it must be a number from {least} to {most}"

    return fault


def _one_of(*words: str) -> Fault:
    said = f"{', '.join(words[:-1])} or {words[-1]}"
    return lambda text: None if text in words else f"it must be {said}"


_SWITCH: Final = _one_of("true", "false")


def name_mapping_fault(text: str) -> str | None:
    """The reason why `text` is not a name mapping, or is ambiguous. `None` if it is valid."""
    try:
        pending = [json.loads(text)]
    except (ValueError, RecursionError):
        return "it must be JSON, a list of mappings"
    ids: set[int] = set()
    while pending:
        level = pending.pop()
        if not isinstance(level, list):
            return f"it has {level!r:.{_SHOWN_CHARS_MAX}} where a list of mappings must be"
        names: set[str] = set()
        for item in level:
            fault = _fault_of_mapping(item) or _taken_twice(item, names, ids)
            if fault is not None:
                return fault
            if item.get("fields"):
                pending.append(item["fields"])
    return None


def _fault_of_mapping(item: object) -> str | None:
    shown = f"{item!r:.{_SHOWN_CHARS_MAX}}"
    if not isinstance(item, dict):
        return f"it has {shown} where an object must be"
    names, field_id, fields = item.get("names"), item.get("field-id"), item.get("fields")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return f"it has a mapping that lacks names, a list of texts: {shown}"
    if field_id is not None and (type(field_id) is not int or field_id < 0):
        return f"it has {field_id!r:.{_SHOWN_CHARS_MAX}} where a field id must be: {shown}"
    if fields is not None and not isinstance(fields, list):
        return f"it has a mapping whose fields are not a list: {shown}"
    return None


def _taken_twice(item: dict[str, object], names: set[str], ids: set[int]) -> str | None:
    field_id = item.get("field-id")
    if isinstance(field_id, int):
        if field_id in ids:
            return f"it is ambiguous, field-id {field_id} is given twice: give it once, with all of its names"
        ids.add(field_id)
    given = item["names"]
    assert isinstance(given, list)  # as checked before
    for name in dict.fromkeys(given):
        if name in names:
            return f"it is ambiguous, name {name!r} is given twice in one struct: give it once"
        names.add(name)
    return None


def _words_fault(text: str) -> str | None:
    words = [word.strip() for word in text.split(",")]
    fits = all(words) and len(set(words)) == len(words) and len(words) <= _WORDS_MAX and text.isprintable()
    return None if fits else f"it must be 1 to {_WORDS_MAX} different words with commas between them"


def _by_adoption(_text: str) -> str:
    return "only an adoption sets it, and exports read the history of before from there: leave it out"


PROPERTIES: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        ADOPTED_FROM: _by_adoption,
        "rootline.append.leaf-files": _number(),
        "rootline.compact.adopted": _SWITCH,
        "rootline.compact.data": _SWITCH,
        "rootline.compact.data-bytes": _number(),
        "rootline.compact.data-deleted-percent": _number(100),
        "rootline.compact.data-files": _number(1_000),
        "rootline.compact.data-target-bytes": _number(),
        "rootline.compact.dead-percent": _number(100),
        "rootline.compact.leaves": _number(),
        "rootline.compact.root-vector-bytes": _number(),
        "rootline.compact.vector-bytes": _number(),
        "rootline.compact.vector-files": _number(),
        "rootline.convert.bytes": _number(2**40 - 1),
        "rootline.convert.deletes": _number(),
        "rootline.convert.equality-deletes": _SWITCH,
        "rootline.convert.files": _number(2_500),
        "rootline.convert.rows": _number(),
        "rootline.drop.retention-seconds": _number(),
        "rootline.expire": _SWITCH,
        "rootline.expire.all-seconds": _number(_SECONDS_MAX),
        "rootline.expire.all-versions": _number(),
        "rootline.expire.by-hour-seconds": _number(_SECONDS_MAX),
        "rootline.expire.by-minute-seconds": _number(_SECONDS_MAX),
        "rootline.expire.every-commits": _number(),
        "rootline.expire.root-retention-seconds": _number(least=600),
        "rootline.export.format": _one_of("2", "3"),
        "rootline.export.snapshots": _number(1_000),
        "rootline.flush.bytes": _number(),
        "rootline.flush.data-files": _number(),
        "rootline.flush.delete-leaves": _number(),
        "rootline.flush.hard-bytes": _number(2**33),
        "rootline.flush.hard-entries": _number(2**33),
        "rootline.flush.leaf-entries": _number(65_536),
        "rootline.flush.retained-bytes": _number(2**50),
        "rootline.flush.vector-bytes": _number(),
        "rootline.flush.vectors": _number(),
        CASE_PROPERTY: _SWITCH,
        "rootline.rest.progress-keys": _words_fault,
        "rootline.rows.file-max": _number(_ROWS_MAX),
        "rootline.rows.intent-max": _number(_ROWS_MAX),
        "rootline.sweep": _SWITCH,
        "rootline.sweep.client-files": _SWITCH,
        "rootline.sweep.interval-s": _number(),
        "rootline.sweep.orphan-age-s": _number(),
        "rootline.sweep.scan-retention-s": _number(),
        "rootline.verify.files": _one_of("none", "footer"),
        NAME_MAPPING_PROPERTY: name_mapping_fault,
    }
)
"""Name → rule. Code that reads a property must add its row, or no table can set it."""


def property_fault(name: str, text: str) -> str | None:
    """The reason why a table cannot set property `name` to `text`, as a sentence with the next step."""
    rule = PROPERTIES.get(name)
    if rule is not None:
        fault = rule(text)
        return None if fault is None else f"table property {name} is {text[:40]!r}; {fault}"
    if not name.startswith(_PREFIX):
        return None
    nearest = get_close_matches(name[:200], PROPERTIES, n=1, cutoff=0.0)
    return (
        f"table property {name[:200]!r} does not exist; did you mean {nearest[0]}? Names below {_PREFIX} are "
        "Rootline's: correct it, or choose a name that begins otherwise"
    )


def faults_of_set(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """The faults of the properties that `after` adds or changes.

    A property that was already invalid does not block other changes.
    """
    for name, text in after.items():
        fault = None if before.get(name) == text else property_fault(name, text)
        if fault is not None:
            yield fault


def check_set(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `Invalid` (`property-invalid`) if `after` adds or changes a property to an invalid value."""
    for fault in faults_of_set(before, after):
        raise Invalid("property-invalid", fault)


def check_adopted(properties: Mapping[str, str]) -> None:
    """Check all properties of a table that is adopted, except the one that names the metadata of its source, which no
    user may set.
    """
    check_set({name: text for name, text in properties.items() if name == ADOPTED_FROM}, properties)


def usable(properties: Mapping[str, str], name: str) -> str | None:
    """The value of property `name`, or `None` when it is not set or is invalid.

    Only tables that are older than the check of values have invalid ones. A reader then uses the property's default. If
    the default could delete something, it must use `checked` instead.
    """
    text = properties.get(name)
    return None if text is None or PROPERTIES[name](text) is not None else text


def checked(properties: Mapping[str, str], name: str) -> str | None:
    """The value of property `name`, or `None` when it is not set.

    Raises:
        Invalid: `property-invalid`, the value is invalid. The default is not used, because it could delete something.
    """
    text = properties.get(name)
    fault = None if text is None else property_fault(name, text)
    if fault is not None:
        raise Invalid("property-invalid", fault)
    return text


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set or is unusable."""
    text = usable(properties, name)
    return default if text is None else int(text)


def switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`, or `default` when it is not set or is unusable."""
    text = usable(properties, name)
    return default if text is None else text == "true"


def checked_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set. Raises `Invalid` (`property-invalid`)."""
    text = checked(properties, name)
    return default if text is None else int(text)


def checked_switch(properties: Mapping[str, str], name: str) -> bool:
    """Whether property `name` is `true`. Raises `Invalid` (`property-invalid`)."""
    return checked(properties, name) == "true"
