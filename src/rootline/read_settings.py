"""Settings as a process has them: from the environment, and from files in the folder `ROOTLINE_SECRETS_DIR`.

Owns: how they are read, and what is said when they cannot be. Does not own: what settings there are (each has a model
beside what it sets).
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
    """The settings in force; the environment comes before the folder. `prefix`: how the model's variables begin.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it, never a value; or the folder.

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
