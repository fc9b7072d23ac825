"""A namespace's chain of versions, on every store: who wins, what is lost, what cannot be read."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import ObjectStore, Predecessor, PutReply, PutStatus
from rootline.schemas.errors import Corrupt, Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import NamespaceName, ObjectKey
from rootline.schemas.object_keys import namespace_key
from rootline.storage.metadata.namespaces import (
    RECORD_BYTES_MAX,
    Change,
    NamespaceState,
    NextState,
    change_namespace,
    encode_record,
    list_namespaces,
    read_namespace,
)
from rootline.testing.seeded_environment import SeededEnvironment
from tests.contracts.stores import STORES

NAME = NamespaceName("a.b")
WRITERS = 32
_PARAMETERS = [pytest.param(name, marks=pytest.mark.services if name == "s3" else ()) for name in STORES]


@pytest.fixture(params=_PARAMETERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made = STORES[request.param](request, tmp_path)
    yield made
    await made.close()


def setting(key: str, value: str = "x") -> Change:
    """Set one property, and leave the others."""

    async def change(state: NamespaceState) -> NextState | None:
        return NextState({**state.properties, key: value})

    return change


async def dropping(_: NamespaceState) -> NextState | None:
    return NextState({}, is_there=False)


async def changed(store: ObjectStore, change: Change, seed: int = 0, *, timeout_s: float = 120.0) -> None:
    await change_namespace(store, SeededEnvironment(seed), NAME, change, timeout_s=timeout_s)


async def test_of_32_who_change_properties_at_once_none_is_lost(store: ObjectStore) -> None:
    await asyncio.gather(*(changed(store, setting(f"key-{at}", str(at)), at) for at in range(WRITERS)))
    state = await read_namespace(store, NAME)
    assert state == NamespaceState(WRITERS - 1, True, {f"key-{at}": str(at) for at in range(WRITERS)})


async def test_of_32_who_create_a_namespace_one_does(store: ObjectStore) -> None:
    async def creating(state: NamespaceState) -> NextState | None:
        if state.is_there:
            raise Invalid("namespace-exists", "another was faster")
        return NextState({"by": "one"})

    ended = await asyncio.gather(*(changed(store, creating, at) for at in range(WRITERS)), return_exceptions=True)
    assert [error for error in ended if not isinstance(error, Invalid)] == [None]
    assert (await read_namespace(store, NAME)).version == 0


async def test_a_chain_goes_on_after_a_drop(store: ObjectStore) -> None:
    assert await read_namespace(store, NAME) == NamespaceState()
    await changed(store, setting("one"))
    await changed(store, dropping)
    assert await read_namespace(store, NAME) == NamespaceState(1, False, {})
    assert await list_namespaces(store) == []
    await changed(store, setting("two"))
    assert await read_namespace(store, NAME) == NamespaceState(2, True, {"two": "x"})
    assert await list_namespaces(store) == [NAME]


async def test_what_changes_nothing_stores_nothing(store: ObjectStore) -> None:
    async def nothing(_: NamespaceState) -> NextState | None:
        return None

    await changed(store, nothing)
    assert list((await store.list("")).keys) == []


async def test_objects_of_others_in_the_folder_are_passed_over(store: ObjectStore) -> None:
    for name in ("0000-notes.txt", "0000000000000000-7.json", *(f"00-{at}" for at in range(120))):
        await store.put_if_absent(ObjectKey(f"{NAME}/.namespace/{name}"), b"?")
    assert await read_namespace(store, NAME) == NamespaceState()
    await changed(store, setting("one"))
    assert (await read_namespace(store, NAME)).properties == {"one": "x"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"format-version":1}',
        encode_record(NAME, 1, {}, change_id="x"),
        encode_record(NamespaceName("a"), 0, {}, change_id="x"),
        encode_record(NAME, 0, {}, change_id="x").replace(b'"format-version":1', b'"format-version":2'),
        encode_record(NAME, 0, {"a": "b"}, change_id="x").replace(b'"b"', b"5"),
    ],
    ids=range(7),
)
async def test_a_record_that_is_not_what_was_written_is_an_error(body: bytes) -> None:
    store = MemoryObjectStore()
    await store.put_if_absent(namespace_key(NAME, 0), body)
    assert await list_namespaces(store) == [NAME]  # it is there, and hides no other
    for ask in (read_namespace(store, NAME), changed(store, setting("one"))):
        with pytest.raises(Corrupt) as caught:
            await ask
        assert (caught.value.code, str(namespace_key(NAME, 0)) in caught.value.message) == (
            "namespace-unreadable",
            True,
        )


async def test_properties_that_are_too_long_are_refused() -> None:
    store = MemoryObjectStore()
    with pytest.raises(Invalid) as caught:
        await changed(store, setting("k", "x" * RECORD_BYTES_MAX))
    assert caught.value.code == "namespace-invalid"
    assert list((await store.list("")).keys) == []


class _Forgetful(MemoryObjectStore):
    """Stores an object, or not, and does not answer."""

    def __init__(self, stores_it: list[bool]) -> None:
        super().__init__()
        self._stores_it = stores_it

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        if self._stores_it and self._stores_it.pop(0):
            await super().put_if_absent(key, body, after=after)
        return PutReply(PutStatus.NO_ANSWER)


async def test_a_lost_answer_is_read_back_and_the_change_is_made_once() -> None:
    store = _Forgetful([True, True])
    await changed(store, setting("one"))
    await changed(store, setting("two"))
    assert await read_namespace(store, NAME) == NamespaceState(1, True, {"one": "x", "two": "x"})
    with pytest.raises(Unavailable):
        await changed(_Forgetful([]), setting("one"))


async def test_who_never_wins_ends_in_time_and_says_that_the_outcome_is_unknown() -> None:
    store, numbers = MemoryObjectStore(), itertools.count()

    async def always_slower(state: NamespaceState) -> NextState | None:
        body = encode_record(NAME, state.version + 1, {}, change_id=f"other-{next(numbers)}")
        await store.put_if_absent(namespace_key(NAME, state.version + 1), body)
        return NextState({"mine": "x"})

    with pytest.raises(OutcomeUnknown) as caught:
        await changed(store, always_slower, timeout_s=0.05)
    assert caught.value.code == "namespace-unconfirmed"
    assert "mine" not in (await read_namespace(store, NAME)).properties


async def test_a_namespace_that_differs_only_in_case_is_refused_where_it_would_be_the_same_folder(
    tmp_path: Path,
) -> None:
    store = LocalObjectStore(tmp_path, case_probe=lambda _: False)
    await changed(store, setting("one"))
    with pytest.raises(Invalid, match=r"^A\.b: ") as caught:
        await change_namespace(store, SeededEnvironment(0), NamespaceName("A.b"), setting("two"), timeout_s=9)
    assert caught.value.code == "name-differs-in-case"
    await store.close()
    other = LocalObjectStore(tmp_path, case_probe=lambda _: True)
    await change_namespace(other, SeededEnvironment(0), NamespaceName("A.b"), setting("two"), timeout_s=9)
    assert await list_namespaces(other) == ["A.b", "a.b"]
    await other.close()
