"""Figures of a producer since it was made: counted batch by batch, read at any time."""

from __future__ import annotations

from typing import NamedTuple


class ProducerStatistics(NamedTuple):
    """Figures of a producer, since it was made; with the names of Apache Kafka's metrics where it has them.

    Batches and bytes are as they went over the wire, compressed, each batch once however often it was sent.
    """

    record_send_total: int
    """Records that are acknowledged; with acks=0, that were given to the network."""
    record_error_total: int
    """Records that failed for good, and those that were not sent because their transaction was aborted."""
    record_retry_total: int
    """Records that were sent again, each time they were."""
    records_waiting: int
    """Records that wait or are on their way."""
    batch_total: int
    """Batches that are acknowledged."""
    byte_total: int
    """Bytes of the batches that are acknowledged."""
    request_total: int
    """Requests that were sent, with one batch or more."""
    requests_in_flight: int
    """Requests on the wire."""
    buffer_total_bytes: int
    """The limit of the buffer: `buffer_bytes`."""
    buffer_used_bytes: int
    """Bytes of the records that wait or are on their way, before compression."""
    request_latency_avg_ms: float
    """Milliseconds from a request to its answer; 0.0 before the first."""
    request_latency_max_ms: float
    """Milliseconds that the slowest request took to its answer; 0.0 before the first."""


class SendCounts:
    """The counters of a sender.  Numbers only, so that any thread can read them while it goes on."""

    __slots__ = (
        "answers",
        "batches",
        "failed",
        "latency",
        "requests",
        "retried",
        "sent",
        "sent_bytes",
        "slowest",
        "taken",
    )

    def __init__(self) -> None:
        self.taken = 0
        """Records that were handed over; `sent` and `failed` are what became of them."""
        self.sent = self.failed = self.retried = self.batches = self.sent_bytes = 0
        self.requests = self.answers = 0
        self.latency = self.slowest = 0.0
        """Seconds that all answers took together, and the slowest one."""

    def answered(self, after: float) -> None:
        """Count a request that has its answer, or is lost, `after` seconds."""
        self.answers += 1
        self.latency += after
        self.slowest = max(self.slowest, after)

    def acknowledged(self, records: int, size: int) -> None:
        """Count a batch of `records` records and `size` bytes that is written."""
        self.sent += records
        self.batches += 1
        self.sent_bytes += size

    def snapshot(self, buffer_bytes: int, buffer_used: int, queued: int = 0) -> ProducerStatistics:
        """The figures as they are now.  `buffer_bytes`: the limit, `buffer_used`: how much of it is in use.

        `queued`: records that are still to be handed over.
        """
        return ProducerStatistics(
            record_send_total=self.sent,
            record_error_total=self.failed,
            record_retry_total=self.retried,
            records_waiting=queued + self.taken - self.sent - self.failed,
            batch_total=self.batches,
            byte_total=self.sent_bytes,
            request_total=self.requests,
            requests_in_flight=self.requests - self.answers,
            buffer_total_bytes=buffer_bytes,
            buffer_used_bytes=buffer_used,
            request_latency_avg_ms=1000 * self.latency / self.answers if self.answers else 0.0,
            request_latency_max_ms=1000 * self.slowest,
        )
