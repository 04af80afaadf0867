"""Reads and checks `bootstrap_servers`, the addresses that a client connects to first; pure functions."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.hosts import is_host

_MOST: Final = 65_535
_LONGEST_SHOWN: Final = 200
"""Characters of a server that an error repeats."""


def addresses_of(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Host and port of each of the servers, which commas separate.  Raises TypeError, ValueError.

    An address of IPv6 may be in brackets, as in [::1]:9092.
    """
    if not isinstance(bootstrap_servers, str):
        raise TypeError(f"bootstrap_servers={bootstrap_servers!r}: it must be a str, as in '127.0.0.1:9092'")
    found = [_address(server) for server in bootstrap_servers.split(",") if server.strip()]
    if not found:
        raise ValueError("bootstrap_servers is empty: give at least one host:port")
    return found


def told_by_a_broker(why: str) -> str:
    """`why`, the message about an address that is not in bootstrap_servers, and that brokers advertise it."""
    return f"{why} (a broker tells clients that address: advertised.listeners)"


def _address(server: str) -> tuple[str, int]:
    server = server.strip()
    given = server if len(server) <= _LONGEST_SHOWN else f"{server[:_LONGEST_SHOWN]}..."
    if "://" in server:
        after = server.partition("://")[2].strip("/")
        raise ValueError(f"bootstrap_servers has {given!r}: Kafka's protocol has no scheme; give {after!r}")
    host, colon, port = server.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]  # as in URLs (RFC 3986, 3.2.2)
    if host and not is_host(host):
        raise ValueError(f"bootstrap_servers has {given!r}: this is no host; commas separate several host:port")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise ValueError(f"bootstrap_servers has {given!r}: it must be host:port, as in 127.0.0.1:9092")
    if len(port) > 5 or not 1 <= int(port) <= _MOST:
        raise ValueError(f"bootstrap_servers has {given!r}: a port is from 1 to {_MOST}")
    return host, int(port)
