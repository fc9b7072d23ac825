"""A program with a lake on Kafka forks, as Python's multiprocessing does."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.services
ROW = pa.table({"id": [1]})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_forked_child_publish_and_hear_verdicts_over_connections_of_their_own(
    kafka_service: KafkaService, s3_service: S3Service, tmp_path: Path
) -> None:
    address = KafkaLake(s3_service, kafka_service.with_topics(partitions=1))
    coordinator = RootlineProcess("coordinator", ("coordinator", "--http-port", "0"), address.environment(), tmp_path)
    with ending(coordinator), address.client() as lake:
        coordinator.start()
        coordinator.wait_ready()
        table = lake.create_table("demo.ids", ROW.schema)
        table.append(ROW)
        child = os.fork()
        if child == 0:
            try:
                table.append(ROW)
                os._exit(0 if table.scan().count() == 2 else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        table.append(ROW)
        assert table.scan().count() == 3
