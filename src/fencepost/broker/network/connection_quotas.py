"""How many connections there may be, in all and from one address (Kafka's ConnectionQuotas).

Beyond `max.connections` nobody is accepted until one ends: who connects waits.  Beyond the number for its address a
connection is closed at once, and that is said in the log.
"""

from __future__ import annotations

from collections import Counter

from fencepost.node_log import get_logger

logger = get_logger(__name__)


class ConnectionQuotas:
    """Counts connections.  `overrides`: address:number pairs, separated by commas."""

    def __init__(self, most: int, most_per_ip: int, overrides: str = "") -> None:
        self._most = most
        self._most_per_ip = most_per_ip
        self._overrides: dict[str, int] = {}
        for item in overrides.split(",") if overrides else ():
            address, _, number = item.rpartition(":")
            self._overrides[address] = int(number)
        self._counts: Counter[str] = Counter()
        self._open = 0

    def room(self) -> int:
        """How many more may be accepted now."""
        if self._open >= self._most:
            logger.warning(
                "all %d connections that max.connections allows are open: who connects now waits until one ends",
                self._most,
            )
        return self._most - self._open

    def opened(self, address: str) -> bool:
        """One more from there; False where it must be closed.  Either way `closed` is called when it has ended."""
        self._open += 1
        self._counts[address] += 1
        most = self._overrides.get(address, self._most_per_ip)
        if self._counts[address] <= most:
            return True
        logger.warning(
            "refusing a connection from %s: it has as many as max.connections.per.ip allows, %d", address, most
        )
        return False

    def closed(self, address: str) -> None:
        self._open -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
