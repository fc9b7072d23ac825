"""Scans by our ranged reads and by Arrow's, each in a process of its own, because it may block it or end it.

Owns: memory, cancellation, deadlines, forks, errors, damaged footers. Does not own: the scans (`arrow_scans`), who asks
(`parts_through_arrow`).
Invariants: a process says its result in its last line.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arrow_scans import SCANS, TABLE, Lake, Scan, scanned, systems
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.schemas.errors import RootlineError
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.parquet_file import ParquetRows
from tests.services.recording_proxy import Fate, recording_proxy
from tests.services.s3_service import S3Service

_PATIENCE_S: Final = 60


def saved(service: S3Service, lake: Lake, folder: Path) -> str:
    """Where other processes find service and lake."""
    import pickle

    place = folder / "lake.pickle"
    known = (service.endpoint, service.access_key_id, service.secret_access_key, service.bucket)
    definition = lake.definition.to_json()
    place.write_bytes(pickle.dumps((known, definition, lake.prefix, lake.large, lake.small)))
    return str(place)


def _loaded(place: str) -> tuple[S3Service, Lake]:
    import pickle

    known, definition, prefix, large, small = pickle.loads(Path(place).read_bytes())
    return S3Service(*known), Lake(TableDefinition.from_json(definition), prefix, large, small)


def memory(place: str, way: str, number: int) -> None:
    """Child: how much the process has grown at most by one scan."""
    service, lake = _loaded(place)
    scan = SCANS[number]

    async def run() -> None:
        store = service.store(lake.prefix)
        small = Scan("", "small", ("c7",))
        await scanned(way, store, lake, small)
        before = _peak_kib()
        await scanned(way, store, lake, scan)
        print(f"{before // 1024} MiB before, {(_peak_kib() - before) // 1024} MiB more at most")
        await store.close()

    asyncio.run(run())


def _peak_kib() -> int:
    """The most that this process has had in memory; the kernel counts from its start, and not from its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def cancelled(place: str, way: str) -> None:
    """Child: a store that goes silent after two requests; the scan is cancelled half a second later."""
    service, lake = _loaded(place)
    began = time.perf_counter()
    said: list[str] = []

    async def run() -> None:
        nonlocal began
        fates = [Fate.RELAYED] * 2 + [Fate.SILENT] * 50
        async with recording_proxy(service.address, *fates) as recorder:
            store = service.store(lake.prefix, endpoint=recorder.endpoint)
            task = asyncio.ensure_future(scanned(way, store, lake, SCANS[2]))
            while len(recorder.requests) < 4 and not task.done():  # noqa: ASYNC110  # the proxy has no event for it
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            began = time.perf_counter()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            said.append(f"cancel returns after {time.perf_counter() - began:.2f} s")
            print(said, flush=True)
            threads = sum("asyncio" in one.name for one in _threads())
            said.append(f"{threads} pool threads, requests {len(recorder.requests)}")
            began = time.perf_counter()
            # silence is kept until the loop has ended: a server that does not answer does not close either
            while (held := sum(1 for one in _stuck_threads())) and time.perf_counter() - began < 40:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            said.append(f"reading threads end {time.perf_counter() - began:.1f} s later ({held} still there)")
            print("; ".join(said), flush=True)
        os._exit(0)

    asyncio.run(run())


def _threads() -> list[Any]:
    import threading

    return threading.enumerate()


def _stuck_threads() -> Iterator[Any]:
    """Pool threads that are in a file's opening or decoding."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name in ("opened", "_next_portion"):
                yield frame
                break
            frame = frame.f_back  # type: ignore[assignment]


def deadline(place: str, way: str) -> None:
    """Child: the same silence without a cancellation; our settings say that a request has at most 2 s."""
    service, lake = _loaded(place)

    async def run() -> None:
        fates = [Fate.RELAYED] * 2 + [Fate.SILENT] * 50
        async with recording_proxy(service.address, *fates) as recorder:
            settings = {"read_timeout_s": 2.0, "request_timeout_s": 2.0, "endpoint": recorder.endpoint}
            store = service.store(lake.prefix, **settings)
            await _ending(way, store, lake)

    asyncio.run(run())


def dripping(place: str, way: str) -> None:
    """The first two answers come at once, the others 64 bytes every tenth of a second; a request has at most 2 s."""
    service, lake = _loaded(place)
    answered = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            from_store, to_store = await asyncio.open_connection(*service.address)
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                to_store.write(asked)
                head = await from_store.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = b"" if asked.startswith(b"HEAD") else await from_store.readexactly(length)
                answered += 1
                writer.write(head)
                step = 64 if answered > 2 else max(1, len(body))
                for at in range(0, len(body), step):
                    writer.write(body[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(0.1 if answered > 2 else 0)

    async def run() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        settings = {"read_timeout_s": 2.0, "request_timeout_s": 2.0, "endpoint": f"http://{host}:{port}"}
        await _ending(way, service.store(lake.prefix, **settings), lake)

    asyncio.run(run())


async def _ending(way: str, store: S3ObjectStore, lake: Lake) -> None:
    """Say how a scan of every column ends, and end the process, whatever still reads."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(20):
            await scanned(way, store, lake, SCANS[2])
    except (RootlineError, OSError, TimeoutError) as error:
        print(f"{time.perf_counter() - began:.1f} s: {type(error).__name__}: {str(error)[:230]}", flush=True)
    os._exit(0)


def forked(place: str, way: str) -> None:
    """Child: scans, forks, and scans in the fork."""
    service, lake = _loaded(place)

    def scan_once() -> int:
        async def run() -> int:
            store = service.store(lake.prefix)
            found, _ = await scanned(way, store, lake, Scan("", "small", ("c7",)))
            await store.close()
            return len(found)  # type: ignore[arg-type]

        return asyncio.run(run())

    scan_once()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            os._exit(0 if scan_once() == 160_000 else 3)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(4)
    _, status = os.waitpid(pid, 0)
    ending = f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    print(f"fork that scans again: {ending}{' (stuck for 20 s)' if status == signal.SIGALRM else ''}", flush=True)
    os._exit(0)


def errors(place: str, way: str) -> None:
    """Child: what a caller is told when the object is missing, the secret is wrong, or nobody listens."""
    service, lake = _loaded(place)
    from dataclasses import replace

    gone = replace(lake, small=(replace(lake.small[0], location="data/none.parquet"),))
    # an adopted file: an empty part is a part of a key's name on S3, and this server's folder reads it as none
    absolute = f"s3://{service.bucket}/{lake.prefix}/{key_of(TABLE, lake.small[0].location)}"
    twice = replace(lake, small=(replace(lake.small[0], location=absolute.replace("/data/", "/data//")),))
    cases = {
        "no such object": (gone, service.store(lake.prefix)),
        "wrong secret": (lake, service.store(lake.prefix, secret_access_key="wrong")),
        "nobody listens": (lake, service.store(lake.prefix, endpoint="http://127.0.0.1:9")),
        "an absolute location with an empty part": (twice, service.store(lake.prefix)),
    }

    async def run() -> None:
        found = {}
        for name, (held, store) in cases.items():
            systems.clear()
            try:
                await scanned(way, store, held, Scan("", "small", ("c7",)))
                found[name] = "read"
            except Exception as error:
                code = getattr(error, "code", None) or f"errno {getattr(error, 'errno', None)}"
                found[name] = f"{type(error).__name__} [{code}] {str(error)[-160:]}"
        print(json.dumps(found), flush=True)

    asyncio.run(run())


def _small_file() -> bytes:
    rows = pa.table({"id": range(9), "s": [str(at) for at in range(9)]})
    body = io.BytesIO()
    pq.write_table(rows, body, row_group_size=3, use_dictionary=False, write_page_checksum=True, store_schema=False)
    return body.getvalue()


def _ours(body: bytes) -> None:
    from rootline.storage.rows.parquet_file import open_parquet

    file = ParquetRows(open_parquet(body, "f"), "f", body)
    groups = list(range(file.file.metadata.num_row_groups))
    file.ranges(groups, file.schema.names, len(body))
    for _ in file.batches_of(groups, file.schema.names):
        pass


def _pre_buffered(body: bytes) -> None:
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=True, page_checksum_verification=True)
    file.read_row_groups(list(range(file.metadata.num_row_groups)), columns=file.schema_arrow.names)


def _places_and_statistics(body: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False).metadata
    for number in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(number).column(at)
            found = column.statistics
            _ = column.total_compressed_size, column.data_page_offset, found and (found.min_raw, found.null_count)


_DECODERS: Final[dict[str, Callable[[bytes], None]]] = {
    "our footer reader, Arrow without pre-buffering": _ours,
    "Arrow with pre-buffering": _pre_buffered,
    "Arrow's metadata for places and statistics": _places_and_statistics,
}


def footers_from(name: str, bit: int, start: int) -> None:
    """Child: every byte of the footer from `start` on with one bit the other way; says how far it has come."""
    whole, decode = _small_file(), _DECODERS[name]
    first = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in range(first + start, len(whole)):
        print(at - first, pa.default_memory_pool().max_memory(), flush=True)
        with contextlib.suppress(RootlineError, pa.ArrowException, OSError, ValueError, MemoryError, TypeError):
            decode(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    print("over", pa.default_memory_pool().max_memory())


def footers() -> None:
    """How many one-bit changes of a footer end the process, by way of reading it."""
    whole = _small_file()
    length = 8 + int.from_bytes(whole[-8:-4], "little")
    print(f"\n{length} bytes of footer, each with one of three bits changed\n")
    print("| way | changes | end the process | how | most memory of Arrow's |\n|---|---|---|---|---|")
    for name in _DECODERS:
        deaths, how, most = 0, set(), 0
        for bit in (1, 4, 128):
            start = 0
            while start < length:
                command = [sys.executable, "-m", "benchmarks.parts_in_trouble", "footers", name, str(bit)]
                done = subprocess.run([*command, str(start)], capture_output=True, text=True, timeout=300)
                lines = done.stdout.strip().splitlines()
                most = max([most, *(int(line.split()[1]) for line in lines)])
                if lines and lines[-1].startswith("over"):
                    break
                deaths += 1
                how.add(f"{done.returncode}")
                start = int(lines[-1].split()[0]) + 1 if lines else start + 1
        print(f"| {name} | {3 * length} | {deaths} | {', '.join(sorted(how))} | {most:,} |", flush=True)


CASES: Final[dict[str, Callable[..., None]]] = {
    "memory": lambda place, way, number: memory(place, way, int(number)),
    "cancelled": cancelled,
    "deadline": deadline,
    "dripping": dripping,
    "forked": forked,
    "errors": errors,
    "footers": lambda name, bit, start: footers_from(name, int(bit), int(start)),
}


def said_by(*arguments: str) -> str:
    """What a process of its own says last of one case, or how it ended."""
    command = [sys.executable, "-m", "benchmarks.parts_in_trouble", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"not over after {_PATIENCE_S} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        return f"{lines[-1] if lines else ''} exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    return lines[-1] if lines else ""


if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
