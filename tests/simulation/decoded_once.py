"""Roots and leaves that a whole world decodes once.

Owns: one proven root or leaf for each body, whoever reads it, and the rows that a leaf has shown. Does not own: when
something is read, and what happens to the request (`faulty_world`); what is said of it (`judgement`).
Invariants: what is decoded follows from the bytes alone, and other bytes under the same name are decoded again: a world
comes to the same trace and the same judgement with this and without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Generic, TypeVar
from unittest import mock

import pyarrow as pa

from rootline.coordinator.runtime.table import effect_runner, object_fetcher
from rootline.maintenance import flush_plan as self_flush_plan
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import decode_leaf
from rootline.schemas.bytes.leaf_columns import Inherited, picked
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.content_entry import ContentEntry
from rootline.storage.check import chain, objects
from rootline.storage.metadata import object_reader as leaf_reader
from rootline.storage.metadata import root_reader
from rootline.tree.state import leaf_lookup
from rootline.tree.state.leaf_lookup import LeafKeys

T = TypeVar("T")
_KEPT_MAX: Final = 3_000


class _SharedLeaf(Leaf):
    """A leaf that keeps what it was asked for: the leaves of a simulation are small."""

    def __init__(self, proven: Leaf) -> None:
        self.__dict__.update(proven.__dict__)
        self._reads: dict[tuple[tuple[str, ...] | None, int | None], pa.Table] = {}
        self._entries: list[ContentEntry] = []
        self.keys: LeafKeys | None = None
        self._under: dict[Inherited | None, _SharedLeaf] = {self.inherited: self}

    def kept_by(self, keep: Callable[[bytes], bytes | pa.Buffer]) -> Leaf:
        return self

    def _copy(self, inherited: Inherited | None) -> Leaf:
        found = self._under.get(inherited)
        if found is None:
            copied = super()._copy(inherited)
            assert isinstance(copied, _SharedLeaf)
            copied._entries, copied.keys = [], None
            found = self._under[inherited] = copied
        return found

    def _read(self, columns: list[str] | None, group: int | None = None) -> pa.Table:
        wanted = None if columns is None else tuple(columns), None if self._is_of_one_group else group
        if wanted not in self._reads:
            self._reads[wanted] = super()._read(columns, group)
        return self._reads[wanted]

    def _opened(self, columns: list[str] | None, group: int | None) -> pa.Table:
        """Parquet is opened twice, once for the rows and once for their statistics, and never again."""
        is_whole = self.is_small and self._is_of_one_group and columns is not None and columns != [CONTENT_STATS]
        if not is_whole or columns is None or not any(name.startswith(CONTENT_STATS) for name in columns):
            return super()._opened(columns, group)
        table, statistics = self._small_rows, self._read([CONTENT_STATS])
        for at, field in enumerate(statistics.schema):
            table = table.append_column(field, statistics.column(at))
        return picked(table, columns)

    @property
    def _is_of_one_group(self) -> bool:
        return self._group_starts == [0, self.length]

    def _entries_between(self, start: int, stop: int) -> list[ContentEntry]:
        if not self._entries:
            self._entries = super()._entries_between(0, self.length)
        return self._entries[start:stop]

    def entries_at(self, ordinals: Sequence[int]) -> list[ContentEntry]:
        entries = self._entries_between(0, self.length)
        return [entries[ordinal] for ordinal in ordinals]


def _keys_of(leaf: Leaf) -> LeafKeys:
    """What says where in a leaf an entry is; it follows from the leaf."""
    if not isinstance(leaf, _SharedLeaf):
        return LeafKeys(leaf)
    if leaf.keys is None:
        leaf.keys = LeafKeys(leaf)
    return leaf.keys


class _Kept(Generic[T]):
    """The last so many, by name and bytes."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, bytes], T] = OrderedDict()

    def get(self, name: str, body: bytes, decode: Callable[[], T]) -> T:
        place = name, body
        if place not in self._found:
            self._found[place] = decode()
            if len(self._found) > _KEPT_MAX:
                self._found.popitem(last=False)
        self._found.move_to_end(place)
        return self._found[place]


@contextmanager
def decoded_once() -> Iterator[None]:
    """The product's readers are handed what was decoded from those bytes before."""
    leaves, roots = _Kept[Leaf](), _Kept[Root]()
    newest: dict[str, Root] = {}
    """Of each folder the root that was decoded last: most blocks of the next one are in it."""

    def leaf(body: bytes, *, location: str, is_new: bool = False) -> Leaf:
        return leaves.get(location, body, lambda: _SharedLeaf(decode_leaf(body, location=location, is_new=is_new)))

    def root(body: bytes, *, name: str, known: Root | None = None) -> Root:
        folder = name[: name.rfind("/")]

        def decode() -> Root:
            newest[folder] = decode_root(body, name=name, known=known or newest.get(folder))
            return newest[folder]

        return roots.get(name, body, decode)

    with ExitStack() as patches:
        for module in (leaf_reader, object_fetcher, self_flush_plan, objects):
            patches.enter_context(mock.patch.object(module, "decode_leaf", leaf))
        for module in (root_reader, effect_runner, chain):
            patches.enter_context(mock.patch.object(module, "decode_root", root))
        patches.enter_context(mock.patch.object(leaf_lookup, "LeafKeys", _keys_of))
        yield
