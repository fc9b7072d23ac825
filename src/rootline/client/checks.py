"""Checks of callers' arguments: each check returns the value in the type that the code behind it needs.

Owns: the kinds of arguments, the wording of the errors for wrong ones, and of those for names that only other libraries
have (`foreign_names.toml`). Does not own: the meaning of a value
(whether a version exists, whether a filter can be parsed).
Invariants: a value of a wrong type is `Invalid` and named before anything is read or written. NumPy's numbers are
accepted as numbers. A boolean is not a number, and a text is not a list of texts.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rootline.library_log import library_logger
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import NamespaceName, TableName, namespace_name, table_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

    from rootline.schemas.intent import DataFile

T = TypeVar("T")
DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_TARGET_BYTES: Final = 256 * 1024 * 1024
"""The approximate size of a data file."""
_CODE: Final = "setting-invalid"
_LONGEST_WAIT_S: Final = 10 * 365 * 86_400.0


@cache
def _foreign_names() -> Mapping[str, Mapping[str, str]]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("rootline.client").joinpath("foreign_names.toml").read_text("utf-8"))


def hint(kind: str, name: str) -> str:
    """The end of the error for an attribute that a class lacks: its name here. Empty if no other library has it."""
    names = _foreign_names().get(kind.removeprefix("Async"), {})
    return next((f": {words}" for words, foreign in names.items() if name in foreign.split()), "")


class ForeignNames:
    """The error for a name that other libraries have for something: it states what to use here."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker refuses such a name itself

        def __getattr__(self, name: str) -> None:
            kind = type(self).__name__
            bases = () if name.startswith("_") else type(self).__mro__
            words = next(filter(None, (hint(base.__name__, name) for base in bases)), "")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{words}")


def table(name: object) -> TableName:
    """A table's name. Raises `Invalid` (`table-name-invalid`), as all checks of this module raise `Invalid`."""
    if not isinstance(name, str):
        raise _refused("table-name-invalid", "the table's name", name, "a text of the form namespace.table")
    return table_name(name)


def namespace(name: object) -> NamespaceName:
    """A namespace's name. Raises `namespace-invalid`."""
    if not isinstance(name, str):
        raise _refused("namespace-invalid", "the namespace", name, "a text such as a or a.b")
    return namespace_name(name)


def filter_text(where: object) -> str | None:
    """A filter as text, or `None`. Raises `filter-invalid`."""
    if where is None:
        return None
    if isinstance(where, str):
        return _storable(where, "where", "filter-invalid")
    raise _refused("filter-invalid", "where", where, "a text such as \"carrier = 'UA'\"")


def deleting_filter(where: object) -> str:
    """A filter as text. `None` is refused: deleting every row needs the filter `true`."""
    found = filter_text(where)
    if found is None:
        raise Invalid("filter-invalid", "where is None: give a filter for the rows to delete, or 'true' for all rows")
    return found


def scan_filter(where: Any) -> str | BooleanExpression | None:
    """A filter as text or as a PyIceberg expression, or `None`. Raises `filter-invalid`."""
    from pyiceberg.expressions import BooleanExpression

    return where if isinstance(where, BooleanExpression) else filter_text(where)


def text(value: object, name: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise _refused(_CODE, name, value, "a text")
    return _storable(value, name, _CODE)


def place(value: object, name: str) -> str:
    """A URL or a path, given as text or as a path object."""
    if not isinstance(value, str | os.PathLike) or not isinstance(found := os.fspath(value), str):
        raise _refused(_CODE, name, value, "a path or a URL")
    if "\0" in found:
        raise Invalid(_CODE, f"{name} {found!r:.80} has a zero byte in it: give a path or a URL")
    return _storable(found, name, _CODE)


def texts(values: object, name: str) -> tuple[str, ...]:
    """Texts, in their order."""
    if isinstance(values, str):
        raise Invalid(_CODE, f"{name} is the text {values!r:.80}: give a list, as in {name}=[{values!r:.80}]")
    if not isinstance(values, Iterable) or isinstance(values, bytes | Mapping):
        raise _refused(_CODE, name, values, "a list of texts")
    return tuple(text(value, f"{name}: each") for value in values)


def text_map(values: object, name: str) -> dict[str, str]:
    """A dict of texts, empty for `None`."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise _refused(_CODE, name, values, "a dict of texts")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _refused(_CODE, f"{name}: the entry {key!r:.80}", value, "text as the name and as the value")
        _storable(key + value, f"{name}: the entry {key!r:.80}", _CODE)
    return dict(values)


def table_properties(values: object) -> dict[str, str]:
    """The properties of a table. A warning is logged if they name a format that Rootline does not write."""
    properties = text_map(values, "properties")
    wanted = properties.get("write.format.default", "parquet")
    if wanted.lower() != "parquet":
        reason = f"write.format.default is {wanted[:40]!r}, but Rootline writes Parquet: only Iceberg clients follow it"
        library_logger().warning("other format", action="file-format", reason=reason)
    return properties


def whole(value: object, name: str, *, least: int | None = None) -> int:
    """A whole number, `least` or more."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _refused(_CODE, name, value, "a whole number") from None
    if least is not None and found < least:
        raise Invalid(_CODE, f"{name} is {found}: give {least} or more")
    if abs(found) >= 2**63:
        raise Invalid(_CODE, f"{name} does not fit in 64 bits. Give a smaller number")
    return found


def whole_or_none(value: object, name: str, *, least: int | None = None) -> int | None:
    """A whole number, or `None`."""
    return None if value is None else whole(value, name, least=least)


def seconds(value: object, name: str = "timeout_s") -> float:
    """A waiting time in seconds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _refused(_CODE, name, value, "a number of seconds")
    found = float(value)
    if math.isnan(found) or found < 0:
        raise Invalid(_CODE, f"{name} is {found}: give 0 or more seconds")
    return min(found, _LONGEST_WAIT_S)


def truth(value: object, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _refused(_CODE, name, value, "True or False")
    return value


def one_of(value: object, kind: type[T], name: str, wanted: str) -> T:
    """A value of this type. `wanted` is the text of the error's advice."""
    if not isinstance(value, kind):
        raise _refused(_CODE, name, value, wanted)
    return value


def write_options(
    timeout_s: object, target_file_size_bytes: object, summary: object
) -> tuple[float, int, dict[str, str]]:
    """The checked options that every change accepts: timeout, target file size, summary."""
    return (
        seconds(timeout_s),
        whole(target_file_size_bytes, "target_file_size_bytes", least=1),
        text_map(summary, "summary"),
    )


def numbered_writer(writer_id: object, writer_sequence: object) -> tuple[str, int] | None:
    """A writer and the number of its write, or `None` without both. One of them alone is refused."""
    if writer_id is None and writer_sequence is None:
        return None
    if writer_id is None or writer_sequence is None:
        raise Invalid(_CODE, "writer_id and writer_sequence need each other: give both, or neither")
    return text(writer_id, "writer_id"), whole(writer_sequence, "writer_sequence", least=0)


def data_files(files: Any) -> list[DataFile] | pa.Table:
    """Descriptions of data files: a list, or an Arrow table with one row per file."""
    import pyarrow as pa

    from rootline.schemas.intent import DataFile

    if isinstance(files, pa.Table):
        return files
    if isinstance(files, str | bytes | Mapping) or not isinstance(files, Iterable):
        raise _refused(_CODE, "files", files, "a list of DataFile, or an Arrow table")
    given = list(files)
    for at, file in enumerate(given):
        if not isinstance(file, DataFile):
            raise _refused(_CODE, f"files: item {at}", file, "a list of DataFile, or an Arrow table")
    return given


def column_name(name: object, code: str) -> str:
    """A column's name. Raises `Invalid` with this code."""
    if not isinstance(name, str) or not name:
        raise Invalid(code, f"{name!r:.80} is not a column name: give a text that is not empty")
    return _storable(name, "a column's name", code)


def _storable(value: str, name: str, code: str) -> str:
    """Check that a text can be encoded as UTF-8: Python allows a lone surrogate in a text, and storage does not."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Invalid(
                code, f"{name} has a lone surrogate at character {error.start + 1}: {value[:80]!r}; correct it"
            ) from error
    return value


def _refused(code: str, name: str, value: Any, wanted: str) -> Invalid:
    shown = "" if value is None else f"{value!r:.80}, "
    kind = type(value).__name__
    kind = "None" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return Invalid(code, f"{name} is {shown}{kind}: give {wanted}")
