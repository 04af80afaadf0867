"""What each metric tells, in a sentence for the page docs/reference/metrics.md and for who reads /metrics.

A test holds this table against what a node measures: each has a sentence, and none is left over.
"""

from __future__ import annotations

from typing import Final

#: bean and attribute, without the keys that become labels -> what it is
MEANING: Final[dict[str, str]] = {
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate:Count": (
        "Partitions that were written to by an older client in a transaction that was not open (KIP-890)."
    ),
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs:Count": (
        "How often the coordinator was asked whether a transaction is open (KIP-890)."
    ),
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs:Mean": "How long that took on average.",
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs:Max": "How long it took at most.",
    "kafka.server:type=ReplicaManager,name=PartitionCount:Value": "Partitions, those of the node's own topics too.",
    "kafka.server:type=ReplicaManager,name=OfflineReplicaCount:Value": (
        "Partitions that cannot be used, and the log says why. Should be 0."
    ),
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount:Value": "The same. Should be 0.",
    "kafka.server:type=ReplicaManager,name=ProducerIdCount:Value": (
        "Producers that partitions remember, each counted in every partition."
    ),
    "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount:Value": (
        "Partitions with a transaction whose producer was not heard of for transaction.max.timeout.ms and five "
        "minutes: it hangs (`fencepost transactions find-hanging`). Should be 0."
    ),
    "fencepost:type=Connections:Value": "Connections of clients.",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count:Value": (
        "Partitions that are not compacted any more, since a segment is damaged. Should be 0."
    ),
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent:Value": (
        "Of the log that was dirtiest at the last look, how much was not compacted yet."
    ),
    "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms:Value": "How long ago the cleaner last looked.",
    "kafka.log:type=LogCleaner,name=cleaner-recopy-percent:Value": (
        "Of what the last pass of the cleaner read, how much it wrote again."
    ),
    "kafka.log:type=LogCleaner,name=max-clean-time-secs:Value": "How many seconds the last pass took.",
    "kafka.log:type=LogCleaner,name=max-buffer-utilization-percent:Value": (
        "How much of its memory for keys the last pass needed."
    ),
    "kafka.log:type=LogCleaner,name=max-compaction-delay-secs:Value": (
        "How many seconds a log was beyond its max.compaction.lag.ms at the last look, the longest of them."
    ),
    "fencepost:type=LogCleaner,name=Passes:Count": "Passes of the cleaner.",
    "fencepost:type=LogCleaner,name=BytesRead:Count": "Bytes that these have read.",
    "fencepost:type=LogCleaner,name=BytesWritten:Count": "Bytes that these have written.",
    "fencepost:type=Space,name=FreeBytes:Value": "Bytes that are free on the disk of the data directory.",
    "fencepost:type=Space,name=TotalBytes:Value": "Bytes that this disk has.",
    "fencepost:type=Space,name=ReserveIsWhole:Value": (
        "1: .reserve has all of its space. 0: the disk is full, and producers are refused. Should be 1."
    ),
    "kafka.network:type=RequestMetrics,name=RequestsPerSec:Count": "Requests, by API.",
    "fencepost:type=Transactions,name=initialized:Count": "Producer ids and epochs given out for a transactional id.",
    "fencepost:type=Transactions,name=committed:Count": "Transactions that were decided to be committed.",
    "fencepost:type=Transactions,name=aborted:Count": (
        "Transactions that were decided to be aborted, by whomever: fenced and timed_out are part of it."
    ),
    "fencepost:type=Transactions,name=fenced:Count": "Aborted since another producer took the transactional id over.",
    "fencepost:type=Transactions,name=timed_out:Count": "Aborted since their time-out was over.",
    "fencepost:type=Transactions,name=expired:Count": "Transactional ids that were forgotten.",
    "fencepost:type=Transactions,name=loaded:Count": "Transactional ids that were read at the start.",
    "fencepost:type=TransactionalIds:Value": "Transactional ids, by the state of their transaction.",
}
