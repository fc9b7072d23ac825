"""How other engines reach the files of a warehouse.

Owns: the absolute URL that the files' locations begin with, and the settings that the catalog gives to engines. Does
not own: how we reach the store (`settings`, `open`).
Invariants: keys are given only when the caller asks for it; a folder needs no settings.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from rootline.adapters.open import local_folder
from rootline.adapters.s3.settings import S3Settings


def warehouse_url(url: str) -> str:
    """The absolute URL of a warehouse, not percent-encoded, without a slash at its end: `file:///d`, `s3://bucket/p`.

    Raises:
        Invalid: `setting-invalid`, the URL has an unknown form.

    """
    folder = local_folder(url)
    if folder is not None:
        return f"file://{folder}"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def engine_storage(url: str, settings: S3Settings, *, share_keys: bool) -> dict[str, str]:
    """Settings, under the names that Iceberg's clients know, for engines that read files of the warehouse `url`.

    Raises:
        Invalid: `setting-invalid`, the secret's file cannot be read.

    """
    if urlsplit(url).scheme != "s3":
        return {}
    # both names of the region are in use
    found = {"s3.region": settings.region, "client.region": settings.region}
    if settings.endpoint is not None:
        found |= {"s3.endpoint": settings.endpoint, "s3.path-style-access": "true"}
    secret = settings.secret() if share_keys else None
    if settings.access_key_id is not None and secret is not None:
        found |= {"s3.access-key-id": settings.access_key_id, "s3.secret-access-key": secret}
        if settings.session_token is not None:
            found["s3.session-token"] = settings.session_token.get_secret_value()
    return found
