"""Makes the lakes in tests/golden/stored with the code of today.

`python -m tests.stored.make folder kafka` replaces both; name one to replace only that. Run it when a format gains
something that the stored lakes lack, in a commit of its own: what an older version wrote is then no longer tested. To
keep it, store the new lakes under other names.

Owns: where the lakes are while they are made, and packing. Does not own: their content (`story`).
Invariants: no test runs this file; a lake is packed when every process that writes to it has ended.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.kafka.topics import create_topics
from rootline.adapters.settings import KafkaSettings
from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.intent import Intent
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.kafka.topic_watch import Watch
from tests.services.kafka_service import running_movable_kafka
from tests.services.s3_service import running_s3
from tests.stored.stored_kafka import PARTITIONS, PREFIX, topics_of
from tests.stored.stored_lake import STORED
from tests.stored.story import (
    PAUSED,
    STUCK,
    append,
    date_back,
    decide_all,
    facts_of,
    fill,
    publish_rejected,
    publish_undecided,
    put_in_folder,
    stored,
)


def make_folder(work: Path) -> None:
    """A warehouse in a folder, with the embedded log."""
    lake_folder = work / "folder"
    with connect(lake_folder) as lake:
        facts = fill(lake, str(lake_folder), None, put_in_folder(lake_folder))
    with connect(lake_folder, coordinator="elsewhere") as lake:
        publish_rejected(lake)
    with connect(lake_folder) as lake:
        decide_all(lake)
        facts |= facts_of(lake)
    with connect(lake_folder, coordinator="elsewhere") as lake:
        facts["undecided"] = publish_undecided(lake)
    pack(lake_folder, facts)


def make_kafka(work: Path) -> None:
    """A warehouse on S3, the log on Kafka: the bucket's objects, and the data of the broker."""
    lake_folder = work / "kafka"
    with running_s3(_made(work / "s3")) as s3, running_movable_kafka(_made(work / "broker")) as kafka:
        address = KafkaLake(s3, topics_of(kafka), prefix=PREFIX)
        create_topics(address.kafka, partitions=PARTITIONS, replication_factor=1)
        os.environ.update(address.environment())  # for the command line and for maintenance by hand
        assert s3.folder is not None
        facts = _fill_kafka(address, s3.folder / PREFIX, work)
        shutil.copytree(s3.folder / PREFIX, lake_folder / "bucket")
    shutil.copytree(work / "broker" / "data", lake_folder / "broker" / "data")
    pack(lake_folder, facts)


def _fill_kafka(address: KafkaLake, bucket: Path, work: Path) -> dict[str, Any]:
    warehouse, log = address.warehouse, address.kafka.url
    options = {"ROOTLINE_COORDINATOR__PARKING_AFTER_S": "1", "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0"}
    environment = {**address.environment(), **options}
    process = RootlineProcess("maker", ("coordinator",), environment, work)

    def put(key: str, body: bytes) -> None:
        asyncio.run(_put(address, key, body))
        date_back(bucket / key)

    with connect(warehouse, log=log) as lake:
        with _running(process):
            facts = fill(lake, warehouse, log, put)
            for name in (STUCK, PAUSED):
                lake.create_table(name, {"id": "long"}).append({"id": [1]})
        publish_rejected(lake)
        command = ("-c", "from rootline.cli.app import main; main()", "pause", PAUSED, "--why", "to be stored")
        subprocess.run([sys.executable, *command], check=True, capture_output=True)  # who starts later finds it
        newest = min((bucket / "shop" / "stuck" / "metadata" / "roots").iterdir())
        body = newest.read_bytes()
        newest.write_bytes(body[:-3])
        with _running(process):
            decide_all(lake)
            parked = _publish(lake, [append(f"parked-{number}", 1, table=STUCK) for number in range(3)])
            _until_parked(lake, address.kafka, len(parked))
            paused = _publish(lake, [append("paused", 1, table=PAUSED)])
            decide_all(lake, number=1)
        newest.write_bytes(body)
        facts |= facts_of(lake)
        facts["undecided"] = publish_undecided(lake)
    return facts | {"more": {"parked": parked, "paused": paused, "decided": _decided(address.kafka)}}


def _publish(lake: Lake, intents: Sequence[Intent]) -> list[Any]:
    with lake.producer("waits") as producer:
        published = [producer.publish(intent, writer_sequence=at).intent for at, intent in enumerate(intents)]
    return [stored(intent) for intent in published]


def _until_parked(lake: Lake, settings: KafkaSettings, records: int) -> None:
    """A table is parked while others of its partition go on."""
    deadline_s = time.monotonic() + 60
    with lake.producer() as producer:
        while [table.records for table in KafkaTopics(settings).parked()] != [records]:
            assert time.monotonic() < deadline_s, "no table is parked"
            producer.publish(append(f"goes-on-{time.monotonic_ns()}", 1)).verdict()


def _decided(settings: KafkaSettings) -> list[list[int]]:
    """Partition and offset of every record that has a verdict, with the number of its verdicts."""
    watch = Watch(settings)
    try:
        watch.catch_up()
        return sorted([*place, len(verdicts)] for place, verdicts in watch.verdicts.items())
    finally:
        watch.close()


async def _put(address: KafkaLake, key: str, body: bytes) -> None:
    store = address.store()
    try:
        await store.put_if_absent(ObjectKey(key), body)
    finally:
        await store.close()


@contextmanager
def _running(process: RootlineProcess) -> Iterator[None]:
    """A coordinator for a block; it stops cleanly."""
    process.start()
    with ending(process):
        process.wait_ready()
        yield
        process.request_stop()
        assert process.wait() == 0, process.tail()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def pack(lake_folder: Path, facts: dict[str, Any]) -> None:
    """Store the folder under its name, and its facts beside it."""
    STORED.mkdir(parents=True, exist_ok=True)
    with tarfile.open(STORED / f"{lake_folder.name}.tar.xz", "w:xz", preset=9) as packed:
        packed.add(lake_folder, lake_folder.name, filter=_plain)
    text = json.dumps({"more": {}, **facts}, separators=(",", ":")).encode()
    (STORED / f"{lake_folder.name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names of whoever made it."""
    item.uid = item.gid = 0
    item.uname = item.gname = ""
    return item


def main(*names: str) -> None:
    makers = {"folder": make_folder, "kafka": make_kafka}
    for name in names or makers:
        work = Path(tempfile.mkdtemp(prefix="stored-lake-"))
        try:
            makers[name](work)
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
