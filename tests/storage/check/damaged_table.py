"""A table with everything in it, to be damaged byte by byte; and what a reader answers from it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from pyroaring import BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.intent import AddedVector, IntentKind, RemovedFile
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles, Finding
from rootline.storage.metadata.object_reader import read_vector
from rootline.storage.metadata.root_reader import find_head, read_definition, read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.parts.header_limits import HeaderLimits
from tests.maintenance.table_builder import TableBuilder
from tests.support.loaded_tables import load_table

Answer = dict[str, list[tuple[str, tuple[int, ...], bool]]]
FILTERS = ("", "region = 'asia'", "id < 5000 and amount > 1.0")


_MADE: list[TableBuilder] = []


async def everything_table() -> TableBuilder:
    """A copy to damage of a table that is made once: `_with_everything` says what it holds."""
    if not _MADE:
        _MADE.append(await _with_everything())
    builder = copy(_MADE[0])
    builder.store = store = MemoryObjectStore()
    for key, body in (await metadata_objects(_MADE[0])).items():
        store.place(key, body)
    return builder


async def _with_everything() -> TableBuilder:
    """Appends, one in a leaf, removals, vectors (merged too), flushes, manifest vectors (one in a Puffin), pages."""
    builder = TableBuilder(MemoryObjectStore())
    builder.limits = HeaderLimits(ledger_bytes=400, outcome_bytes=450)
    await builder.create()
    await builder.append(*range(10), writer_id="ingest", writer_sequence=0)
    await builder.append(*range(10, 14), spec_id=1)
    await builder.delete_rows({1: [1], 2: [2, 3], 11: [5]})
    await builder.flush()
    await builder.append(20, 21, 22)
    for number in (40, 41, 42):
        nowhere = (RemovedFile(location="nowhere"),)
        await builder.append(number, writer_id=f"backfill-{number}", writer_sequence=7)
        await builder.apply(
            builder.intent(IntentKind.REMOVE, remove_files=nowhere, writer_id=f"w-{number}", writer_sequence=1)
        )
    late = await builder.deletion({2: [7], 20: [1]}, blind=True)
    await builder.committed(late)
    await builder.remove(1, 5, 12, 21)
    await builder.delete_rows({3: [9]})
    await builder.flush()
    await move_mask(builder)
    await builder.append_leaf(60, 61, 62)
    await builder.remove(61)
    await builder.delete_rows({22: [1, 2], 4: [8]})
    await builder.append(43, writer_id="late", writer_sequence=9)
    await builder.append(30, writer_id="ingest", writer_sequence=1)
    return builder


async def move_mask(builder: TableBuilder) -> None:
    """Move the largest manifest vector to a Puffin file, as a worker does with large ones."""
    leaf, dead = max(builder.state.live.dead.items(), key=lambda item: len(item[1]))
    encoded = encode_puffin([VectorBlob(leaf, BitMap64(dead))])
    location = puffin_name("metadata/vectors/mask", encoded.body)
    await builder.put(location, encoded.body)
    vector = AddedVector(
        location=location,
        offset=encoded.places[0].offset,
        size_in_bytes=encoded.places[0].size,
        file_size_in_bytes=len(encoded.body),
        cardinality=encoded.places[0].cardinality,
        referenced_file=leaf,
    )
    version = builder.state.header.version
    await builder.committed(
        builder.intent(IntentKind.COMPACT_VECTORS, add_vectors=(vector,), made_from_version=version)
    )


def memory_of(builder: TableBuilder) -> MemoryObjectStore:
    assert isinstance(builder.store, MemoryObjectStore)
    return builder.store


async def metadata_objects(builder: TableBuilder) -> dict[ObjectKey, bytes]:
    """Every object of the table: roots, leaves, vectors, definitions, pages."""
    listing = await builder.store.list("demo/")
    found: dict[ObjectKey, bytes] = {}
    for key in listing.keys:
        stored = await builder.store.get(key)
        assert stored is not None
        found[key] = stored.body
    return found


async def findings_of(
    store: MemoryObjectStore, table: TableName, data_files: DataFiles = DataFiles.IGNORED
) -> list[Finding]:
    return [finding async for finding in check_table(store, table, data_files=data_files)]


async def answer_of(store: MemoryObjectStore, table: TableName) -> Answer:
    """What a reader learns: files, their deleted rows, and whether they must be filtered; by filter, from the head."""
    head = await find_head(store, table)
    assert head is not None
    root = await read_root(store, table, head.version)
    definition = await read_definition(store, root.header)
    answer: Answer = {}
    for text in FILTERS:
        planned = await plan_scan(store, root, definition, PruningFilter.of(text or None, definition))
        answer[text] = []
        for task in planned.tasks():
            deleted: set[int] = set()
            for vector in task.vectors:
                deleted |= set(await read_vector(store, table, vector))
            answer[text].append((task.data.location, tuple(sorted(deleted)), task.residual is None))
    state = await load_table(store, table)
    assert state is not None
    answer["live"] = sorted((live.entry.location, (), False) for live in state.live.entries())
    return answer


def flips(body: bytes, bits: Iterator[int], count: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, the damaged bytes): `count` flipped bits."""
    for _ in range(count):
        bit = next(bits) % (8 * len(body))
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} of {8 * len(body)} flipped", bytes(damaged)


def tails(body: bytes, bits: Iterator[int]) -> Iterator[tuple[str, bytes]]:
    """(what was done, the damaged bytes): tails that are cut or grown."""
    for kept in {0, 1, len(body) // 2, len(body) - 1, next(bits) % len(body)}:
        yield f"cut to {kept} of {len(body)} bytes", body[:kept]
    yield "a byte too many", body + b"\x00"
