"""An S3 store whose listing says that there is more, and never where."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from rootline.adapters.s3_object_store import S3ObjectRemover
from rootline.adapters.settings import S3Settings
from rootline.ports.object_remover import DatedObject
from rootline.schemas.errors import Unavailable


@contextmanager
def listing(token: str) -> Iterator[str]:
    """The endpoint of a server that answers each LIST with this page."""
    date = "<LastModified>2026-01-01T00:00:00Z</LastModified>"
    page = f"<Contents><Key>a/b</Key><Size>1</Size>{date}</Contents><IsTruncated>true</IsTruncated>{token}"
    body = f"<ListBucketResult>{page}</ListBucketResult>".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="endless-listing")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def read_all(remover: S3ObjectRemover, found: list[DatedObject]) -> None:
    async for page in remover.inventory("a/"):
        found += page
        assert len(found) < 10


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>again</NextContinuationToken>"])
async def test_a_listing_that_never_ends_is_an_error_before_memory_is_full(token: str) -> None:
    with listing(token) as endpoint:
        settings = S3Settings(endpoint=endpoint, access_key_id="key", secret_access_key=SecretStr("secret"))
        remover = S3ObjectRemover("bucket", "", settings)
        found: list[DatedObject] = []
        with pytest.raises(Unavailable, match="no token for the next one") as caught:
            await read_all(remover, found)
        assert caught.value.code == "store-unavailable"
        assert len(found) <= 2
        await remover.close()
