"""Toxiproxy: a network between a client and a service that is slow, silent or broken on demand.

Owns: the server and its proxies. Does not own: what a fault leads to.
Invariants: one proxy per scenario; a proxy ends with its `with` block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.services.go_tools import go_tool
from tests.services.service_process import HOST, ServiceProcess, free_port


@dataclass(frozen=True)
class Proxy:
    """One way to a service; connect to `address`."""

    api: str
    name: str
    address: tuple[str, int]

    @property
    def endpoint(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def add(self, kind: str, *, stream: str, share: float = 1.0, **attributes: int) -> None:
        """A fault from now on: `latency`, `timeout`, `reset_peer`, `limit_data`, up- or downstream.

        `share`: of the connections, by chance.
        """
        body = {"type": kind, "stream": stream, "toxicity": share, "attributes": attributes}
        _call("POST", f"{self.api}/proxies/{self.name}/toxics", body)

    def mend(self) -> None:
        """No faults from now on; connections that a fault has cut off stay cut off."""
        for toxic in _call("GET", f"{self.api}/proxies/{self.name}/toxics", None):
            _call("DELETE", f"{self.api}/proxies/{self.name}/toxics/{toxic['name']}", None)


@dataclass(frozen=True)
class Toxiproxy:
    """The server."""

    api: str

    @contextmanager
    def proxy(self, name: str, upstream: tuple[str, int], *, listen_port: int = 0) -> Iterator[Proxy]:
        """A fresh way to `upstream`, through a port that the system picks unless it is named."""
        body = {
            "name": name,
            "listen": f"{HOST}:{listen_port}",
            "upstream": f"{upstream[0]}:{upstream[1]}",
            "enabled": True,
        }
        made = _call("POST", f"{self.api}/proxies", body)
        host, port = made["listen"].rsplit(":", 1)
        try:
            yield Proxy(self.api, name, (host, int(port)))
        finally:
            _call("DELETE", f"{self.api}/proxies/{name}", None)


@contextmanager
def running_toxiproxy(folder: Path) -> Iterator[Toxiproxy]:
    """A server for the session."""
    binary = go_tool("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", "v2.12.0")
    port = free_port()
    process = ServiceProcess([binary, "-host", HOST, "-port", str(port)], folder / "toxiproxy.log")
    try:
        process.wait_ready(port)
        yield Toxiproxy(f"http://{HOST}:{port}")
    finally:
        process.stop()


def _call(method: str, url: str, body: dict[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(
        Request(url, data=data, method=method, headers={"Content-Type": "application/json"}), timeout=10
    ) as answer:
        text = answer.read()
    return json.loads(text) if text else None
