"""docs/foreign-clients.md, run as it stands there: clients that know nothing of Rootline but its schemas."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from rootline.schemas.bytes.intent_codec import decode_intent, fingerprint_of, shipped_schema
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from tests.kafka.reading import Found, records_on
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.decided import APPEND

pytestmark = pytest.mark.services
HOUSE = Path(__file__).parents[3]
SCHEMAS = HOUSE / "schemas" / "avro"
PAGE = (HOUSE / "docs" / "foreign-clients.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of the page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@dataclass(frozen=True)
class Foreign:
    """A folder with the schemas, where the page's code finds the test's own broker and topics."""

    folder: Path
    log: SharedLog

    def run(self, code: str, *command: str) -> str:
        settings = self.log.settings
        for name, ours in (
            ("localhost:9092", settings.servers()),
            ("rootline.intents", settings.intents_topic),
            ("rootline.verdicts", settings.verdicts_topic),
        ):
            code = code.replace(name, ours)
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [*command, code],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, code: str) -> str:
        return self.run(code, sys.executable, "-c")

    def published(self) -> list[Found]:
        return records_on(self.log.settings, self.log.settings.intents_topic)


@pytest.fixture
def foreign(kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Foreign]:
    """The table `demo.flights` exists, and a coordinator decides."""
    log = SharedLog(tmp_path / "lake", kafka_service.with_topics())
    log.folder.mkdir()
    in_environment(log.settings, monkeypatch)
    client = tmp_path / "client"
    client.mkdir()
    for name in ("intent.avsc", "verdict.avsc"):
        shutil.copy(SCHEMAS / name, client)
    if shutil.which("kcat") is None:
        stand_in = client / "kcat"
        stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HOUSE}/tests/kafka/stories/kcat_stand_in.py" "$@"\n')
        stand_in.chmod(0o755)
    with log.coordinated():
        with log.open() as lake:
            lake.create_table("demo.flights", pa.schema([("id", pa.int64())]))
            trips = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("day", pa.date32())])
            lake.create_table("demo.trips", trips, partition_by=["carrier", "month(day)"])
        yield Foreign(client, log)


def test_everything_on_the_page_is_committed(foreign: Foreign) -> None:
    one_line, _ = blocks("console")
    avro, waiting, _ = blocks("python")

    foreign.run(one_line, "sh", "-c")
    told = foreign.python(avro)
    verdict = foreign.python(waiting)

    assert re.fullmatch(r"\[\(None, \d+, \d+\)\]\n", told)
    kind, version, *_ = verdict.split()
    assert (kind, version) == ("committed", "3")
    again = foreign.python(waiting)
    assert again.split()[:2] == ["duplicate", "3"]
    with foreign.log.open() as lake:
        locations = sorted(task.location for task in lake.table("demo.flights").scan().plan())
    assert locations == ["data/ingest-7-41.parquet", "data/ingest-8-0.parquet", "data/kcat-1.parquet"]
    flights = [found for found in foreign.published() if found.key == b"demo.flights"]
    created, line, framed, *_ = flights
    assert line.headers == {"content-type": b"application/json"}
    assert decode_intent(line.value, line.headers).writer_id == "by-hand"
    assert framed.value[:2] == b"\xc3\x01"
    assert {found.partition for found in (created, line, framed)} == {created.partition}


def test_the_line_for_a_partitioned_table_is_committed_and_filters_find_its_file(foreign: Foreign) -> None:
    _, partitioned = blocks("console")
    foreign.run(partitioned, "sh", "-c")
    with foreign.log.open() as lake, lake.producer() as producer:
        trips = lake.table("demo.trips")
        [spec] = trips.definition().partition_specs
        assert (spec.spec_id, list(spec.expr_ids)) == (0, [2, 4]), "the ids that the page names"
        reference = VersionReference(tag="t", version=0)
        again = Intent(intent_id="behind-it", table="demo.trips", kind=IntentKind.TAG, ref=reference)
        producer.publish(again).verdict(60)  # what came before it is decided then
        found = {
            where: [task.location for task in trips.scan(where=where).plan()]
            for where in ("carrier = 'UA' and day >= '2013-01-31'", "carrier = 'AA'", "day >= '2013-02-01'")
        }
    assert list(found.values()) == [["data/trips-1.parquet"], [], []]


def test_the_page_names_the_fingerprint_of_the_schema() -> None:
    (named,) = re.findall(r"fingerprint is `([0-9a-f]{16})`", PAGE)
    assert named == fingerprint_of(shipped_schema("intent")).hex()


def crc_64_avro(text: bytes) -> int:
    """The fingerprint as the Avro specification writes it out."""
    empty = 0xC15D213AA4D7A795
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
        table.append(value)
    found = empty
    for byte in text:
        found = (found >> 8) ^ table[(found ^ byte) & 0xFF]
    return found


def test_a_frame_made_by_the_words_of_the_specification_alone_is_read() -> None:
    schema = json.loads((SCHEMAS / "intent.avsc").read_text())
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), APPEND)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)

    intent = decode_intent(b"\xc3\x01" + struct.pack("<Q", crc_64_avro(canonical.encode())) + body.getvalue())

    assert (intent.intent_id, intent.table) == ("a-job-of-somebody/17", "demo.flights")
    assert [file.location for file in intent.add_data_files] == ["data/part-0.parquet"]
