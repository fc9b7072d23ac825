"""A value that a model refuses is told in our words."""

from __future__ import annotations

import pytest

from rootline.coordinator.settings import coordinator_settings
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent
from rootline.workers.settings import worker_settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "Intent: intent_id is missing; table is missing; kind is missing"),
        ({"intent_id": "i", "table": "a.b", "kind": "apend"}, "kind must be one of 'append'"),
        ({"intent_id": "i", "table": "a.b", "kind": "append", "files": []}, "files is no field: check its spelling"),
        ({"intent_id": "i", "table": "a.b", "kind": "append"}, "kind append must carry add_data_files"),
        ({"intent_id": "i", "table": 7, "kind": "append"}, "table must be text"),
        (
            {"intent_id": "i", "table": "a.b", "kind": "append", "add_data_files": [{"location": "x"}]},
            "add_data_files.0.record_count is missing",
        ),
    ],
)
def test_an_intent_that_a_program_builds_wrongly_is_refused_by_field(values: dict[str, object], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        Intent(**values)  # type: ignore[arg-type]
    assert caught.value.code == "intent-malformed"
    assert said in caught.value.message


def test_a_file_with_a_negative_count_is_refused_by_field() -> None:
    with pytest.raises(Invalid, match="DataFile: record_count must be 0 or more"):
        DataFile(location="x", record_count=-1, file_size_in_bytes=1)


def test_a_setting_that_cannot_be_used_is_refused_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "0")
    monkeypatch.setenv("ROOTLINE_WORKER__JOBS_AT_ONCE", "many")
    with pytest.raises(Invalid, match="ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX: must be 1 or more") as caught:
        coordinator_settings()
    assert caught.value.code == "setting-invalid"
    with pytest.raises(Invalid, match="ROOTLINE_WORKER__JOBS_AT_ONCE: must be a whole number"):
        worker_settings()


def test_a_setting_of_a_coordinator_that_is_not_json_is_refused_as_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_COORDINATOR__FILE_PREFIXES", "s3://landing/")
    with pytest.raises(Invalid, match=r"the settings cannot be read: .*file_prefixes") as caught:
        coordinator_settings()
    assert caught.value.code == "setting-invalid"
