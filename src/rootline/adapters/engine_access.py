"""How other engines reach the files of a warehouse.

Owns: the absolute URL that their locations begin with, and the settings that the catalog hands to them. Does not own:
how we reach the store (`settings`, `open`).
Invariants: keys are handed on only when asked for; a folder needs no settings at all.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from rootline.adapters.open import local_folder
from rootline.adapters.s3.settings import S3Settings


def warehouse_url(url: str) -> str:
    """The absolute URL of a warehouse, raw and without a slash at its end: `file:///dir`, `s3://bucket/prefix`.

    Raises:
        Invalid: `setting-invalid`, the URL has no form that is known.

    """
    folder = local_folder(url)
    if folder is not None:
        return f"file://{folder}"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def engine_storage(url: str, settings: S3Settings, *, share_keys: bool) -> dict[str, str]:
    """Settings, under the names that Iceberg's clients know, for whoever reads files of the warehouse `url`.

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
