"""What each setting does, in a sentence for the page docs/reference/settings.md, and where its default is our own.

A test holds these tables against the settings: each has a sentence, and none is left over.
"""

from __future__ import annotations

from typing import Final

#: setting -> what it does; a time is in milliseconds and a size in bytes, as the name says
MEANING: Final[dict[str, str]] = {
    "add.partitions.to.txn.retry.backoff.max.ms": "Taken and shown; changes nothing: the coordinator is this node.",
    "add.partitions.to.txn.retry.backoff.ms": "Taken and shown; changes nothing: the coordinator is this node.",
    "auto.create.topics.enable": (
        "Whether a topic that a client asks for by name in Metadata is made; of one request none if they would have "
        "more than 10,000 partitions."
    ),
    "compression.gzip.level": "How hard gzip works where the node compresses; -1 is zlib's own choice.",
    "compression.lz4.level": "How hard lz4 works where the node compresses.",
    "compression.type": "The codec that batches are kept in; `producer` keeps them as they came.",
    "compression.zstd.level": "How hard zstd works where the node compresses.",
    "connections.max.idle.ms": "A connection on which nothing came for so long is closed; negative: never.",
    "default.replication.factor": "Taken and shown; changes nothing: there is one copy.",
    "delete.topic.enable": "Whether DeleteTopics deletes; else it is answered TOPIC_DELETION_DISABLED.",
    "fetch.max.bytes": (
        "The most that one Fetch is given, whatever it asks for; a first batch that is larger comes whole."
    ),
    "group.initial.rebalance.delay.ms": (
        "How long a group that was empty waits for more members before its first rebalance."
    ),
    "group.max.session.timeout.ms": "The longest session timeout that a member may ask for.",
    "group.max.size": "The most members of a group.",
    "group.min.session.timeout.ms": "The shortest session timeout that a member may ask for.",
    "log.cleaner.backoff.ms": "How long the cleaner waits when it found nothing to do; 0 is 100 ms.",
    "log.cleaner.dedupe.buffer.size": "Memory for the newest offsets of keys in one pass of the cleaner.",
    "log.cleaner.delete.retention.ms": (
        "How long a tombstone, or a marker whose records are gone, stays in a compacted log."
    ),
    "log.cleaner.enable": "Whether logs are compacted at all.",
    "log.cleaner.io.buffer.load.factor": "How full the memory of a pass may get.",
    "log.cleaner.io.max.bytes.per.second": "The most that the cleaner reads and writes, taken together.",
    "log.cleaner.max.compaction.lag.ms": "How long a record may stay uncompacted.",
    "log.cleaner.min.cleanable.ratio": (
        "The share of a log that must be new since the last pass to make another worth it."
    ),
    "log.cleaner.min.compaction.lag.ms": "How long a record is left as it is.",
    "log.cleanup.policy": (
        "`delete` removes old segments, `compact` keeps the newest record of each key; both may be given."
    ),
    "log.index.interval.bytes": "So many bytes of records lie between two entries of an index.",
    "log.message.timestamp.after.max.ms": "How far a record's timestamp may be ahead of the node's clock.",
    "log.message.timestamp.before.max.ms": "How far a record's timestamp may be behind the node's clock.",
    "log.message.timestamp.type": (
        "Whether a record keeps the time that its producer gave it or gets that of its append."
    ),
    "log.record.check.max.bytes": (
        "A compressed batch of at most so many bytes is unfolded and looked at whole, however many records it has "
        "(docs/operating.md)."
    ),
    "log.record.check.max.records": (
        "How many records of a batch are looked at one by one (docs/operating.md); compacted topics: all."
    ),
    "log.retention.bytes": (
        "The size of a partition above which its oldest segments are removed; negative: without limit."
    ),
    "log.retention.check.interval.ms": "How often retention is looked at.",
    "log.retention.ms": "How long records are kept; -1: for ever.",
    "log.roll.ms": "After how long the next append begins a new segment.",
    "log.segment.bytes": "The size of a segment.",
    "log.segment.delete.delay.ms": "How long the files of a removed segment stay for readers that are at work in them.",
    "max.connection.creation.rate": "The most new connections in a second, on average over ten; others wait.",
    "max.connections": "The most connections at once; who comes then waits.",
    "max.connections.per.ip": "The most connections at once from one address; another one is closed.",
    "max.connections.per.ip.overrides": "Other limits for single addresses, as `10.0.0.7:200,10.0.0.8:50`.",
    "max.incremental.fetch.session.cache.slots": "The most incremental fetch sessions that are remembered.",
    "max.request.partition.size.limit": (
        "The most partitions in one answer to DescribeTopicPartitions, whatever it asks for; a cursor names the next."
    ),
    "message.max.bytes": "The largest batch that is taken.",
    "min.incremental.fetch.session.eviction.ms": (
        "How long a fetch session is safe from being forgotten for a newer one."
    ),
    "min.insync.replicas": "Taken and shown; changes nothing: there is one copy.",
    "node.id": "The number by which clients know this node.",
    "num.partitions": "Partitions of a topic for which nobody said how many.",
    "offset.metadata.max.bytes": "The longest text that a client may commit with an offset, in units of UTF-16.",
    "offsets.retention.check.interval.ms": "How often expired committed offsets are looked for.",
    "offsets.retention.minutes": (
        "How long committed offsets are kept once their group is empty; where it is not, those of topics that it does "
        "not read any more."
    ),
    "offsets.topic.num.partitions": "Partitions of `__consumer_offsets`; counts when that topic is made.",
    "producer.id.expiration.check.interval.ms": "How often producers that have expired are looked for.",
    "producer.id.expiration.ms": "How long a partition remembers a producer that writes nothing.",
    "queued.max.request.bytes": "Memory for requests that are being read, on all connections; -1: 1 GiB.",
    "request.timeout.ms": "Taken and shown; changes nothing: the node asks nobody.",
    "socket.request.max.bytes": "The largest request; a larger one ends its connection.",
    "transaction.abort.on.disconnect": (
        "Whether a transaction is aborted when the connection closes that asked for its producer id."
    ),
    "transaction.abort.on.disconnect.grace.ms": "How long such a producer has to come back.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often transactions whose time is up are looked for."
    ),
    "transaction.max.timeout.ms": "The longest transaction timeout that a producer may ask for.",
    "transaction.partition.verification.enable": (
        "Whether the coordinator is asked if a transaction is open before a write of an older client opens it here."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often expired transactional ids are looked for.",
    "transaction.state.log.num.partitions": "Partitions of `__transaction_state`; counts when that topic is made.",
    "transaction.two.phase.commit.enable": (
        "Whether InitProducerId v6 is served, and with it transactions without a timeout."
    ),
    "transactional.id.expiration.ms": "How long a transactional id that nobody uses is remembered.",
}

#: setting -> Apache Kafka's default where ours differs; None for one that Apache Kafka does not show
OTHER_DEFAULTS: Final[dict[str, str | None]] = {
    "log.record.check.max.bytes": None,
    "log.record.check.max.records": None,
    "min.incremental.fetch.session.eviction.ms": None,
    "producer.id.expiration.check.interval.ms": None,
    "transaction.abort.on.disconnect": None,
    "transaction.abort.on.disconnect.grace.ms": None,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
}
