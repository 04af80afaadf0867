"""A port at which a test may listen later, or again, or at another address too."""

from __future__ import annotations

import random
import socket
from typing import Final

# Whoever asks for any port is given a higher one, here and in other processes, at any moment.
NEVER_GIVEN: Final = range(10_000, 32_000)


def free_port(*addresses: str) -> int:
    """One that is free at each of `addresses` (127.0.0.1 without any), and that the system gives nobody."""
    while True:
        port = random.SystemRandom().choice(NEVER_GIVEN)
        if all(_is_free(address, port) for address in addresses or ("127.0.0.1",)):
            return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
