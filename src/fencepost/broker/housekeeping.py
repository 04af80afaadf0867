"""The recurring work of a running node: time-outs, expiry, retention, connections, disk space, its own log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fencepost.broker.node import Node
from fencepost.log.upkeep import upkeep, watch_space
from fencepost.node_log import LIMIT, get_logger
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Work

logger = get_logger(__name__)

_CONNECTIONS_MS: Final = Milliseconds(5000)
"""How often connections are looked at, at most."""
_SPACE_MS: Final = Milliseconds(10_000)
_LOG_MS: Final = Milliseconds(60_000)


class Housekeeping:
    """Runs the recurring work of a node, each kind at its interval, until `close` or a failure of the storage."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        steady = node.jumps.steady

        def number(name: str) -> Milliseconds:
            return Milliseconds(node.settings.number(name))

        looking = number("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._every("transactions", looking, node.transactions.tick)
        checking = number("offsets.retention.check.interval.ms")
        self._every("offsets", checking, lambda now: node.groups.tick(steady(now)))
        cleaning = min(number("log.retention.check.interval.ms"), number("producer.id.expiration.check.interval.ms"))
        idle_ms = number("connections.max.idle.ms")
        tidying = min(_CONNECTIONS_MS, Milliseconds(max(idle_ms // 2, 1))) if idle_ms >= 0 else _CONNECTIONS_MS
        self._every("connections", tidying, lambda _: tidy_connections(node))
        self._every("storage", cleaning, lambda now: upkeep(node.storage, steady(now)))
        self._every("space", _SPACE_MS, lambda now: watch_space(node.storage, steady(now)))
        self._every("log", _LOG_MS, lambda _: _report())

    def close(self) -> None:
        """Begin nothing new.  May be called again."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, interval_ms: Milliseconds, work: Callable[[Milliseconds], Work[None]]) -> None:
        """Do work(now) at intervals: again when the time has come and it is over."""
        loop, node = asyncio.get_running_loop(), self._node

        def ring() -> None:
            node.jumps.notice()
            if node.storage.failure is None and name not in self._at_work:
                self._at_work[name] = loop.create_task(node.slices.run(work(node.clock.now())))
                self._at_work[name].add_done_callback(over)
            self._timers[name] = loop.call_later(interval_ms / 1000, ring)

        def over(task: asyncio.Task[None]) -> None:
            del self._at_work[name]
            if not task.cancelled() and task.exception() is not None:
                logger.error("%s could not be looked after", name, exc_info=task.exception())

        self._timers[name] = loop.call_later(interval_ms / 1000, ring)


def tidy_connections(node: Node) -> Work[None]:
    """Have each connection give back what it does not use, and end those that nobody uses."""
    now, idle_ms = asyncio.get_running_loop().time(), node.settings.number("connections.max.idle.ms")
    for connection in list(node.connections):
        connection.tidy(now, idle_ms / 1000)
        yield


def _report() -> Work[None]:
    LIMIT.report()
    yield
