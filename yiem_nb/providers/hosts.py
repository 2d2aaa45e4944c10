"""What an address says of its host (pure)."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["host_of", "is_loopback"]


def host_of(url: str) -> str:
    """Host, and port where it is not the usual one, of an address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or url
        return f"{host}:{parts.port}" if parts.port else host
    except ValueError:
        return url


def is_loopback(url: str) -> bool:
    """Whether the address is this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or no address at all
        return False
