"""The kinds of intents, one row each: what an intent of a kind may carry, must carry and must name.

Owns: these rules, which can be told from the intent alone. Does not own: how a kind is decided (one file each in
`rootline.tree.intents`, and a row in its `kinds`), the fields themselves (`intent`).
Invariants: every kind has a row; the value of a kind is its word on the wire, which never changes.

Source: protocol page, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final


class IntentKind(StrEnum):
    """What the intent does; protocol page, section 2."""

    APPEND = "append"
    REMOVE = "remove"
    OVERWRITE = "overwrite"
    ROW_DELTA = "row_delta"
    CREATE = "create"
    FLUSH = "flush"
    COMPACT_LEAVES = "compact_leaves"
    COMPACT_VECTORS = "compact_vectors"
    TAG = "tag"
    RESTORE = "restore"
    REWRITE = "rewrite"
    EXPIRE = "expire"
    SWEEP = "sweep"
    ALTER = "alter"
    REPLACE = "replace"
    DROP = "drop"
    PURGE = "purge"
    CONVERT_EQUALITY_DELETES = "convert_equality_deletes"
    CREATE_VIEW = "create_view"
    REPLACE_VIEW = "replace_view"
    DROP_VIEW = "drop_view"


class Names(Enum):
    """What a kind says in `ref`."""

    NO_VERSION = auto()
    A_VERSION = auto()
    A_TAG = auto()


@dataclass(frozen=True, slots=True)
class KindShape:
    """`may_carry`: fields with content; one of `must_carry` is there, and without it one of `may_carry`.

    `must_name`: field → why it is needed. `is_maintenance`: it changes how a table is stored, never what is in it.
    """

    may_carry: frozenset[str]
    must_carry: frozenset[str] = frozenset()
    must_name: Mapping[str, str] = field(default_factory=dict)
    ref: Names = Names.NO_VERSION
    is_maintenance: bool = False

    @property
    def must_carry_one_of(self) -> frozenset[str]:
        """At least one of these has content; none, for a kind that carries nothing."""
        return self.must_carry or self.may_carry


CARGO: Final = (
    "add_data_files",
    "add_equality_deletes",
    "add_vectors",
    "add_manifests",
    "remove_files",
    "definition",
    "replaces",
    "reaffiliate",
    "ref",
    "adopt",
    "page",
)
"""The fields of an intent that carry what it changes."""
_WHICH_TABLE: Final = {"table_uuid": "another table may have the name by then"}
_WHICH_VIEW: Final = {"table_uuid": "another view may have the name by then: it is the view's uuid"}
_MADE_FROM: Final = {"made_from_version": "the root that it was made from"}


def _carries(*names: str) -> frozenset[str]:
    assert set(names) <= set(CARGO)
    return frozenset(names)


SHAPES: Final[Mapping[IntentKind, KindShape]] = {
    IntentKind.APPEND: KindShape(
        _carries("add_data_files", "add_manifests", "definition"),
        must_carry=_carries("add_data_files", "add_manifests"),
    ),
    IntentKind.REMOVE: KindShape(_carries("remove_files")),
    IntentKind.OVERWRITE: KindShape(
        _carries("add_data_files", "add_manifests", "remove_files", "definition"),
        must_carry=_carries("add_data_files", "add_manifests", "remove_files"),
    ),
    IntentKind.ROW_DELTA: KindShape(
        _carries("add_data_files", "add_equality_deletes", "add_vectors", "add_manifests", "definition"),
        must_carry=_carries("add_equality_deletes", "add_vectors", "add_manifests"),
    ),
    IntentKind.CREATE: KindShape(_carries("definition", "adopt"), must_carry=_carries("definition")),
    IntentKind.FLUSH: KindShape(_carries("add_manifests"), must_name=_MADE_FROM, is_maintenance=True),
    IntentKind.COMPACT_LEAVES: KindShape(
        _carries("add_manifests", "replaces", "reaffiliate"), must_name=_MADE_FROM, is_maintenance=True
    ),
    IntentKind.COMPACT_VECTORS: KindShape(_carries("add_vectors"), must_name=_MADE_FROM, is_maintenance=True),
    IntentKind.TAG: KindShape(_carries("ref"), ref=Names.A_TAG),
    IntentKind.RESTORE: KindShape(_carries("ref"), ref=Names.A_VERSION),
    IntentKind.REWRITE: KindShape(
        _carries("add_data_files", "remove_files"),
        must_carry=_carries("remove_files"),
        must_name={"read_sequence_number": "what is newer still reaches the new files"},
    ),
    IntentKind.EXPIRE: KindShape(
        _carries("ref", "page"),
        must_carry=_carries("ref"),
        must_name=_MADE_FROM,
        ref=Names.A_VERSION,
        is_maintenance=True,
    ),
    IntentKind.ALTER: KindShape(_carries("definition")),
    IntentKind.REPLACE: KindShape(
        _carries("add_data_files", "add_manifests", "definition"),
        must_carry=_carries("definition"),
        must_name=_WHICH_TABLE,
    ),
    IntentKind.DROP: KindShape(_carries(), must_name=_WHICH_TABLE),
    IntentKind.PURGE: KindShape(_carries(), must_name=_WHICH_TABLE),
    IntentKind.CREATE_VIEW: KindShape(_carries("definition"), must_name={"table_uuid": "it is the view's uuid"}),
    IntentKind.REPLACE_VIEW: KindShape(_carries("definition"), must_name=_WHICH_VIEW),
    IntentKind.DROP_VIEW: KindShape(_carries(), must_name=_WHICH_VIEW),
    IntentKind.SWEEP: KindShape(_carries("page"), must_name=_MADE_FROM, is_maintenance=True),
    IntentKind.CONVERT_EQUALITY_DELETES: KindShape(
        _carries("remove_files", "add_vectors", "replaces"),
        must_carry=_carries("remove_files"),
        must_name={**_MADE_FROM, "read_sequence_number": "a file that came later was not read"},
        is_maintenance=True,
    ),
}
CHANGING_KINDS: Final = frozenset(
    {IntentKind.ALTER, IntentKind.APPEND, IntentKind.OVERWRITE, IntentKind.ROW_DELTA, IntentKind.REPLACE}
)
"""The kinds whose `definition` holds changes; another's is a definition."""
VIEW_KINDS: Final = frozenset((IntentKind.CREATE_VIEW, IntentKind.REPLACE_VIEW, IntentKind.DROP_VIEW))
BEGINNING_KINDS: Final = frozenset((IntentKind.CREATE, IntentKind.CREATE_VIEW))
"""The kinds that make the first root of a name."""
MAINTENANCE_KINDS: Final = frozenset(kind for kind, shape in SHAPES.items() if shape.is_maintenance)
"""The kinds of workers."""
