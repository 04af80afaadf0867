"""Where brokers are reached first: pure functions."""

from __future__ import annotations


def addresses_of(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Host and port of each of the servers, which commas separate.  Raises ValueError."""
    found = [_address(server) for server in bootstrap_servers.split(",") if server.strip()]
    if not found:
        raise ValueError("bootstrap_servers is empty: give at least one host:port")
    return found


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.strip().rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"bootstrap_servers has {server.strip()!r}: it must be host:port, as in 127.0.0.1:9092")
    return host, int(port)
