"""A producer that runs in one event loop, as another event loop asks it."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.client.portal import Portal
from fencepost.client.producer import Producer
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition


class ProducerElsewhere:
    """A producer in the loop of its portal, for a transaction loop in another one."""

    def __init__(self, producer: Producer, portal: Portal) -> None:
        self._producer = producer
        self._portal = portal

    @property
    def transactional_id(self) -> str | None:
        return self._producer.transactional_id

    @property
    def is_initialized(self) -> bool:
        return self._producer.is_initialized

    async def init_transactions(self) -> None:
        await self._portal.elsewhere(self._producer.init_transactions())

    async def begin_transaction(self) -> None:
        await self._portal.elsewhere(self._producer.begin_transaction())

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None:
        await self._portal.elsewhere(self._producer.send_offsets_to_transaction(offsets, group))

    async def commit_transaction(self) -> None:
        await self._portal.elsewhere(self._producer.commit_transaction())

    async def abort_transaction(self) -> None:
        await self._portal.elsewhere(self._producer.abort_transaction())
