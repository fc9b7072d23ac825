"""A Kafka broker: KRaft, one node, or the one that `ROOTLINE_TEST_KAFKA` names.

Owns: the broker, its listeners, and topics of one test. Does not own: the adapters under test.
Invariants: a test has topics of its own, so tests never meet; a restart keeps ports and data.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from rootline.adapters.kafka.topics import create_topics
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Unavailable
from tests.services.kafka_certificates import make_certificates
from tests.services.kafka_software import KafkaSoftware, kafka_software
from tests.services.service_process import HOST, ServiceProcess, held_port
from tests.services.toxiproxy import Proxy, Toxiproxy

USER = "rootline"
PASSWORD = "rootline-tests-only"
_PATIENCE_S = 120.0
_NEVER_MS = str(10 * 365 * 24 * 3600 * 1000)
_NOTHING_EXPIRES = {
    "log.initial.task.delay.ms": _NEVER_MS,
    "log.retention.check.interval.ms": _NEVER_MS,
    "offsets.retention.minutes": str(2**31 - 1),
}
"""For data that is older than the topics keep it."""
_SESSION_MS = 2_000
_SESSION_MS_IMMORTAL = 120_000
"""Of a broker that nobody kills: on a busy machine its heartbeats are late, and a fenced one has no groups."""


@dataclass(frozen=True)
class _Ports:
    plain: int
    proxied: int
    """Where the broker listens for the proxy."""
    proxy: int
    """Where clients of the proxied listener go: the advertised port."""
    secure: int
    controller: int


class KafkaBroker:
    """A broker of our own: it can be killed and started again on the same ports and data.

    `is_movable`: a copy of its data can be started again in another folder, on other ports, after any time. Where
    `folder` has data, the broker goes on with it. `session_ms`: the controller fences a broker that it has not heard of
    for so long, and a broker that was killed waits so long before it is back.
    """

    def __init__(
        self,
        software: KafkaSoftware,
        folder: Path,
        *,
        recording: bool = False,
        is_movable: bool = False,
        session_ms: int = _SESSION_MS,
    ) -> None:
        # a broker that is dead, and a proxy that is not there yet, keep their ports
        self._held = [held_port() for _ in range(5)]
        self.ports = _Ports(*(held.getsockname()[1] for held in self._held))
        self._software = software
        self._folder = folder
        self._recording = recording
        self._starts = 0
        self.authority = folder / "authority.pem"
        self._properties = folder / "server.properties"
        self._properties.write_text(_properties(self.ports, folder, session_ms, is_movable=is_movable))
        if not (folder / "data").exists():
            self._format(is_movable=is_movable)
        self._process = self._start()

    def _format(self, *, is_movable: bool) -> None:
        quorum = () if is_movable else ("--standalone",)
        words = ("format", *quorum, "--cluster-id", _cluster_id(), "--config", self._properties)
        formatted = subprocess.run(
            [str(part) for part in self._software.command("kafka.tools.StorageTool", *words)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    def segments(self, topic: str, partition: int) -> list[Path]:
        """The files that hold a partition's records."""
        return sorted((self._folder / "data" / f"{topic}-{partition}").glob("*.log"))

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()

    def start_again(self) -> None:
        """After `kill` or `stop`; ready when it returns."""
        self._process = self._start()
        self.wait_ready()

    def revive(self) -> None:
        """Start it again if it was killed."""
        if not self._process.is_alive:
            self.start_again()

    def stop(self) -> None:
        """Ask it to end, and wait."""
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.stop()

    def release_ports(self) -> None:
        """It will not start again."""
        for held in self._held:
            held.close()

    def wait_ready(self) -> None:
        """Until it answers."""
        self._process.wait_ready(self.ports.plain, deadline_s=300)
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{self.ports.plain}", "log_level": 0})
        assert admin.describe_cluster(request_timeout=30).result().nodes

    def _start(self) -> ServiceProcess:
        self._starts += 1
        command = self._software.command("kafka.Kafka", self._properties, recording=self._recording)
        return ServiceProcess(command, self._folder / f"broker-{self._starts}.log")


@dataclass(frozen=True)
class KafkaService:
    """Where the broker is; `broker` is there when it is ours."""

    servers: str
    broker: KafkaBroker | None

    def settings(self, **changes: Any) -> KafkaSettings:
        """Settings with topics of their own, which do not exist yet."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        return KafkaSettings(
            **{
                "bootstrap_servers": self.servers,
                "intents_topic": f"{name}.intents",
                "verdicts_topic": f"{name}.verdicts",
                "dead_letters_topic": f"{name}.dead-letters",
                "frontiers_topic": f"{name}.frontiers",
                "parked_topic": f"{name}.parked",
                "group_id": name,
                **changes,
            }
        )

    def with_topics(self, partitions: int = 4, **changes: Any) -> KafkaSettings:
        """Settings whose topics exist."""
        settings = self.settings(**changes)
        # the test's own time-out may be short on purpose, and the broker may just have come back
        patient, deadline = settings.model_copy(update={"request_timeout_s": 10.0}), time.monotonic() + _PATIENCE_S
        while True:
            try:
                create_topics(patient, partitions=partitions, replication_factor=1)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
            else:
                return settings

    def secure(self, settings: KafkaSettings, **changes: Any) -> KafkaSettings:
        """The same through TLS and a password."""
        broker = self.own()
        return settings.model_copy(
            update={
                "bootstrap_servers": f"{HOST}:{broker.ports.secure}",
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": USER,
                "sasl_password": SecretStr(PASSWORD),
                "tls_ca_file": broker.authority,
                **changes,
            }
        )

    @contextmanager
    def proxied(self, toxiproxy: Toxiproxy, settings: KafkaSettings) -> Iterator[tuple[KafkaSettings, Proxy]]:
        """The same through a network that can be broken; one at a time."""
        ports = self.own().ports
        upstream = (HOST, ports.proxied)
        with toxiproxy.proxy(f"kafka-{uuid.uuid4().hex[:8]}", upstream, listen_port=ports.proxy) as proxy:
            yield settings.model_copy(update={"bootstrap_servers": f"{HOST}:{ports.proxy}"}), proxy

    def own(self) -> KafkaBroker:
        """Our broker; a named one is not ours to kill, proxy or reconfigure."""
        if self.broker is None:
            pytest.fail("this test needs a broker of its own: unset ROOTLINE_TEST_KAFKA", pytrace=False)
        return self.broker


@contextmanager
def running_movable_kafka(folder: Path) -> Iterator[KafkaService]:
    """A broker of our own whose data can be kept: that in `folder`, if there is any. Its end is a clean one."""
    broker = KafkaBroker(kafka_software(lambda software: _record_classes(software, folder)), folder, is_movable=True)
    try:
        broker.wait_ready()
        yield KafkaService(f"{HOST}:{broker.ports.plain}", broker)
    finally:
        broker.stop()
        broker.release_ports()


@contextmanager
def running_kafka(folder: Path, *, is_mortal: bool = True) -> Iterator[KafkaService]:
    """A broker, its data in `folder`; one that `is_mortal` is back soon after it was killed."""
    named = os.environ.get("ROOTLINE_TEST_KAFKA")
    if named:
        yield KafkaService(named, None)
        return
    software = kafka_software(lambda software: _record_classes(software, folder))
    broker = KafkaBroker(software, folder, session_ms=_SESSION_MS if is_mortal else _SESSION_MS_IMMORTAL)
    try:
        broker.wait_ready()
        yield KafkaService(f"{HOST}:{broker.ports.plain}", broker)
    finally:
        broker.kill()
        broker.release_ports()


def _record_classes(software: KafkaSoftware, folder: Path) -> None:
    place = folder / "recording"
    place.mkdir()
    broker = KafkaBroker(software, place, recording=True)
    try:
        broker.wait_ready()
        _use(KafkaService(f"{HOST}:{broker.ports.plain}", broker).with_topics(partitions=2))
    finally:
        broker.stop()
        broker.release_ports()


def _use(settings: KafkaSettings) -> None:
    """Have a broker load what tests ask for: a transaction, a group, and an administrator's questions."""
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": settings.servers(), "log_level": 0}
    producer = Producer({**servers, "transactional.id": settings.group_id, "compression.type": "zstd"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(settings.intents_topic, b"value", b"key")
    producer.commit_transaction(60)
    joining: dict[str, str | int | float | bool] = {"group.id": settings.group_id, "auto.offset.reset": "earliest"}
    consumer = Consumer({**servers, **joining})
    consumer.subscribe([settings.intents_topic])
    deadline_s = time.monotonic() + _PATIENCE_S
    while consumer.poll(1) is None:
        assert time.monotonic() < deadline_s, "a broker did not hand out its record"
    consumer.commit(asynchronous=False)
    AdminClient(servers).list_consumer_groups().result(60)
    consumer.close()


def _cluster_id() -> str:
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if text[0] != "-" else f"A{text[1:]}"  # a word that begins so is an option to Kafka's tools


def _properties(ports: _Ports, folder: Path, session_ms: int, *, is_movable: bool = False) -> str:
    certificates = make_certificates(folder)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports.controller}",
        "listeners": f"PLAINTEXT://{HOST}:{ports.plain},PROXIED://{HOST}:{ports.proxied},"
        f"SECURE://{HOST}:{ports.secure},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.plain},PROXIED://{HOST}:{ports.proxy},"
        f"SECURE://{HOST}:{ports.secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(certificates.key_store),
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        # one of many processes on the machine: a thread that waits wakes several times a second, a controller twice
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        "metadata.max.idle.interval.ms": "0",
    }
    if is_movable:
        del lines["controller.quorum.bootstrap.servers"]  # its ports would be in the data
        lines["controller.quorum.voters"] = f"1@{HOST}:{ports.controller}"
        lines |= _NOTHING_EXPIRES
    return "".join(f"{name}={value}\n" for name, value in lines.items())
