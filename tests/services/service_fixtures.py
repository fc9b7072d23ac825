"""The services as fixtures of the whole session: each starts when the first test asks for it.

Owns: their scope. Does not own: the services.
Invariants: one of each per session, and a second broker for tests that kill it: no test finds a service dead that
another one has killed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.s3_service import S3Service, running_s3
from tests.services.toxiproxy import Toxiproxy, running_toxiproxy
from tests.services.valkey_service import ValkeyService, running_valkey

if TYPE_CHECKING:
    from tests.services.kafka_service import KafkaService


@pytest.fixture(scope="session")
def s3_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Service]:
    """A real S3 store."""
    with running_s3(tmp_path_factory.mktemp("s3")) as service:
        yield service


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    """A bad network on demand."""
    with running_toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as service:
        yield service


@pytest.fixture(scope="session")
def kafka_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaService]:
    """A real Kafka broker, which no test kills."""
    from tests.services.kafka_service import running_kafka  # its clients take a while to import

    with running_kafka(tmp_path_factory.mktemp("kafka"), is_mortal=False) as service:
        yield service


@pytest.fixture(scope="session")
def _second_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaService]:
    from tests.services.kafka_service import running_kafka

    with running_kafka(tmp_path_factory.mktemp("mortal-kafka")) as service:
        yield service


@pytest.fixture
def mortal_kafka(_second_kafka: KafkaService) -> Iterator[KafkaService]:
    """A broker for the tests that kill it, and for no others; after each of them it runs again."""
    yield _second_kafka
    if _second_kafka.broker is not None:
        _second_kafka.broker.revive()


@pytest.fixture(scope="session")
def valkey_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyService]:
    """A real cache."""
    with running_valkey(tmp_path_factory.mktemp("valkey")) as service:
        yield service


@pytest.fixture(scope="session")
def quick_spark() -> Iterator[None]:
    """A Spark that is started from here on begins in half the time."""
    from tests.spark.machine.spark_software import spark_variables  # PySpark takes a while to import

    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_variables().items():
            patch.setenv(name, value)
        # pytest's handlers are added to Spark's loggers, too, and keep their format
        patch.setattr("pyspark.logger.PySparkLogger.addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(scope="session")
def warm_workers() -> Iterator[str]:
    """A command for `PYSPARK_PYTHON` whose workers begin with the library imported."""
    from tests.spark.machine.warm_workers import warm_python

    with warm_python() as command:
        yield command


@pytest.fixture(autouse=True)
def _spark_begins_quickly(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("quick_spark")
