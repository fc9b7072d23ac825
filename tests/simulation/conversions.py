"""Equality deletes of simulated writers, and workers that turn them into vectors.

Owns: what such intents say. Does not own: what becomes of them. No data file has rows here, so a conversion says which
rows its deletes deleted: the reference believes it, as it believes a rewrite.
"""

from __future__ import annotations

import random

from pyroaring import BitMap64

from rootline.maintenance.conversion_plan import ConversionLimits, choose_deletes
from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, EqualityDeleteFile, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.object_reader import read_vector
from rootline.tree.state.table_state import TableState
from tests.simulation.faulty_world import World

Positions = dict[tuple[str, int], frozenset[int]]


async def deletes_by_value(world: World, table: TableName, intent: Intent, body: bytes) -> Intent:
    """An append that deletes rows by value as well."""
    file = intent.add_data_files[0]
    location = f"data/by-value-{intent.intent_id}.parquet"
    await world.store.put_if_absent(key_of(table, location), body)
    fields = {**file.model_dump(exclude={"statistics"}), "location": location, "statistics": file.statistics}
    delete = EqualityDeleteFile(**fields, equality_ids=(1,))
    return intent.model_copy(update={"kind": IntentKind.ROW_DELTA, "add_equality_deletes": (delete,)})


async def conversion(
    world: World, table: TableName, view: TableState, intent: Intent, rng: random.Random, known: Positions
) -> Intent | None:
    """In place of `intent`, under its id and sequence: some of the deletes of `view`; `None` when there are none."""
    files = TableFiles(view)
    chosen = choose_deletes(files, ConversionLimits(deletes=1), rng.randint(1, 3))
    if not chosen.deletes:
        return None
    blobs: list[VectorBlob] = []
    clean: list[str] = []
    for task in chosen.tasks:
        before = BitMap64() if not task.vectors else await read_vector(world.store, table, task.vectors[0])
        seen = files.vector_of(task.location)
        if seen is not None:
            known[seen.location, seen.offset] = frozenset(before)
        found = before | BitMap64(rng.sample(range(task.record_count), k=2))
        if rng.random() < 0.3 or found == before:
            clean.append(task.location)
        else:
            blobs.append(VectorBlob(task.location, found))
    vectors: list[AddedVector] = []
    if blobs:
        puffin = encode_puffin(blobs)
        location = f"data/{puffin_name(f'converted-{intent.intent_id}', puffin.body)}"
        await world.store.put_if_absent(key_of(table, location), puffin.body)
        for blob, place in zip(blobs, puffin.places, strict=True):
            known[location, place.offset] = frozenset(blob.vector)
            vectors.append(
                AddedVector(
                    location=location,
                    offset=place.offset,
                    size_in_bytes=place.size,
                    file_size_in_bytes=len(puffin.body),
                    cardinality=place.cardinality,
                    referenced_file=blob.referenced_data_file,
                    replaces_vector=files.vector_of(blob.referenced_data_file),
                )
            )
    return Intent(
        intent_id=intent.intent_id,
        table=intent.table,
        table_uuid=intent.table_uuid,
        kind=IntentKind.CONVERT_EQUALITY_DELETES,
        writer_id=intent.writer_id,
        writer_sequence=intent.writer_sequence,
        made_from_version=view.header.version,
        read_sequence_number=view.header.snapshot.sequence_number,
        remove_files=tuple(
            RemovedFile(location=delete.location, content_type=ContentType.EQUALITY_DELETE) for delete in chosen.deletes
        ),
        add_vectors=tuple(vectors),
        replaces=tuple(clean),
    )
