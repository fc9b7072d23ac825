"""What every test may ask for."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support.examples import examples

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# Every Java here lives for seconds or minutes: a collector of one thread, and no compiler that pays off after hours
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
# how long a case takes says how busy the machine is
settings.register_profile(
    "share", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("share")
# A traceback in colours, with the values of all frames, costs more than most tests that log one. structlog stays
# unconfigured, as a program is that has not chosen anything: the library then does (`rootline.connect`)
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback
HERE = Path(__file__).parent
pytest_plugins = ["tests.services.service_fixtures", "tests.support.lake_fixtures"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Several processes share the files out as `tests.distribution` says."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.distribution import GroupScheduling  # only where there are several processes

    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected lives until the end: the garbage collector need not look at it, now or ever."""
    gc.disable()
    try:
        if "PYTEST_XDIST_WORKER" in os.environ and [*map(Path.resolve, map(Path, session.config.args))] == [HERE]:
            from tests.distribution import import_share

            import_share(HERE, int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a command under test configured ends with it: its log went to a stream that is closed afterwards."""
    was_configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if was_configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _lakes_are_maintained_when_a_test_says_so() -> Iterator[None]:
    """A process that opens an embedded lake hosts its worker; only `tests/hosting` lets that one start by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rootline.hosting.embedded_host.WORKER_DELAY_S", 86_400.0)
        yield
