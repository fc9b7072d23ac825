"""The files that name one part of a root's header, and those that name one kind of intent.

Owns: the names of each part, before and after it has a module of its own, and finding them. Does not own: bounds
(`house`).
Invariants: a file counts once for a part, however often it names it. Docstrings and comments do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rootline.schemas.intent_rules import IntentKind

ENGINE: Final = ("schemas/", "src/rootline/tree/", "src/rootline/storage/metadata/", "coordinator/")


@dataclass(frozen=True, slots=True)
class Part:
    """The names of a part.

    `names`: identifiers that mean it wherever they are. `fields`: attributes that mean it after a header, because the
    words mean other things elsewhere. `modules`: the last names of modules that an import names.
    """

    names: frozenset[str]
    fields: frozenset[str]
    modules: frozenset[str]

    @staticmethod
    def of(names: str, fields: str = "", modules: str = "") -> Part:
        """A part of words that are divided by blanks."""
        return Part(frozenset(names.split()), frozenset(fields.split()), frozenset(modules.split()))


PARTS: Final[Mapping[str, Part]] = {
    "log": Part.of("log_time LogTime ClockJump LogProgress mark_at", "offsets marks log", "parts.log log_time"),
    "outcomes": Part.of(
        "Outcomes OutcomeRun OutcomeException RecordedOutcomes OutcomeDraft outcome_pages outcomes",
        "",
        "parts.outcomes ledger.outcomes outcome_page",
    ),
    "ledger": Part.of(
        "WriterRecord CommittedRun RejectedSequence ContentDigest HeaderLedger WriterLedger LedgerDraft ledger_pages"
        " ledger",
        "contents",
        "parts.ledger ledger.ledger ledger.contents ledger_page header_ledger",
    ),
    "versions": Part.of(
        "oldest_version expiry Expiry ReadableVersions expired_bytes given_up_bytes RetainedPage",
        "versions kept",
        "parts.versions kept_page",
    ),
    "tags": Part.of("tags", "", "parts.tags"),
    "restores": Part.of("restored_at replaced_at redefined_in Restores", "restores", "parts.restores"),
    "locations": Part.of(
        "horizon_ms condemned Condemned Retired RetiredSince NOTHING_RETIRED NewlyRetired Locations",
        "locations left",
        "parts.locations left_page condemned_page header_left draft.left",
    ),
    "removals": Part.of("Removals Removal", "removals", "parts.removals draft.removals"),
    "name": Part.of("name_is NameState Drop drops NameRecord is_tombstone", "name view", "parts.name header_name"),
    "definition": Part.of("DefinitionReference", "definition", "parts.definition"),
    "row_ids": Part.of("RowIds", "row_ids", "parts.row_ids"),
    "progress": Part.of("JobProgress Progress", "progress", "parts.progress"),
}
_SHARED: Final = frozenset(("PartitionOffset", "PageReference", "CoveredOffset"))
"""Types of a part's module that are not the part: all readers of the log, and all pages, have them."""

_OWN_NAMES: Final[Mapping[IntentKind, str]] = {
    IntentKind.APPEND: "append: append",
    IntentKind.REMOVE: "row_changes: remove",
    IntentKind.OVERWRITE: "row_changes: overwrite",
    IntentKind.ROW_DELTA: "row_changes: row_delta",
    IntentKind.REPLACE: "row_changes: replace check_made_for_schema",
    IntentKind.FLUSH: "flush: flush Takeover",
    IntentKind.COMPACT_LEAVES: "flush: flush Takeover",
    IntentKind.COMPACT_VECTORS: "vector_maintenance: compact_vectors summary_of_joins",
    IntentKind.CONVERT_EQUALITY_DELETES: "vector_maintenance: convert_equality_deletes summary_of_conversions",
    IntentKind.ALTER: "definition: alter",
    IntentKind.TAG: "versions: tag check_tag_name TAGS_MAX",
    IntentKind.EXPIRE: "versions: expire",
    IntentKind.CREATE: "create_drop: create after_drop uuid_of AdoptedTable AdoptionNeed",
    IntentKind.DROP: "create_drop: drop dropped without_past restored_table kept_until_ms KEPT_PROPERTY KEPT_S_DEFAULT",
    IntentKind.PURGE: "create_drop: purge dropped without_past kept_until_ms KEPT_PROPERTY KEPT_S_DEFAULT",
    IntentKind.CREATE_VIEW: "create_drop: create_view definition_of_view",
    IntentKind.REPLACE_VIEW: "create_drop: replace_view",
    IntentKind.DROP_VIEW: "create_drop: drop_view",
}
"""The kinds whose file decides others too, or does more: the file, and the names in it that mean the kind."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The identifiers of a file, its attributes of headers, its imported modules, and its kinds of intents."""

    all: frozenset[str]
    of_headers: frozenset[str]
    modules: frozenset[str]
    kinds: frozenset[str]


@cache
def _names_in(path: Path) -> _Names:
    found: set[str] = set()
    of_headers: set[str] = set()
    imported: set[str] = set()
    kinds: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="IntentKind"), attr=attr):
                kinds.add(attr)
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=attr):
                found.add(attr)
                if owner.endswith("header") or owner in ("RootHeader", "first"):
                    of_headers.add(attr)
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=aliases):
                imported.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases) if {alias.name for alias in aliases} - _SHARED:
                imported.update({module, *(f"{module}.{alias.name}" for alias in aliases)})
                found.update(alias.name for alias in aliases)
    return _Names(frozenset(found), frozenset(of_headers), frozenset(imported), frozenset(kinds))


def names_part(path: Path, part: Part) -> bool:
    """Whether a file names a part of the header."""
    names = _names_in(path)
    if names.all & part.names or names.of_headers & part.fields:
        return True
    return any(module.endswith(f".{own}") for own in part.modules for module in names.modules)


def names_kind(path: Path, kind: IntentKind) -> bool:
    """Whether a file names a kind of intent, or what decides it."""
    names = _names_in(path)
    return kind.name in names.kinds or not decided_by(kind).isdisjoint(names.modules)


def decided_by(kind: IntentKind) -> set[str]:
    """The dotted names that mean a kind: its module, or the names in it."""
    file, _, own = _OWN_NAMES.get(kind, kind.value).partition(":")
    module = f"rootline.tree.intents.{file}"
    return {f"{module}.{name}" for name in own.split()} or {module}


def files_by_part(product: Mapping[str, Path]) -> dict[str, list[str]]:
    """Part → the files of the engine that name it. `product`: place in the repository → file."""
    engine = {place: path for place, path in product.items() if place.startswith(ENGINE)}
    return {name: [place for place in engine if names_part(engine[place], part)] for name, part in PARTS.items()}


def files_by_kind(product: Mapping[str, Path]) -> dict[str, list[str]]:
    """Kind → the files of the product that name it."""
    return {kind.value: [place for place in product if names_kind(product[place], kind)] for kind in IntentKind}


def most(found: Mapping[str, Sequence[str]]) -> int:
    """The number of files of the part or kind that most of them name."""
    return max(map(len, found.values()))


def places(found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The files of each part or kind, as `part: file`, those with the most files first."""
    order = sorted(found.items(), key=lambda item: -len(item[1]))
    return tuple(f"{name}: {file}" for name, files in order for file in files)
