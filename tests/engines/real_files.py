"""A lake of the reference model whose files are really written, so that engines can read what is exported of it.

Owns: the rows of a file by its name, their bytes, the objects of a lake in a folder. Does not own: the model.
Invariants: a name always has the same rows, however often a file of that name comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import AddedVector, DataFile, EqualityDeleteFile, VectorReference
from rootline.schemas.object_keys import key_of, root_key
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.tree.rules.vector_rules import VectorNeed
from tests.tree.planned_intents import DescribedFiles
from tests.tree.reference_model import ReferenceTable
from tests.tree.tables import DEFINITION, TABLE, Lake

SCHEMA = arrow_schema_of(DEFINITION.schema)


@dataclass
class WrittenLake(Lake):
    """A lake whose writers really write vectors."""

    def vector(
        self, name: str, target: str, positions: Iterable[int], replaces: VectorReference | None = None
    ) -> AddedVector:
        puffin = encode_puffin([VectorBlob(target, BitMap64(positions))])
        place = puffin.places[0]
        location = f"data/{name}.puffin"
        assert self.objects.setdefault(location, puffin.body) == puffin.body
        self.vectors[VectorNeed(location, place.offset)] = BitMap64(positions)
        return AddedVector(
            location=location,
            offset=place.offset,
            size_in_bytes=place.size,
            file_size_in_bytes=len(puffin.body),
            cardinality=place.cardinality,
            referenced_file=target,
            replaces_vector=replaces,
        )


@dataclass
class WrittenFiles(DescribedFiles):
    """What a writer says of its files once they are stored in `lake`."""

    lake: Lake

    def data(self, name: str, carrier: str | None, ids: tuple[int, ...]) -> DataFile:
        described = super().data(name, carrier, ids)
        return described.model_copy(
            update={"file_size_in_bytes": self._store(described.location, _rows(name, carrier, ids))}
        )

    def equality(self, name: str, carrier: str | None, value: int) -> EqualityDeleteFile:
        described = super().equality(name, carrier, value)
        rows = pa.table({"id": [value]}, pa.schema([SCHEMA.field("id")]))
        return described.model_copy(update={"file_size_in_bytes": self._store(described.location, rows)})

    def _store(self, location: str, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        body = sink.getvalue().to_pybytes()
        assert self.lake.objects.setdefault(location, body) == body
        return len(body)


def carrier_of(name: str) -> str | None:
    """The partition of a new file; `None`: it has none."""
    return ("AA", "UA", None)[int(name[1:]) % 3]


def _rows(name: str, carrier: str | None, ids: tuple[int, ...]) -> pa.Table:
    kept = [_row(name, carrier, ids, position) for position in range(len(ids))]
    return pa.table({field: [row[at] for row in kept] for at, field in enumerate(SCHEMA.names)}, SCHEMA)


def _row(name: str, carrier: str | None, ids: tuple[int, ...], position: int) -> tuple[int, str | None, float]:
    """`delay` says which file the row is of (rewritten ones count from 1,000 on), and its place there."""
    number = int(name[1:]) + (1_000 if name.startswith("r") else 0)
    here = carrier if carrier is not None else ("AA", None, "UA")[position % 3]
    return ids[position], here, number + position / 64


def expected_rows(model: ReferenceTable) -> list[tuple[int, str | None, float, int]]:
    """Every live row and its row id, in the order of row ids."""
    found = [
        (*_row(name, file.carrier, file.ids, position), file.first_row_id + position)
        for name, file in model.files.items()
        for position in model.rows()[name]
    ]
    return sorted(found, key=lambda row: row[3])


def store_lake(lake: Lake, folder: Path) -> None:
    """Every root and object of `lake`, as a local warehouse has them."""
    bodies = {root_key(TABLE, Version(version)): body for version, body in enumerate(lake.bodies)}
    for key, body in {**{key_of(TABLE, at): body for at, body in lake.objects.items()}, **bodies}.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
