"""Single records handed over to their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fencepost.client.acknowledgements import Unnumbered
from fencepost.client.batches import RecordMetadata
from fencepost.client.cluster import Cluster
from fencepost.client.idempotence import Idempotence
from fencepost.client.placement import Placement
from fencepost.client.producer_record import BYTES, checked_timestamp, what_is_wrong
from fencepost.client.sender import Sender
from fencepost.client.transactions import Transactions
from fencepost.protocol.records import Headers


class Sending:
    """Hands records of one producer over, one by one.

    Both methods take what `Producer.send` does.
    """

    def __init__(self, cluster: Cluster, placement: Placement, rules: Transactions | Idempotence | Unnumbered) -> None:
        self._home = cluster.home
        self._clock = cluster.runtime.clock
        self._placement = placement
        self._rules = rules
        self._note_send = rules.note_send if isinstance(rules, Transactions) else None
        self._answers_wait = False  # since a batch was full
        self.sender: Sender | None = None
        """While the producer takes records."""

    def at_once(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata] | None:
        """Hand over a record where nothing is waited for, looked up or refused first; None: `send` does it."""
        self._home.check()
        sender = self.sender
        if sender is None or self._answers_wait or sender.is_full or not self._rules.takes_records:
            return None
        if not (isinstance(value, BYTES) and isinstance(key, BYTES)):
            return None
        # -1 if the topic or its partition is not known: a partitioner of the user is not asked then.
        number = self._placement.known(topic, key, partition, len(value or b""))
        return None if number < 0 else self._append(sender, topic, number, value, key, timestamp, headers)

    async def send(
        self,
        check: Callable[[], Awaitable[Sender]],
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Hand over a record, after all that has to come before it.

        `check` raises what makes a record impossible now, and tells the sender.
        """
        sender = await check()
        if self._answers_wait:  # first, so that who is cancelled here has handed over nothing
            self._answers_wait = await asyncio.sleep(0, False)
            await check()
        if not (isinstance(value, BYTES) and isinstance(key, BYTES)):
            raise what_is_wrong(key, value, headers)
        size = len(value or b"")
        number = self._placement.known(topic, key, partition, size)
        if number < 0:
            view = await self._placement.looked_up(topic, partition)
            number = self._placement.partitioner.choose(view, key, partition, size)
            await check()
        if sender.is_full:
            await sender.wait_for_room()
            await check()
        return self._append(sender, topic, number, value, key, timestamp, headers)

    def _append(
        self,
        sender: Sender,
        topic: str,
        number: int,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        now = self._clock.now() if timestamp is None else checked_timestamp(timestamp)
        try:
            future, full = sender.append((topic, number), now, key, value, headers)
        except (TypeError, ValueError, AttributeError):
            raise what_is_wrong(key, value, headers) from None
        if self._note_send is not None:
            self._note_send()
        if full:
            self._placement.partitioner.another(topic)
            self._answers_wait = True
        return future
