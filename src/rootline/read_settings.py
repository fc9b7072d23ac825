"""Reads settings from the environment and from files in the folder `ROOTLINE_SECRETS_DIR`.

Owns: reading them, and the error when they cannot be read. Does not own: the settings, which are models next to the
code that they configure.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import invalid_settings

Model = TypeVar("Model", bound=BaseSettings)


def read_settings(model: type[Model], prefix: str) -> Model:
    """Read the settings of a model.

    The environment overrides the folder. `prefix`: the prefix of the model's variables.

    Raises:
        Invalid: `setting-invalid`, naming each setting and its fault, but never a value, or naming the folder.
    """
    folder = os.environ.get("ROOTLINE_SECRETS_DIR")
    options: dict[str, Any] = {} if folder is None else {"_secrets_dir": folder}
    try:
        return model(**options)
    except ValidationError as error:
        raise invalid_settings(error, prefix) from None
    except (SettingsError, OSError, UnicodeDecodeError) as error:
        what = "a file is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        where = "" if folder is None else f" (ROOTLINE_SECRETS_DIR is {folder}: name a folder of small, readable files)"
        raise Invalid("setting-invalid", f"the settings cannot be read: {what}{where}") from None
