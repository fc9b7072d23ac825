"""The product stays within the bounds of `bounds.toml`, and no definition of a module hides another one."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rootline.schemas.intent_rules import IntentKind
from tests.house.house import BOUNDS, Row, bounds, lowered, run_rows, source_rows
from tests.house.named_by import PARTS, decided_by, names_kind, names_part
from tests.house.prose import prose_of
from tests.house.same_code import compared, definitions
from tests.house.source_facts import facts_of
from tests.house.test_sources import ROOMS, python_files

RAISE_IT = "make it fewer, or raise the bound in tests/house/bounds.toml and say why in the commit"


def _above(rows: Iterable[Row]) -> list[str]:
    allowed = bounds()
    found: list[str] = []
    for row in rows:
        bound = allowed[row.name]
        if row.count < bound:
            print(f"{row.name}: lower the bound to {row.count:g}")
        if row.count > bound:
            most = ", ".join(f"{place} {count}" for place, count in row.contributors())
            found.append(f"{row.name}: {row.count:g}, at most {bound:g}: {RAISE_IT}. Most are in: {most}")
    return found


@cache
def _source_rows() -> tuple[Row, ...]:
    return tuple(source_rows())


def test_the_sources_stay_within_the_bounds_of_their_size_and_words() -> None:
    assert _above(_source_rows()) == []


def test_what_runs_and_what_is_loaded_stays_within_its_bounds() -> None:
    assert _above(run_rows()) == []


def test_every_bound_is_that_of_a_row() -> None:
    counted = {row.name for row in _source_rows()}
    assert {name for name in bounds() if name not in counted and "run" not in name and "loaded" not in name} == set()
    assert lowered(BOUNDS.read_text(), [Row("hold, held", 0.5, ())]).count("\nbound = 0.5\n") == 1


def test_no_definition_of_a_module_hides_another_one(house: Path) -> None:
    hidden = {
        f"{path.relative_to(house)}: {name}"
        for path in python_files(house, *ROOMS)
        for name, count in Counter(facts_of(path).bound).items()
        if count > 1 and name != "_"
    }
    assert hidden == set()


def test_code_is_the_same_wherever_it_is_and_whatever_is_said_of_it() -> None:
    before = 'from a import b\n"""Said."""\ndef f(x: int) -> int:\n    "Said."\n    from a import b\n    return b(x)\n'
    after = "def g(x: int) -> int:\n    from c.d import b  # said\n    return b(x)\n"
    ours, theirs = list(definitions("a.py", before, {"f": "g"})), list(definitions("b.py", after, {}))
    assert compared(ours, theirs, diff=False) == ([], [])
    other = list(definitions("b.py", after.replace("b(x)", "b(x + 1)") + "y = 1\n", {}))
    assert compared(ours, other, diff=False)[0] == ["changed    g  a.py -> b.py", "new        y  b.py"]


def test_a_docstring_may_begin_with_whether_only_where_the_answer_is_a_bool() -> None:
    text = '''def a() -> bool:
    """Whether."""
def b() -> str:
    """Whether `x; y`."""
def c() -> None:
    """Do it; then stop.

    Raises:
        Invalid: `one`; `two`.

    """
'''
    found = prose_of(text, __import__("ast").parse(text)).docstrings
    assert [(item.begins_with_a_question, item.has_a_semicolon) for item in found] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_a_file_names_a_part_by_its_types_by_a_field_of_a_header_or_by_its_module(tmp_path: Path) -> None:
    texts = {
        "type": "from rootline.schemas.parts.versions import Expiry\n",
        "field": "def f(header):\n    return header.versions\n",
        "module": "from rootline.tree.parts.versions import VERSIONS\n",
        "other": '"""The expiry."""\nfrom rootline.schemas.parts.log import PartitionOffset\nlake.versions.kept\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [name for name in texts if names_part(tmp_path / name, PARTS["versions"])] == ["type", "field", "module"]
    assert not names_part(tmp_path / "other", PARTS["log"])


def test_a_file_names_a_kind_of_intent_by_its_member_or_by_the_module_that_decides_it(tmp_path: Path) -> None:
    (tmp_path / "member").write_text("x = IntentKind.PURGE\n")
    (tmp_path / "module").write_text("from rootline.tree.intents.create_drop import purge\n")
    (tmp_path / "neither").write_text("purge = 'purge'\n")
    found = [path.name for path in sorted(tmp_path.iterdir()) if names_kind(path, IntentKind.PURGE)]
    assert found == ["member", "module"]
    assert all(pkgutil.resolve_name(name) for kind in IntentKind for name in decided_by(kind))
