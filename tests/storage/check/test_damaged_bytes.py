"""Every byte that decides something is covered: a check names the object, and a reader never answers wrongly."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import root_key
from tests.maintenance.table_builder import TableBuilder
from tests.storage.check.damaged_table import (
    answer_of,
    everything_table,
    findings_of,
    flips,
    memory_of,
    metadata_objects,
    tails,
)
from tests.support.examples import examples

SEED = 20_261_121


def random_bits(seed: int) -> Iterator[int]:
    source = random.Random(seed)
    while True:
        yield source.getrandbits(40)


async def damaged(
    builder: TableBuilder, each: int, seed: int, *, with_tails: bool = True
) -> list[tuple[ObjectKey, bytes, str, bytes]]:
    """Every object with flipped bits; the last one of each folder also with tails that are cut or grown."""
    bits, objects = random_bits(seed), await metadata_objects(builder)
    cut = set(one_of_each_folder(objects)) if with_tails else set()
    return [
        (key, body, done, bad)
        for key, body in objects.items()
        for done, bad in (*flips(body, bits, each), *(tails(body, bits) if key in cut else ()))
    ]


def one_of_each_folder(keys: Iterable[ObjectKey]) -> Iterable[ObjectKey]:
    return {key.rsplit("/", 1)[0]: key for key in keys}.values()


async def test_a_sound_table_has_no_findings() -> None:
    builder = await everything_table()
    assert await findings_of(memory_of(builder), builder.table) == []


async def test_the_table_holds_every_kind_of_object() -> None:
    builder = await everything_table()
    folders = {key.split("/")[-2] for key in await metadata_objects(builder)}
    assert folders == {"roots", "leaves", "vectors", "definitions", "pages", "data"}


async def check_names_damages(each: int, seed: int, *, one_a_folder: bool = False) -> None:
    builder = await everything_table()
    store = memory_of(builder)
    chosen = one_of_each_folder(await metadata_objects(builder))
    for key, body, done, bad in await damaged(builder, each, seed, with_tails=one_a_folder):
        if one_a_folder and key not in chosen:
            continue
        store.place(key, bad)
        named = {finding.object for finding in await findings_of(store, builder.table)}
        store.place(key, body)
        assert key in named, f"{key}: {done} (seed {seed})"


async def test_a_check_names_the_object_that_is_damaged() -> None:
    await check_names_damages(1, SEED, one_a_folder=True)


@pytest.mark.slow
async def test_a_check_names_the_object_whichever_of_many_bits_is_flipped() -> None:
    await check_names_damages(examples(3), SEED + 1)


@pytest.mark.slow
async def test_a_reader_refuses_a_damaged_table_or_answers_as_before() -> None:
    builder = await everything_table()
    store = memory_of(builder)
    before = await answer_of(store, builder.table)
    head = root_key(builder.table, builder.state.header.version)
    refused = 0
    for key, body, done, bad in await damaged(builder, examples(6), SEED + 2):
        if "/roots/" in key and key != head:
            continue  # a reader reads the head only
        store.place(key, bad)
        try:
            assert await answer_of(store, builder.table) == before, f"{key}: {done}"
        except Corrupt as error:
            refused += error.code in {"root-corrupt", "leaf-corrupt", "vector-corrupt", "definition-unreadable"}
        store.place(key, body)
    assert refused > 7 * examples(6)


async def test_a_check_of_a_missing_object_names_it() -> None:
    builder = await everything_table()
    store = memory_of(builder)
    for key, body in (await metadata_objects(builder)).items():
        if "/roots/" in key:
            continue
        store.discard(key)
        found = await findings_of(store, builder.table)
        store.place(key, body)
        assert (key, "object-missing") in {(finding.object, finding.code) for finding in found}, key
