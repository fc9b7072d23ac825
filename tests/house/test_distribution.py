"""What the processes of one run share out: services start once, and nothing long is left for the end."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.distribution import GroupScheduling, group_of, import_share

SERVICES = {"kafka": re.compile(r"\bkafka_service\b"), "spark": re.compile(r"\bspark: SparkSession\b")}
MORTAL = re.compile(r"\bmortal_kafka\b")
BOTH = {"tests/spark/test_stream_kafka.py": "spark"}


class Node:
    """A process of the run."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.gateway = SimpleNamespace(id="a process")
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(tests: list[str]) -> GroupScheduling:
    made = GroupScheduling.__new__(GroupScheduling)
    made.config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True))  # type: ignore[assignment]
    made.log = lambda *_: None  # type: ignore[assignment]
    made.collection = None
    made.workqueue, made.assigned_work, made.registered_collections = OrderedDict(), OrderedDict(), OrderedDict()
    made.numnodes = 2
    for node in (Node(), Node()):
        made.add_node(node)  # type: ignore[arg-type]
        made.add_node_collection(node, tests)  # type: ignore[arg-type]
    return made


def test_the_tests_of_a_service_run_in_one_process_and_begin_first() -> None:
    small = [f"tests/tree/test_small.py::test_{number}" for number in range(9)]
    kafka = [f"tests/kafka/adapter/test_{name}.py::test_it" for name in ("one", "two", "three", "four")]
    spark = [f"tests/spark/test_{name}.py::test_it" for name in ("one", "two", "three")]
    last = ["tests/kafka/stories/test_five.py::test_it[a::b]"]
    schedule = scheduled([*small, *kafka, *spark, *last])
    schedule.schedule()
    given = [{schedule.collection[index] for index in node.given} for node in schedule.assigned_work]  # type: ignore
    assert given == [{*kafka, *last}, set(spark)]
    assert list(schedule.workqueue) == ["tests/tree/test_small.py"]


def test_a_long_file_of_few_tests_begins_before_a_short_one_of_many() -> None:
    many = [f"tests/schemas/test_many.py::test_{number}" for number in range(50)]
    demo = ["tests/demo/test_kafka_demo.py::test_it"]
    schedule = scheduled([*many, *demo])
    schedule.schedule()
    first = next(iter(schedule.assigned_work))
    assert [schedule.collection[index] for index in first.given] == demo  # type: ignore


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_file_that_asks_for_a_service_is_in_its_group(name: str, house: Path) -> None:
    paths = [path for path in (house / "tests").rglob("test_*.py") if path != Path(__file__)]
    asking = [path.relative_to(house).as_posix() for path in paths if SERVICES[name].search(path.read_text())]
    assert asking
    assert [path for path in asking if group_of(path) not in {name, f"mortal {name}", BOTH.get(path)}] == []


def test_the_files_that_kill_a_broker_run_in_one_process_and_the_other_brokers_files_in_another(house: Path) -> None:
    paths = list((house / "tests" / "kafka").rglob("test_*.py"))
    killing = {path.relative_to(house).as_posix() for path in paths if MORTAL.search(path.read_text())}
    assert killing == {name for path in paths if group_of(name := path.relative_to(house).as_posix()) != "kafka"}
    assert {group_of(name) for name in killing} == {"mortal kafka"}
    for name in killing:
        assert "def kafka_service(mortal_kafka: KafkaService)" in (house / name).read_text(), "it would start both"


def test_each_process_imports_its_share_and_together_they_import_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "shared_out" / f"test_{name}.py" for name in ("a", "b", "c", "d", "e")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text("assert False, 'told when it is collected'" if file == files[1] else "HERE = 1")
    monkeypatch.syspath_prepend(tmp_path)
    shares = []
    for number in range(2):
        import_share(files[0].parent, number, 2)
        shares.append([name for name in sys.modules if name.startswith("shared_out.")])
        for name in shares[-1]:
            del sys.modules[name]
    assert shares == [["shared_out.test_a", "shared_out.test_c", "shared_out.test_e"], ["shared_out.test_d"]]
