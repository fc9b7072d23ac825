"""A secret that is a setting, or in a file that a setting names: the same rules for every vendor."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from rootline.schemas.errors import Invalid


def is_given(name: str, value: SecretStr | None, file: Path | None) -> bool:
    """Whether there is a secret in the setting `name` or in the file of `name`_file.

    Raises:
        ValueError: in both; pydantic tells it to the user.

    """
    if value is not None and file is not None:
        raise ValueError(f"give {name} or {name}_file, not both")
    return value is not None or file is not None


def read_secret(variable: str, value: SecretStr | None, file: Path | None) -> str | None:
    """The secret, without the white space around it in its file; `None` when there is none. Blocks.

    Args:
        variable: the environment variable that names the file.
        value: the setting.
        file: the file instead.

    Raises:
        Invalid: `setting-invalid`, the file cannot be read.

    """
    if file is None:
        return None if value is None else value.get_secret_value()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        advice = "name a text file that the user of this process may read"
        raise Invalid("setting-invalid", f"{variable}: {file} cannot be read: {reason}: {advice}") from None
