"""What the coordinator counts."""

from __future__ import annotations


class TransactionMetrics:
    """Counters since the start; each only grows."""

    __slots__ = ("aborted", "committed", "expired", "fenced", "initialized", "loaded", "timed_out")

    def __init__(self) -> None:
        #: Producer ids and epochs handed out for a transactional id.
        self.initialized = 0
        #: Decisions, by outcome; an abort by fencing or time-out counts here and there.
        self.committed = 0
        self.aborted = 0
        #: Open transactions that another InitProducerId aborted.
        self.fenced = 0
        self.timed_out = 0
        #: Transactional ids forgotten.
        self.expired = 0
        #: Transactional ids read at load.
        self.loaded = 0
