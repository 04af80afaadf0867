"""The pause between the answer to EndTxn and the next transaction, learned from how long that one is put off.

A coordinator answers EndTxn when the outcome is durable; its markers are written after that.  A transaction that begins
before they are is put off: Apache Kafka's leader waits 20 ms before it asks the coordinator again (facts §6.7), and
before transaction.version 2 the coordinator itself says CONCURRENT_TRANSACTIONS.  Markers take less than a millisecond
or two mostly, so a transaction that begins a little later is done much sooner.  How much later is learned.
"""

from __future__ import annotations

from typing import Final

#: Seconds that a leader of Apache Kafka waits before it asks its coordinator again.
LEADER_BACKOFF: Final = 0.020
_LEAST: Final = 0.0005
_MOST: Final = 0.008
_SHRINKS: Final = 0.98
#: Part of a back-off by which a first request must outlast EndTxn to have been put off.
_PUT_OFF: Final = 0.75
#: Transactions for which no pause is tried again where the longest did not help.
_GIVEN_UP: Final = 200


class CompletionPause:
    """Learns how long the next transaction should wait, from those that were put off.  Times: seconds of one clock."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._ended_at = float("-inf")
        self._end_took = 0.0
        self._listens = False
        """Whether a transaction followed at once, and its first request is not answered yet."""
        self._given_up = 0

    def ended(self, now: float, took: float) -> None:
        """Note that EndTxn was answered at `now`, `took` seconds after it was sent."""
        self._ended_at, self._end_took = now, took
        self._given_up = max(0, self._given_up - 1)

    def begin(self, now: float) -> float:
        """For how many seconds a transaction that begins now waits before its first request."""
        since = now - self._ended_at
        self._listens = since < LEADER_BACKOFF
        return max(0.0, self._pause - since)

    def answered(self, took: float, backoff: float) -> None:
        """Note that a request of the transaction took so long; `backoff`: how long one that is too early waits."""
        if not self._listens:
            return
        self._listens = False
        if took < self._end_took + _PUT_OFF * backoff:
            self._pause = 0.0 if self._pause < _LEAST / 2 else self._pause * _SHRINKS
        elif self._pause >= _MOST:
            # Something else is slow.
            self._pause, self._given_up = 0.0, _GIVEN_UP
        elif not self._given_up:
            self._pause = min(_MOST, max(_LEAST, 2 * self._pause))
