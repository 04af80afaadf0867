"""Abort at once what a producer left open when its connection closed (the 2014 design; off by default).

The connection that counts is the one that asked for the producer id: others, as those of tasks that share the
transaction, may come and go.  After a grace time, since a connection may break and its producer come back.  Never a
transaction that is prepared, nor one of a two-phase commit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencepost.broker.network.request_context import Peer
from fencepost.protocol.types import Milliseconds, ProducerId

if TYPE_CHECKING:
    from fencepost.coordinator.transaction import TransactionCoordinator


class Disconnections:
    """The connections that claimed transactional ids; when one closes, what it left open is aborted, after a while."""

    def __init__(self, transactions: TransactionCoordinator, enabled: bool, grace_ms: Milliseconds) -> None:
        self._transactions = transactions
        self._enabled = enabled
        self._grace = grace_ms / 1000
        self._claims: dict[str, tuple[Peer, ProducerId]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def claimed(self, transactional_id: str, peer: Peer, producer_id: ProducerId) -> None:
        """Note that this connection got the producer id; whoever had it before does not count any more."""
        if self._enabled:
            self._claims[transactional_id] = peer, producer_id
            timer = self._timers.pop(transactional_id, None)
            if timer is not None:
                timer.cancel()

    def lost(self, peer: Peer) -> None:
        """Note that a connection closed: what it claimed is aborted after the grace time, if nobody claims it again."""
        for name in [name for name, (owner, _) in self._claims.items() if owner is peer]:
            _, producer_id = self._claims.pop(name)
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(self._grace, self._abort, name, producer_id)

    def _abort(self, name: str, producer_id: ProducerId) -> None:
        del self._timers[name]
        self._transactions.abort_abandoned(name, producer_id)

    def close(self) -> None:
        """Abort nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._enabled = False
        self._claims.clear()
