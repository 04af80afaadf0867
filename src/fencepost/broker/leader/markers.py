"""Transaction markers into the partitions of this node, at once; those of very many partitions a little at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from inspect import isawaitable
from typing import Final

from fencepost.coordinator.group import GroupCoordinator
from fencepost.coordinator.transaction.markers import Marker, Markers, Results
from fencepost.log.partition import Refused
from fencepost.log.producer_state import Origin
from fencepost.log.storage import Storage
from fencepost.protocol.control import ABORT, COMMIT, ControlRecord, control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import CONSUMER_OFFSETS, Milliseconds, TopicPartition
from fencepost.runtime import Clock, Slices

AT_ONCE: Final = 100
"""Partitions that one step writes a marker to: some 30 µs each, where it takes opening a file."""


class LocalMarkers:
    """Appends transaction markers to the partitions of this node, which leads all, in the step that asks for it."""

    def __init__(self, storage: Storage, groups: GroupCoordinator, clock: Clock) -> None:
        self.storage = storage
        self._groups = groups
        self._clock = clock

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        now = self._clock.now()
        batch = control_batch(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit, now)
        control = ControlRecord(COMMIT if marker.commit else ABORT, marker.coordinator_epoch)
        return {partition: self._write_one(partition, marker, batch, control, now) for partition in partitions}

    def _write_one(
        self, at: TopicPartition, marker: Marker, batch: bytes, control: ControlRecord, now: Milliseconds
    ) -> ErrorCode:
        partition = self.storage.partition(at.topic, at.partition)
        if partition is None:
            deleted = not self.storage.exists(at.topic, at.partition)
            return ErrorCode.UNKNOWN_TOPIC_ID if deleted else ErrorCode.KAFKA_STORAGE_ERROR
        if at.topic == CONSUMER_OFFSETS:
            return self._groups.complete_transaction(
                at.partition, batch, marker.producer_id, control, marker.transaction_version
            )
        outcome = partition.append(
            batch, Origin.COORDINATOR, now, marker_transaction_version=marker.transaction_version, control=control
        )
        return outcome.error if isinstance(outcome, Refused) else ErrorCode.NONE


class PacedMarkers:
    """The markers of one transaction; in slices where it has more than `AT_ONCE` partitions: others are served then.

    Its id stands still until all are written, as where leaders are on other nodes.
    """

    def __init__(self, markers: Markers, slices: Slices) -> None:
        self._markers = markers
        self._slices = slices

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results | Awaitable[Results]:
        if len(partitions) <= AT_ONCE:
            return self._markers.write(marker, partitions)
        return self._write(marker, partitions)

    async def _write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        written: Results = {}
        for first in range(0, len(partitions), AT_ONCE):
            await self._slices.pause()
            results = self._markers.write(marker, partitions[first : first + AT_ONCE])
            written |= (await results) if isawaitable(results) else results
        return written
