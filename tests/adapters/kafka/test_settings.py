"""How Kafka is named, and which halves of a login are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from rootline.adapters.open import kafka_settings, open_writer_log
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Invalid

LOGIN = {"security_protocol": "SASL_SSL", "sasl_username": "u"}


def test_a_url_names_the_servers_and_the_environment_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_KAFKA__BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("ROOTLINE_KAFKA__INTENTS_TOPIC", "other.intents")

    assert kafka_settings(None).servers() == "a:1"
    assert kafka_settings("kafka://").servers() == "a:1"
    named = kafka_settings("kafka://b:2,[::1]:3")
    assert (named.servers(), named.intents_topic) == ("b:2,[::1]:3", "other.intents")


@pytest.mark.parametrize(
    "url", ["kafka://host", "kafka://user:secret@host:1", "kafka://host:1/topic", "kafka://a:1,b", "sqlite:///x"]
)
def test_a_url_that_is_not_of_the_form_is_told_what_would_be_right(url: str) -> None:
    with pytest.raises(Invalid, match="kafka://host:port") as refusal:
        KafkaSettings().at(url)

    assert refusal.value.code == "setting-invalid"
    assert "secret" not in refusal.value.message


def test_without_servers_the_setting_is_named() -> None:
    with pytest.raises(Invalid, match="ROOTLINE_KAFKA__BOOTSTRAP_SERVERS"):
        KafkaSettings().servers()


@pytest.mark.parametrize(
    ("held", "advice"),
    [
        (LOGIN, "together"),
        ({"sasl_username": "u", "sasl_password": "p"}, "SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_username"),
        (LOGIN | {"sasl_password": "p", "sasl_password_file": "f"}, "not both"),
        ({"security_protocol": "SSL", "tls_certificate_file": "c"}, "tls_key_file"),
        ({"tls_ca_file": "c"}, "SSL"),
        ({"bootstrap_servers": "host"}, "host:port"),
        ({"intents_topic": "a topic"}, "pattern"),
    ],
)
def test_half_a_login_is_refused(held: dict[str, str], advice: str) -> None:
    with pytest.raises(ValidationError, match=advice):
        KafkaSettings.model_validate(held)


def test_a_password_comes_from_its_file_and_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    from_file = KafkaSettings.model_validate(LOGIN | {"sasl_password_file": secret})
    given = KafkaSettings.model_validate(LOGIN | {"sasl_password": SecretStr("hidden")})

    assert (from_file.password(), given.password()) == ("hidden", "hidden")
    assert "hidden" not in repr(given)
    missing = KafkaSettings.model_validate(LOGIN | {"sasl_password_file": tmp_path / "nowhere"})
    with pytest.raises(Invalid, match="ROOTLINE_KAFKA__SASL_PASSWORD_FILE"):
        missing.password()


async def test_a_writers_log_connects_to_nothing_yet() -> None:
    log = open_writer_log("kafka://127.0.0.1:1", "lake")
    await log.close()
