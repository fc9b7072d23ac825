"""One data file compared with what is stated of it: footers long and broken, formats without one."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.file_footers import FooterReader
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE
from tests.coordinator.test_verified_files import BODY, put, stated


async def test_a_long_footer_is_read_by_a_request_of_its_own() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"column-{at:05d}-{'x' * 40}": [1, 2, 3] for at in range(900)}), sink)
    body = sink.getvalue()
    assert int.from_bytes(body[-8:-4], "little") > 64 * 1024
    store = MemoryObjectStore()
    await put(store, "wide", body)
    reader = FooterReader(store, TABLE)
    assert await reader.fault_of(stated("wide", record_count=3, size_in_bytes=len(body))) is None
    fault = await reader.fault_of(stated("wide", record_count=4, size_in_bytes=len(body)))
    assert fault is not None
    assert fault.code == "data-file-misstated"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PAR1",
        b"PAR1PAR1PAR1",
        BODY[:-4] + b"PARE",
        BODY[:-8] + (2**31).to_bytes(4, "little") + b"PAR1",
        BODY[:-8] + (len(BODY) - 11).to_bytes(4, "little") + b"PAR1",
        BODY[:-60] + bytes(52) + BODY[-8:],
        b"PAR1" + bytes(500) + (500).to_bytes(4, "little") + b"PAR1",
        b"PAR1" + b"\xff" * 500 + (500).to_bytes(4, "little") + b"PAR1",
    ],
)
async def test_whatever_bytes_a_file_has_they_are_its_own_fault(body: bytes) -> None:
    store = MemoryObjectStore()
    await put(store, "odd", body)
    fault = await FooterReader(store, TABLE).fault_of(stated("odd", size_in_bytes=len(body)))
    assert fault is not None
    assert fault.code in ("file-unreadable", "data-file-misstated")
    assert "data/odd.parquet" in fault.message


async def test_of_orc_and_of_encrypted_files_the_length_alone_is_compared() -> None:
    store = MemoryObjectStore()
    await put(store, "orc", b"ORC...")
    reader = FooterReader(store, TABLE)
    file = stated("orc", file_format=FileFormat.ORC, size_in_bytes=6)
    assert await reader.fault_of(file) is None
    assert await reader.fault_of(stated("orc", size_in_bytes=6, is_encrypted=True)) is None
    assert await reader.fault_of(file._replace(size_in_bytes=7)) is not None


async def test_a_store_without_partial_reads_is_asked_for_the_object() -> None:
    store = HookedStore()
    await put(store.inner, "a")
    assert await FooterReader(store, TABLE).fault_of(stated("a")) is None
    assert store.calls == [("get", key_of(TABLE, "data/a.parquet"))]
