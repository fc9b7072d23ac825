"""Names of this machine, and requests that reach it under another one. One rule for all HTTP of ours.

A browser asks an address of this machine for whatever name a page's DNS server gives it ("DNS rebinding"), so the host
that a request names says whether a page from elsewhere had it sent. What arrives at other addresses is for the operator
to open or not.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

FOREIGN: Final = (
    "without a token this server answers at its loopback address only under a name of this machine: ask for localhost, "
    "or set ROOTLINE_HTTP__TOKEN"
)


def is_foreign(scope: Scope) -> bool:
    """Whether a request arrived at a loopback address under a name that is not this machine's.

    A request without a name is not: no browser sends one.
    """
    server = scope.get("server") or ("", None)
    names_host = "host" in Headers(scope=scope)
    return names_host and is_loopback(str(server[0])) and not is_loopback(named_host(scope))


def named_host(scope: Scope) -> str:
    """The host that a request names, without its port, or empty if it names no host that can be read."""
    try:
        return urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether this is a name or an address of this machine that no other can have."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
