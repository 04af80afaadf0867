"""The limits of connections, in all, from one address, and for each second (Kafka's ConnectionQuotas).

Beyond `max.connections` nobody is accepted until one ends: who connects waits.  Who comes faster than
`max.connection.creation.rate` waits, too, until it is its turn.  Beyond the number for its address a connection is
closed at once, and that is said in the log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

from fencepost.node_log import get_logger

logger = get_logger(__name__)


_WINDOWS: Final = 11
"""Windows of a second, in which connections are counted (Kafka's quota.window.num, quota.window.size.seconds)."""
_LONGEST_WAIT: Final = 1.0


class ConnectionRate:
    """How many connections were accepted in the last seconds, and when the next one may be, so that there are no more
    than `most` in one of them on average.

    As in Apache Kafka the seconds count whether anybody came in them or not: ten times `most` may come at once.
    Times are those of the event loop, in seconds.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._windows: deque[tuple[float, int]] = deque()
        """Beginning of each second in which some were accepted, and how many."""
        self._due: float | None = None
        """The time at which the next connection may be accepted, if it came too early; else None."""

    def wait_seconds(self, now: float) -> float:
        """Seconds that the next connection has to wait from `now` on."""
        if self._due is None:
            self._due = now + self._excess(now)
        return max(self._due - now, 0.0)

    def accepted(self, now: float) -> None:
        """Count a connection that was accepted at this time, in seconds."""
        self._due = None
        if not self._windows or now - self._windows[-1][0] >= 1.0:
            self._windows.append((now, 0))
        begun, count = self._windows.pop()
        self._windows.append((begun, count + 1))

    def _excess(self, now: float) -> float:
        """Seconds until one more connection would be none too many, or the most that anybody waits."""
        while self._windows and now - self._windows[0][0] >= _WINDOWS:
            self._windows.popleft()
        count = 1 + sum(count for _, count in self._windows)
        since = max(now - self._windows[0][0] if self._windows else 0.0, _WINDOWS - 1.0)
        if count <= self._most * since:
            return 0.0
        return min(count / self._most - since, _LONGEST_WAIT) if self._most else _LONGEST_WAIT


class ConnectionQuotas:
    """Counts connections.  `overrides`: address:number pairs, separated by commas.  `rate`: how many a second.

    An address of IPv4 may be written as one of IPv6 (RFC 4291, 2.5.5.2): whoever comes from there comes by IPv4.
    """

    def __init__(self, most: int, most_per_ip: int, overrides: str = "", rate: int = 2**31 - 1) -> None:
        self._rate = ConnectionRate(rate)
        self._when_room: Callable[[], None] = lambda: None
        self._most_per_second = rate
        self._most = most
        self._most_per_ip = most_per_ip
        self._overrides: dict[str, int] = {}
        for item in overrides.split(",") if overrides else ():
            address, _, number = item.rpartition(":")
            parsed = ip_address(address)
            mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
            self._overrides[str(mapped or parsed)] = int(number)
        self._counts: Counter[str] = Counter()
        self._open = 0

    def room(self) -> int:
        """The number of connections that may be accepted now."""
        if self._open >= self._most:
            logger.warning(
                "all %d connections that max.connections allows are open: who connects now waits until one ends",
                self._most,
            )
        return self._most - self._open

    def wait_seconds(self, now: float) -> float:
        """Seconds from `now` on for which nobody may be accepted, because too many were."""
        found = self._rate.wait_seconds(now)
        if found > 0:
            logger.warning(
                "connections come faster than max.connection.creation.rate allows, %d in a second: some wait",
                self._most_per_second,
            )
        return found

    def accepted(self, now: float) -> None:
        """Count a connection as accepted, whether `opened` follows or not."""
        self._rate.accepted(now)

    def opened(self, address: str) -> bool:
        """Count a connection from there; False: it must be closed.  Either way `closed` is called when it has ended."""
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
        """Count a connection from an address as ended: somebody who waits to be accepted may be."""
        self._open -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
        self._when_room()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back, from now on, whenever there may be room again."""
        self._when_room = callback


class Door:
    """The quotas of a listening socket: nobody is accepted before `admit_by` has given it those of the node."""

    def __init__(self) -> None:
        self._quotas: ConnectionQuotas | None = None

    def admit_by(self, quotas: ConnectionQuotas) -> None:
        """Let in from now on whom these quotas let in."""
        self._quotas = quotas

    def room(self) -> int:
        """The number of connections that may be accepted now."""
        return 0 if self._quotas is None else self._quotas.room()

    def wait_seconds(self, now: float) -> float:
        """Seconds from `now` on for which nobody may be accepted, because too many were."""
        return 0.0 if self._quotas is None else self._quotas.wait_seconds(now)

    def accepted(self, now: float) -> None:
        """Count a connection as accepted."""
        assert self._quotas is not None, "nobody is let in before the node is there"
        self._quotas.accepted(now)
