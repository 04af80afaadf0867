"""Transactions that hang: open in a partition, and nobody is there to end them (KIP-664).

They keep consumers of committed records waiting, and the cleaner from what comes after them.  Such a transaction has
been open for longer than the broker lets one be, and no coordinator will write its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client.admin.asking import ItemResult, Question, ask_once, metadata
from fencepost.client.admin.partitions import ProducerState, describe_producers
from fencepost.client.admin.routes import Leaders
from fencepost.client.admin.topics import TopicDescription
from fencepost.client.admin.transactions import (
    TransactionDescription,
    TransactionFilter,
    describe_transactions,
    list_transactions,
)
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, MisuseError, PartlyRefusedError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import WriteTxnMarkersRequest
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import TRANSACTION_STATE, Epoch, Milliseconds, ProducerId, TopicPartition

logger = logging.getLogger(__name__)


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition, and who has it open; if nobody is there to end it, it hangs.

    `start_offset`: of its first record there.  `last_timestamp`: of its last batch, in milliseconds since 1970.
    `transactional_id`: who has the producer id now, None if no coordinator knows.
    """

    partition: TopicPartition
    start_offset: int
    producer_id: ProducerId
    producer_epoch: Epoch
    coordinator_epoch: int
    last_timestamp: int
    transactional_id: str | None = None


def open_for_longer(
    producers: Mapping[TopicPartition, Iterable[ProducerState]], timeout_ms: int, now: Milliseconds
) -> list[HangingTransaction]:
    """The open transactions whose last batch is more than `timeout_ms` older than `now` (milliseconds since 1970)."""
    return [
        found
        for at, states in producers.items()
        for found in map(lambda state, at=at: _open(at, state), states)  # type: ignore[misc]
        if found is not None and now - found.last_timestamp > timeout_ms
    ]


def _open(at: TopicPartition, state: ProducerState) -> HangingTransaction | None:
    start = state.transaction_start_offset
    if start is None:
        return None
    return HangingTransaction(
        at,
        start,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        last_timestamp=state.last_timestamp,
    )


def without_coordinator(
    found: Iterable[HangingTransaction],
    ids: Mapping[int, str],
    described: Mapping[str, TransactionDescription | None],
) -> list[HangingTransaction]:
    """The open transactions whose marker no coordinator is going to write.

    `ids`: transactional id by producer id.  A coordinator names the partitions of a transaction that is open, and
    while it ends those whose markers are not written yet.
    """
    hanging = []
    for each in found:
        name = ids.get(each.producer_id)
        known = None if name is None else described.get(name)
        if known is None or each.partition not in known.partitions:
            hanging.append(each._replace(transactional_id=name))
    return hanging


def to_look_at(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """The partitions that have a leader; the others are named in the log."""
    led: list[TopicPartition] = []
    leaderless: list[TopicPartition] = []
    for topic in topics:
        for part in topic.partitions:
            (leaderless if part.leader is None else led).append(TopicPartition(topic.name, part.partition))
    if leaderless:
        logger.warning(
            "not looked at for hanging transactions, as nobody leads them: %s", ", ".join(map(str, leaderless))
        )
    return led


async def _producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> Mapping[TopicPartition, list[ProducerState]]:
    """The producers of these partitions, without those that are deleted meanwhile."""
    try:
        return await describe_producers(cluster, partitions, deadline)
    except PartlyRefusedError as several:
        if any(error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for error in several.refused.values()):
            raise
        return several.done
    except BrokerError as only:
        if only.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}


async def find_hanging_transactions(
    cluster: Cluster, partitions: Sequence[TopicPartition], timeout_ms: int, deadline: Deadline
) -> list[HangingTransaction]:
    """The hanging transactions of these partitions.  `timeout_ms`: transaction.max.timeout.ms of the brokers."""
    now = cluster.runtime.clock.now()
    late = open_for_longer(await _producers(cluster, partitions, deadline), timeout_ms, now)
    hanging = await _left_alone(cluster, late, deadline)
    # One that was ended while its coordinator was asked is none.
    again = await _producers(cluster, dict.fromkeys(each.partition for each in hanging), deadline)
    still = {
        (at, state.producer_id, state.transaction_start_offset) for at, states in again.items() for state in states
    }
    return [each for each in hanging if (each.partition, each.producer_id, each.start_offset) in still]


async def _left_alone(
    cluster: Cluster, found: Sequence[HangingTransaction], deadline: Deadline
) -> list[HangingTransaction]:
    """Those of `found` that no coordinator has; every one is asked.  Raises BrokerError if one cannot be."""
    if not found:
        return []
    producers = sorted(dict.fromkeys(each.producer_id for each in found))
    while True:
        coordinators = await _coordinators(cluster, deadline)
        brokers = sorted({leader for leader, _ in coordinators})
        listed = await list_transactions(cluster, TransactionFilter(producer_ids=producers), deadline, brokers)
        described = await describe_transactions(cluster, listed, deadline)
        if await _coordinators(cluster, deadline) == coordinators:
            return without_coordinator(found, {each.producer_id: name for name, each in listed.items()}, described)
        await deadline.pause("coordinators move")  # what one of them has may have been told by neither


async def _coordinators(cluster: Cluster, deadline: Deadline) -> list[tuple[int, int]]:
    """Leader (who is the coordinator) and leader epoch of each partition of __transaction_state; empty without that.

    Raises BrokerError if a partition has no leader: what its coordinator is going to end is not known then.
    """
    answer = await metadata(cluster, [TRANSACTION_STATE], deadline)
    (topic,) = answer.topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if topic.error_code:
        raise BrokerError(topic.error_code, f"which transactions hang cannot be told without {TRANSACTION_STATE}")
    alive = {broker.node_id for broker in answer.brokers}
    for part in topic.partitions:
        if part.leader_id not in alive:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"which transactions hang cannot be told: nobody leads {TRANSACTION_STATE}-{part.partition_index}, "
                "and the coordinator that comes back with it may be going to commit them",
            )
    return [
        (part.leader_id, part.leader_epoch) for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]


async def abort_transaction(
    cluster: Cluster, at: TopicPartition, start_offset: int, timeout_ms: int, deadline: Deadline
) -> None:
    """End the transaction that begins there, in this partition only, without its coordinator.

    `timeout_ms`: transaction.max.timeout.ms of the brokers.  Raises MisuseError if none is open there, it was written
    to later than that, or its coordinator is there to end it.
    """
    hanging = await _hanging_at(cluster, at, start_offset, timeout_ms, deadline)
    if hanging is None:
        raise MisuseError(
            f"no transaction that is open in {at} begins at offset {start_offset}: `describe_producers` names those "
            "that are"
        )
    while hanging is not None:
        because = await _write_marker(cluster, hanging, deadline)
        if because is None:
            return
        await deadline.pause(because)
        # It may have been written, and the producer may have begun another one since.
        hanging = await _hanging_at(cluster, at, start_offset, timeout_ms, deadline)


async def _hanging_at(
    cluster: Cluster, at: TopicPartition, start_offset: int, timeout_ms: int, deadline: Deadline
) -> HangingTransaction | None:
    """The transaction that begins at `start_offset`, None if none is open.  Raises MisuseError if it does not hang."""
    found = await _open_at(cluster, at, start_offset, deadline)
    if not found:
        return None
    age = cluster.runtime.clock.now() - found[0].last_timestamp
    if age <= timeout_ms:
        raise MisuseError(
            f"the transaction that begins at offset {start_offset} of {at} was written to {age} ms ago, and one may "
            f"take {timeout_ms} ms (max_transaction_timeout_ms): wait for that"
        )
    hanging = await _left_alone(cluster, found, deadline)
    if not hanging:
        raise MisuseError(
            f"the transaction that begins at offset {start_offset} of {at} does not hang: its coordinator will end it, "
            "when its time-out is over at the latest. To end it now, initialize a producer with its transactional id"
        )
    # One that was ended while its coordinator was asked is none: the marker would end the producer's next one.
    still = await _open_at(cluster, at, start_offset, deadline)
    return hanging[0] if still else None


async def _open_at(
    cluster: Cluster, at: TopicPartition, start_offset: int, deadline: Deadline
) -> list[HangingTransaction]:
    """The open transaction that begins at `start_offset`, as a list of one; empty if there is none."""
    states = (await describe_producers(cluster, [at], deadline))[at]
    opened = [found for found in (_open(at, state) for state in states) if found is not None]
    return [each for each in opened if each.start_offset == start_offset]


async def _write_marker(cluster: Cluster, hanging: HangingTransaction, deadline: Deadline) -> object:
    """Ask the leader for an ABORT marker, once: None if it has written it, else why it must be asked again."""
    at = hanging.partition
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
        # A producer that never saw a marker has none: 0 is at most what any coordinator has.
        coordinator_epoch=max(hanging.coordinator_epoch, 0),
    )

    def read(answer: Any, _: object) -> Iterator[ItemResult[TopicPartition, None]]:
        for written in answer.markers:
            for topic in written.topics:
                for part in topic.partitions:
                    yield ItemResult(TopicPartition(topic.name, part.partition_index), part.error_code, None, None)

    question = Question(
        request=lambda _: WriteTxnMarkersRequest(markers=[marker]),
        read=read,
        refused=lambda at: f"the transaction that begins at offset {hanging.start_offset} of {at} was not aborted",
    )
    return await ask_once(cluster, at, Leaders(cluster), question, deadline)
