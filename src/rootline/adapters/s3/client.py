"""The S3 client that commits go through.

Owns: its configuration. Does not own: requests and what their answers mean (`object_store`).
Invariants: one call is one request on the wire, sent once: no retry in botocore, none in aiohttp, no
`Expect: 100-continue` (which costs a round trip and hangs on a silent peer); no checksum that S3 does not require.

Source: the protocol page, section 1, "Client settings that matter".
"""

from __future__ import annotations

import functools
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import get_session
from botocore.handlers import add_expect_header, convert_body_to_file_like_object
from botocore.loaders import Loader, create_loader

from rootline.adapters.s3.settings import S3Settings


class _OneAttemptSession(AIOHTTPSession):  # type: ignore[misc]
    """aiohttp by itself sends a PUT again when the connection drops; then our own first attempt would answer 412."""

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """What reads the descriptions of S3 and its endpoints, once in a process: they are a megabyte of JSON."""
    return create_loader(data_path)


def s3_client(settings: S3Settings) -> Any:
    """An async context manager that yields the client; it belongs to the event loop it is entered on.

    Raises:
        Invalid: `setting-invalid`, the secret's file cannot be read.

    """
    config = AioConfig(
        http_session_cls=_OneAttemptSession,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        max_pool_connections=settings.connections_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={"addressing_style": "path"},
    )
    session = get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    session.unregister("before-call.s3", add_expect_header)
    session.unregister("before-call.s3.PutObject", add_expect_header)  # where older versions have it
    # bytes stay bytes: aiohttp writes them at once, where it reads a file object in a thread, piece by piece
    session.unregister("before-parameter-build.s3.PutObject", convert_body_to_file_like_object)
    return session.create_client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret(),
        aws_session_token=settings.session_token.get_secret_value() if settings.session_token else None,
        verify=str(settings.ca_bundle) if settings.ca_bundle else None,
        config=config,
    )
