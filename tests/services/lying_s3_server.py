"""A real HTTP server that speaks enough S3 for the probe, and lies about `If-None-Match`.

Owns: the lie, over the wire. Does not own: the same lies behind the port (`rootline.testing.object_stores`).
Invariants: reads, lists and unconditional answers are right; two racers are always let in together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from rootline.testing.object_stores import Lie


class _Objects:
    """What the server holds; several threads at once."""

    def __init__(self, lie: Lie) -> None:
        self.bodies: dict[str, bytes] = {}
        self.lie = lie
        self._checked: dict[str, int] = {}
        self._changed = threading.Condition()

    def put(self, path: str, body: bytes) -> bool:
        with self._changed:
            if self.lie is Lie.RACES and path in self.bodies:
                return False
            self._checked[path] = self._checked.get(path, 0) + 1
            self._changed.notify_all()
            if self.lie is Lie.RACES:  # between the check and the write, another client checks
                self._changed.wait_for(lambda: self._checked[path] > 1, timeout=0.2)
            self.bodies[path] = body
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: _Objects
    is_dated = True

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        created = self.objects.put(self._path(), body)
        self._answer(200 if created else 412, b"" if created else _error("PreconditionFailed"))

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listing(query))
            return
        body = self.objects.bodies.get(self._path())
        self._answer(200 if body is not None else 404, _error("NoSuchKey") if body is None else body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        bucket = self._path().rstrip("/")
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        keys = sorted(path for path in self.objects.bodies if path.startswith(prefix))
        shown = keys[: int(query.get("max-keys", ["1000"])[0])]
        contents = "".join(f"<Contents><Key>{escape(key[len(bucket) + 1 :])}</Key></Contents>" for key in shown)
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes) -> None:
        if self.is_dated:
            self.send_response(status)  # with a Date
        else:
            self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", self.date_time_string())
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@contextmanager
def lying_s3_server(lie: Lie, *, is_dated: bool = True) -> Iterator[str]:
    """The endpoint of a running server; one that `is_dated` says when it answers, as S3 does."""
    handler = type("Handler", (_Handler,), {"objects": _Objects(lie), "is_dated": is_dated})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="lying-s3")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
