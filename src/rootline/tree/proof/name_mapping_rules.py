"""Whether the text of a name mapping can be read, and is unambiguous.

Owns: the rule. Does not own: matching columns by a mapping (`rootline.storage.rows.field_matching`).
Invariants: pure; a mapping that passes gives each name of one struct, and each id, at most one place.

Source: the table specification, "Column Projection".
"""

from __future__ import annotations

import json
from typing import Final

_SHOWN_CHARS_MAX: Final = 80


def name_mapping_fault(text: str) -> str | None:
    """What is wrong with the mapping in `text`, as the end of a sentence about it; `None` when nothing is."""
    try:
        pending = [json.loads(text)]
    except (ValueError, RecursionError):
        return f"is no JSON: {text!r:.{_SHOWN_CHARS_MAX}}"
    ids: set[int] = set()
    while pending:
        level = pending.pop()
        if not isinstance(level, list):
            return f"is no list of mappings where one must be: {level!r:.{_SHOWN_CHARS_MAX}}"
        names: set[str] = set()
        for item in level:
            fault = _fault_of(item) or _taken_twice(item, names, ids)
            if fault is not None:
                return fault
            if item.get("fields"):
                pending.append(item["fields"])
    return None


def _fault_of(item: object) -> str | None:
    shown = f"{item!r:.{_SHOWN_CHARS_MAX}}"
    if not isinstance(item, dict):
        return f"holds something that is no object: {shown}"
    names, field_id, fields = item.get("names"), item.get("field-id"), item.get("fields")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return f"holds a mapping that lacks names, a list of texts: {shown}"
    if field_id is not None and (type(field_id) is not int or field_id < 0):
        return f"holds {field_id!r:.{_SHOWN_CHARS_MAX}}, which is no field id: {shown}"
    if fields is not None and not isinstance(fields, list):
        return f"holds a mapping whose fields is no list: {shown}"
    return None


def _taken_twice(item: dict[str, object], names: set[str], ids: set[int]) -> str | None:
    field_id = item.get("field-id")
    if isinstance(field_id, int):
        if field_id in ids:
            return f"is ambiguous: field-id {field_id} is given twice; give it once, with all of its names"
        ids.add(field_id)
    given = item["names"]
    assert isinstance(given, list)  # as checked before
    for name in dict.fromkeys(given):
        if name in names:
            return f"is ambiguous: name {name!r} is given twice in one struct"
        names.add(name)
    return None
