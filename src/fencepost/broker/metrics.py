"""The metrics of a node, with Apache Kafka's names where it has one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from fencepost.broker.compaction import measured
from fencepost.broker.node import Node
from fencepost.protocol.messages import REQUESTS
from fencepost.protocol.types import Milliseconds

_VERIFICATION: Final = "kafka.server:type=AddPartitionsToTxnManager,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="

#: How much longer than the longest time-out a transaction may be open before it is late (KIP-664, metrics).
_LATE_MS: Final = 5 * 60 * 1000


def measure(node: Node, now: Milliseconds) -> dict[str, float]:
    """Everything there is to measure, by bean and attribute as `domain:key=value,...:attribute`.

    Apache Kafka's names where it has one (KIP-890 new metrics, KIP-664 metrics), else the domain is `fencepost`.  A
    Count is counted since the start, a Value is as it is now.
    """
    counted, partitions = node.counters, list(node.storage.partitions())
    transactions = node.transactions
    late = Milliseconds(now - node.settings.number("transaction.max.timeout.ms") - _LATE_MS)
    found: dict[str, float] = {
        f"{_VERIFICATION}VerificationFailureRate:Count": counted.verification_failures,
        f"{_VERIFICATION}VerificationTimeMs:Count": counted.verifications,
        f"{_VERIFICATION}VerificationTimeMs:Mean": counted.verification_time_ms / max(counted.verifications, 1),
        f"{_VERIFICATION}VerificationTimeMs:Max": counted.longest_verification_ms,
        f"{_REPLICAS}PartitionCount:Value": len(partitions) + len(node.storage.offline),
        f"{_REPLICAS}OfflineReplicaCount:Value": len(node.storage.offline),
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount:Value": len(node.storage.offline),
        f"{_REPLICAS}ProducerIdCount:Value": sum(len(each.producers.entries) for each in partitions),
        f"{_REPLICAS}PartitionsWithLateTransactionsCount:Value": sum(
            each.producers.is_late(late) for each in partitions
        ),
        "fencepost:type=Connections:Value": len(node.connections),
    }
    found |= measured(node.cleaner, now)
    room = node.storage.space.room()
    if room is not None:
        found["fencepost:type=Space,name=FreeBytes:Value"] = room.free
        found["fencepost:type=Space,name=TotalBytes:Value"] = room.total
        found["fencepost:type=Space,name=ReserveIsWhole:Value"] = node.storage.space.is_whole
    for api, count in sorted(counted.requests.items()):
        request = REQUESTS[api].__name__.removesuffix("Request")
        found[f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={request}:Count"] = count
    for name, count in asdict(transactions.metrics).items():
        found[f"fencepost:type=Transactions,name={name}:Count"] = count
    for state, count in transactions.count_by_state().items():
        found[f"fencepost:type=TransactionalIds,state={state.wire_name}:Value"] = count
    return found
