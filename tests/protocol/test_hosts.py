"""What may be given as a host."""

from __future__ import annotations

import pytest

from fencepost.protocol.hosts import is_host


@pytest.mark.parametrize(
    "host", ["localhost", "a.b.", "0.0.0.0", "::1", "fe80::1%eth0", "b\u00fccher.example", "a_b-c", "x" * 63, "127.1"]
)
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    ["", "a b", "a\n", "\u2028", "\udcff", "x" * 64, "\u00e9..x", "a..b", "[::1", "a,b", "a/b", "u@h", "a;b", "\t"],
)
def test_what_cannot_even_be_looked_up_is_none(host: str) -> None:
    assert not is_host(host)
