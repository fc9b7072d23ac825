"""Settings: read from the environment, held to their bounds, and all on one page."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from rootline.adapters.settings import EmbeddedLogSettings, S3Settings
from rootline.catalog.rest.http_settings import CatalogSettings
from rootline.coordinator.settings import CoordinatorSettings
from rootline.workers.settings import WorkerSettings
from tests.coordinator.generated_pages import DOCS, settings_page

KINDS: list[type[BaseModel]] = [CoordinatorSettings, WorkerSettings, S3Settings, CatalogSettings, EmbeddedLogSettings]


def test_the_page_in_the_docs_is_what_the_code_says() -> None:
    page = (DOCS / "settings.md").read_text()
    assert page == settings_page(), "run: python -m tests.coordinator.generated_pages"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_says_what_it_is_for_in_a_sentence(kind: type[BaseModel]) -> None:
    for name, setting in kind.model_fields.items():
        assert setting.description, name
        assert setting.description.endswith("."), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_units_stand_in_the_names_of_numbers(kind: type[BaseModel]) -> None:
    units = ("_s", "_ms", "_bytes", "_max", "_min", "_port", "_rounds", "_at_once")
    for name, setting in kind.model_fields.items():
        if setting.annotation in (int, float):
            assert name.endswith(units), name


def test_a_coordinator_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "7")
    monkeypatch.setenv("ROOTLINE_COORDINATOR__COORDINATOR_ID", "east-1")
    settings = CoordinatorSettings()
    assert (settings.batch_intents_max, settings.coordinator_id) == (7, "east-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BATCH_INTENTS_MAX", "0"),
        ("TABLE_QUEUE_BYTES_MAX", "0"),
        ("REQUEST_TIMEOUT_S", "0"),
        ("HTTP_PORT", "65536"),
        ("PROBE_ROUNDS", "-1"),
        ("STOP_TIMEOUT_S", "soon"),
    ],
)
def test_a_value_out_of_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"ROOTLINE_COORDINATOR__{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        CoordinatorSettings()


def test_settings_do_not_change_and_take_no_names_that_do_not_exist() -> None:
    settings = CoordinatorSettings()
    with pytest.raises(ValidationError):
        settings.batch_intents_max = 9  # type: ignore[misc]
    with pytest.raises(ValidationError):
        CoordinatorSettings(batch_intent_max=9)  # type: ignore[call-arg]
