"""The rules for a single intent: its kind, its size, its locations.

Owns: one row for each kind (the fields that it may have and must have), the limits of an intent with their defaults,
the rules of a location's text. Does not own: the decision about a kind (`rootline.tree.intents`), the fields
(`intent`), the settings of the limits, the existing or live objects (a predicate is passed in).
Invariants: every kind has a row. The value of a kind is its word on the wire, which never changes. Sizes are checked
before anything is expanded in memory. A valid location is a plain path below the table's own prefix, also when it is
URL-decoded, or exactly a live entry's absolute location, or such a path below a prefix that the operator of the
coordinator allows. So no intent can name another table's objects or another endpoint.

Source: protocol page, section 2, invariants page, "Bad input", format page, "Intents on the log" and "Objects".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final
from urllib.parse import unquote

from rootline.schemas.errors import Invalid


@dataclass(frozen=True, slots=True)
class IntentLimits:
    """The limits of an intent. An intent that exceeds a limit is rejected with a verdict that names the limit and the
    next step.
    """

    max_bytes: int = 1_000_000
    """Key, value and headers of the record together."""
    max_files: int = 10_000
    """Added and removed files, vectors and leaves together."""
    max_location_chars: int = 1_024
    max_statistics_columns: int = 1_000
    """Columns and expressions with statistics on one file."""
    max_nesting: int = 64
    """Levels of brackets in a JSON intent."""


DEFAULT_LIMITS: Final = IntentLimits()


_PLAIN_PATH: Final = r"[A-Za-z0-9_=,@+~\-][A-Za-z0-9_=,@+~.\- ]*(?:/[A-Za-z0-9_=,@+~\-][A-Za-z0-9_=,@+~.\- ]*)*"
"""The common case, which needs no further check: no part begins with a dot."""
_PLAIN: Final = re.compile(_PLAIN_PATH + r"\Z")
PLAIN_PATTERN: Final = rf"\A{_PLAIN_PATH}\z"
"""The same for whole columns, in the syntax of RE2. Except for its length, a match is valid."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_MAX_DECODINGS: Final = 4
_BACKSLASH: Final = {"\\": "contains a backslash"}
_FORBIDDEN: Final = {
    **_BACKSLASH,
    "?": "contains a question mark, which some clients treat as the end of a path",
    "#": "contains a #, which some clients treat as the end of a path",
}
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def is_plain(location: str) -> bool:
    """Whether a fast check proves `location` valid. After `False`, `check_location` decides."""
    return len(location) <= DEFAULT_LIMITS.max_location_chars and _PLAIN.match(location) is not None


def is_valid(location: str, prefixes: Sequence[str]) -> bool:
    """Whether `check_location` accepts a location with these prefixes."""
    return is_plain(location) or _broken_rule(location, None, prefixes, DEFAULT_LIMITS.max_location_chars) is None


def check_location(
    location: str,
    *,
    is_live: Callable[[str], bool] | None = None,
    prefixes: Sequence[str] = (),
    max_chars: int = DEFAULT_LIMITS.max_location_chars,
) -> None:
    """Check a location.

    Args:
        location: relative to the table's prefix, or absolute.
        is_live: whether a live entry has exactly this location. An absolute one is valid then.
        prefixes: absolute locations that end in a slash, below which another absolute one is valid too.
        max_chars: the longest location, in characters.

    Raises:
        Invalid: `location-invalid`, naming the rule that it breaks.
    """
    if len(location) <= max_chars and _PLAIN.match(location):
        return
    reason = _broken_rule(location, is_live, prefixes, max_chars)
    if reason is not None:
        raise Invalid("location-invalid", f"location {_shown(location)} {reason}")


def _broken_rule(
    location: str, is_live: Callable[[str], bool] | None, prefixes: Sequence[str], max_chars: int
) -> str | None:
    if not location:
        return "is empty"
    if len(location) > max_chars:
        return f"has {len(location)} characters, {max_chars} are allowed"
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in location):
        return "contains control or formatting characters"
    if _SCHEME.match(location) or location.startswith("/"):
        if is_live is not None and is_live(location):
            return None
        for prefix in prefixes:
            if location.startswith(prefix):
                return _broken_rule(location.removeprefix(prefix), None, (), max_chars)
        return "is absolute, and no live entry has it: give it relative to the table's prefix"
    decoded = location
    for layer in range(_MAX_DECODINGS):
        for form in (decoded, unicodedata.normalize("NFKC", decoded)):
            reason = _broken_path_rule(form, is_decoded=layer > 0)
            if reason is not None:
                return reason if form == location else f"{reason}, in an encoded form"
        if "%" not in decoded:
            return None
        try:
            decoded, encoded = unquote(decoded, errors="strict"), decoded
        except UnicodeDecodeError:
            return "is percent-encoded, but not in UTF-8"
        if decoded == encoded:
            return None
    return "is percent-encoded several times"


def _broken_path_rule(path: str, *, is_decoded: bool) -> str | None:
    """The rule that a path breaks. Decoded, it may have the characters of a partition value such as `http://x?y`."""
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in path):
        return "contains control or formatting characters"
    for char, reason in (_BACKSLASH if is_decoded else _FORBIDDEN).items():
        if char in path:
            return reason
    parts = path.split("/")
    for place, part in enumerate(parts):
        if not part and not (is_decoded and 0 < place < len(parts) - 1):
            return "has an empty part (two slashes, or one at an end)"
        if part in {".", ".."}:
            return "has a part that is . or .."
    return "has a scheme" if _SCHEME.match(path) else None


def _shown(location: str) -> str:
    return ascii(location if len(location) <= 80 else location[:80] + "…")


class Isolation(StrEnum):
    """The isolation level. `snapshot` checks for concurrent changes of the files that an intent removes, `serializable`
    also for rows that match its filter.
    """

    SNAPSHOT = "snapshot"
    SERIALIZABLE = "serializable"


class IntentKind(StrEnum):
    """The change that an intent makes. See protocol page, section 2."""

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
    """The content of `ref` for a kind."""

    NO_VERSION = auto()
    A_VERSION = auto()
    A_TAG = auto()


@dataclass(frozen=True, slots=True)
class KindShape:
    """The fields of a kind.

    `may_carry`: fields that may have content. `must_carry`: fields of which at least one has content. If `must_carry`
    is empty, at least one of `may_carry` has content. `must_name`: field → the reason why it is required.
    `is_maintenance`: it changes the storage of a table, never its rows.
    """

    may_carry: frozenset[str]
    must_carry: frozenset[str] = frozenset()
    must_name: Mapping[str, str] = field(default_factory=dict)
    ref: Names = Names.NO_VERSION
    is_maintenance: bool = False

    @property
    def must_carry_one_of(self) -> frozenset[str]:
        """The fields of which at least one has content. Empty for a kind without content."""
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
"""The fields of an intent with its changes."""
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
    IntentKind.CREATE: KindShape(
        _carries("definition", "adopt", "add_data_files", "add_manifests"), must_carry=_carries("definition")
    ),
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
        must_name={"read_sequence_number": "deletes that are newer also apply to the new files"},
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
        must_name={**_MADE_FROM, "read_sequence_number": "later files were not read"},
        is_maintenance=True,
    ),
}
CHANGING_KINDS: Final = frozenset(
    {IntentKind.ALTER, IntentKind.APPEND, IntentKind.OVERWRITE, IntentKind.ROW_DELTA, IntentKind.REPLACE}
)
"""The kinds whose `definition` is a list of changes. For `create` it is a definition, for views their JSON."""
CLIENT_KINDS: Final = frozenset({IntentKind.APPEND, IntentKind.CREATE})
"""The kinds that may be an Iceberg client's commit. The ledger drops its writer early. A copy that is published later
changes nothing, because its files or its table exist."""
VIEW_KINDS: Final = frozenset((IntentKind.CREATE_VIEW, IntentKind.REPLACE_VIEW, IntentKind.DROP_VIEW))
BEGINNING_KINDS: Final = frozenset((IntentKind.CREATE, IntentKind.CREATE_VIEW))
"""The kinds that make the first root of a name."""
MAINTENANCE_KINDS: Final = frozenset(kind for kind, shape in SHAPES.items() if shape.is_maintenance)
"""The kinds that workers publish."""
