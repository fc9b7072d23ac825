"""One of several processes hosts a lake. The others wait for its lock, and import the coordinator once they have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.open import open_lock
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from tests.hosting.warned import NotHosted

pytestmark = pytest.mark.slow


def test_a_writer_hosts_the_lake_once_its_host_has_closed_it(tmp_path: Path) -> None:
    with connect(tmp_path) as waiting:
        with connect(tmp_path) as host:
            host.create_table("demo.t", {"id": "long"}).append({"id": [1]})
            table = waiting.table("demo.t")
            assert table.append({"id": [2]}).version == 2
        assert table.append({"id": [3]}, timeout_s=60).version == 3
    assert not is_hosted(tmp_path)


def test_a_lake_that_waits_for_another_host_closes_without_hosting(tmp_path: Path) -> None:
    with connect(tmp_path) as host:
        host.create_table("demo.t", {"id": "long"})
        with connect(tmp_path) as waiting:
            waiting.table("demo.t").append({"id": [1]})
        assert is_hosted(tmp_path)
        assert host.table("demo.t").append({"id": [2]}).version == 2
    assert not is_hosted(tmp_path)


def test_a_write_with_wrong_settings_fails_and_the_next_one_with_right_settings_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as lake:
        monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "many")
        with pytest.raises(Invalid, match="BATCH_INTENTS_MAX"):
            lake.create_table("demo.t", {"id": "long"})
        assert not is_hosted(tmp_path)
        monkeypatch.delenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX")
        assert lake.create_table("demo.t", {"id": "long"}).append({"id": [1]}).version == 1


def test_a_writer_whose_settings_are_wrong_gives_the_lock_back_when_its_turn_to_host_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NotHosted.heard() as heard, connect(tmp_path) as waiting:
        with connect(tmp_path) as host:
            host.create_table("demo.t", {"id": "long"})
            monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "many")
            waiting.table("demo.t").append({"id": [1]})
        assert heard.is_said.wait(30)
        assert not is_hosted(tmp_path)
    assert "BATCH_INTENTS_MAX" in heard.text


def is_hosted(folder: Path) -> bool:
    lock = open_lock(str(folder))
    return lock is not None and lock.is_held()
