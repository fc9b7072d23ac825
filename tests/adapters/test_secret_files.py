"""Where a secret may be, and what is said when it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from rootline.adapters.settings import KafkaSettings, S3Settings, is_given, read_secret
from rootline.schemas.errors import Invalid


def test_a_secret_is_the_setting_or_what_its_file_holds_without_white_space(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  in a file\n")

    assert read_secret("VARIABLE", None, file) == "in a file"
    assert read_secret("VARIABLE", SecretStr("given"), None) == "given"
    assert read_secret("VARIABLE", None, None) is None


def test_a_secret_in_both_places_is_refused() -> None:
    assert is_given("token", SecretStr("given"), None)
    assert is_given("token", None, Path("file"))
    assert not is_given("token", None, None)
    with pytest.raises(ValueError, match="give token or token_file, not both"):
        is_given("token", SecretStr("given"), Path("file"))


@pytest.mark.parametrize(
    ("held", "reason"),
    [(None, "No such file or directory"), (b"\xff\xfehidden", "it is not UTF-8 text")],
    ids=["no file", "no text"],
)
def test_a_file_that_cannot_be_read_is_named_with_its_variable_and_none_of_its_bytes(
    tmp_path: Path, held: bytes | None, reason: str
) -> None:
    file = tmp_path / "secret"
    if held is not None:
        file.write_bytes(held)

    with pytest.raises(Invalid, match=f"VARIABLE: {file} cannot be read: {reason}: name a text file that") as refusal:
        read_secret("VARIABLE", None, file)

    assert refusal.value.code == "setting-invalid"
    assert "hidden" not in refusal.value.message
    assert "xff" not in refusal.value.message


def test_each_setting_of_a_file_is_named_as_the_environment_spells_it(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    login = {"security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password_file": nowhere}
    kafka = KafkaSettings.model_validate(login | {"tls_key_password_file": nowhere})
    s3 = S3Settings(access_key_id="key", secret_access_key_file=nowhere)

    for read, variable in (
        (kafka.password, "ROOTLINE_KAFKA__SASL_PASSWORD_FILE"),
        (kafka.key_password, "ROOTLINE_KAFKA__TLS_KEY_PASSWORD_FILE"),
        (s3.secret, "ROOTLINE_S3__SECRET_ACCESS_KEY_FILE"),
    ):
        with pytest.raises(Invalid, match=f"{variable}: {nowhere} cannot be read"):
            read()
