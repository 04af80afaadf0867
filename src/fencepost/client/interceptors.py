"""Functions of the user that are called with every record: before it is sent, and when its outcome is known."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, Protocol

from fencepost.client.batches import OnAcknowledged, RecordMetadata
from fencepost.client.errors import ClientError
from fencepost.client.seldom import Seldom
from fencepost.protocol.records import Headers
from fencepost.protocol.types import Offset

logger = logging.getLogger(__name__)

#: What a user's function may raise that harms nobody else.  Whoever asks for the result of what was cancelled gets a
#: CancelledError, which is then no cancellation of ours.  Where something is awaited the two are told apart by
#: `rebalance_listener.end_if_cancelled`.
RAISED_BY_USER: Final = (Exception, asyncio.CancelledError)


class ProducerRecord(NamedTuple):
    """A record as it is handed to `send`."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class ProducerInterceptor(Protocol):
    """Sees every record of a producer.  (Kafka's ProducerInterceptor, KIP-42)

    Both are called in the producer's event loop, which they must not block.  What they raise is logged, at most once a
    minute, and the record goes on as it was before.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before a partition is chosen; what it returns is sent instead."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called once for each record that `on_send` saw, when it is acknowledged or has failed.

        `error`: what it failed of; the metadata has offset -1 then, and partition -1 if none was chosen.
        """
        ...


class Interceptors:
    """The interceptors of a producer, in their order."""

    def __init__(self, given: Sequence[ProducerInterceptor]) -> None:
        """Raises TypeError for anything but a sequence of objects with the two methods of an interceptor."""
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise TypeError(f"interceptors={given!r}: give several, as in [Interceptor()]")
        for each in given:
            for method in ("on_send", "on_acknowledgement"):
                if isinstance(each, type) or not callable(getattr(each, method, None)):
                    raise TypeError(
                        f"interceptors has {each!r}: give an object with the methods on_send and on_acknowledgement"
                    )
        self._each = tuple(given)
        self._failed: defaultdict[tuple[int, str], Seldom] = defaultdict(Seldom)
        """The limits of log lines, by interceptor and method."""

    def before(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead of this one: what `on_send` of each interceptor in turn makes of it."""
        for each in self._each:
            try:
                changed = each.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {changed!r}: it must return a ProducerRecord")
                record = changed
            except RAISED_BY_USER:
                self._say(each, "on_send", f"a record for topic {record.topic!r} goes on without it")
        return record

    def after(self, metadata: RecordMetadata, error: Exception | None = None) -> None:
        """Call `on_acknowledgement` of each interceptor with the outcome of a record."""
        for each in self._each:
            try:
                each.on_acknowledgement(metadata, error)
            except RAISED_BY_USER:
                self._say(each, "on_acknowledgement", "nothing of its record is changed by that")

    def _say(self, each: ProducerInterceptor, method: str, then: str) -> None:
        end = self._failed[id(each), method].due(asyncio.get_running_loop().time())
        if end is not None:
            logger.exception("%s of %r failed: %s%s", method, each, then, end)

    async def around(
        self, record: ProducerRecord, sending: Awaitable[asyncio.Future[RecordMetadata]]
    ) -> asyncio.Future[RecordMetadata]:
        """The result of `sending`, which sends `record`; if it raises, `after` is called with the error."""
        try:
            return await sending
        except BaseException as error:
            why = error if isinstance(error, Exception) else ClientError("its send was cancelled: it is in no batch")
            partition = -1 if record.partition is None else record.partition
            timestamp = -1 if record.timestamp is None else record.timestamp
            self.after(RecordMetadata(record.topic, partition, Offset(-1), timestamp), why)
            raise

    @property
    def on_acknowledged(self) -> OnAcknowledged | None:
        """The method `after`; None where there are no interceptors to tell."""
        return self.after if self._each else None
