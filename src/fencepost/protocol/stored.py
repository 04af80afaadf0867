"""Keys and values of the internal topics, in Apache Kafka's own formats (facts §10.3, §10.4).

Each is stored behind an int16: in a key it tells the kind of record, in a value the version.  Where Kafka's format has
no room for what Fencepost keeps, the field has a high tag that Kafka's readers skip.
"""

from fencepost.protocol.message import between, data, since, struct, tagged
from fencepost.protocol.types import ZERO_UUID, binary, int8, int16, int32, int64, string, uuid

# __transaction_state


@data(versions="0")
class TransactionLogKey:
    """Kind 0: a transactional id."""

    transactional_id: string


@struct
class TransactionPartitions:
    """A topic of a transaction, and its partitions."""

    topic: string
    partition_ids: list[int32]


@data(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id.  v0 at transaction.version 0, v1 from 1 on."""

    producer_id: int64
    producer_epoch: int16
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[TransactionPartitions] | None = None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    previous_producer_id: int64 = tagged(0, since=1, default=-1)
    next_producer_id: int64 = tagged(1, since=1, default=-1)
    client_transaction_version: int16 = tagged(2, since=1, default=0)
    next_producer_epoch: int16 = tagged(3, since=1, default=-1)
    # Ours.  At v0 they travel in the record's headers.
    instance_epoch: int16 = tagged(10_000, since=1, default=-1)
    """First epoch of the producer instance that holds the id (KIP-360)."""
    claimed_producer_id: int64 = tagged(10_001, since=1, default=-1)
    claimed_producer_epoch: int16 = tagged(10_002, since=1, default=-1)
    """The pair that InitProducerId answered with another producer id, so that a retry gets the same answer."""
    timed_out_producer_id: int64 = tagged(10_003, since=1, default=-1)
    timed_out_producer_epoch: int16 = tagged(10_004, since=1, default=-1)
    """The pair whose transaction the server timed out, until another instance takes over (KIP-588)."""


# __consumer_offsets


@data(versions="0-1")
class OffsetCommitKey:
    """Kinds 0 and 1: the committed offset of a group in a partition."""

    group: string
    topic: string
    partition: int32


@data(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset.  v1 where the request gave an expiry of its own, else v3."""

    offset: int64
    leader_epoch: int32 = since(3, default=-1)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = between(1, 1, default=-1)
    topic_id: uuid = tagged(0, since=4, default=ZERO_UUID)


@data(versions="2")
class GroupMetadataKey:
    """Kind 2: a classic group."""

    group: string


@struct
class GroupMember:
    """A member of a classic group.  Time-outs are in milliseconds."""

    member_id: string
    group_instance_id: string | None = since(3, default=None)
    client_id: string
    client_host: string
    rebalance_timeout: int32 = since(1, default=0)
    session_timeout: int32
    subscription: binary
    assignment: binary


@data(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a classic group."""

    protocol_type: string
    generation: int32
    protocol: string | None = None
    leader: string | None = None
    current_state_timestamp: int64 = since(2, default=-1)
    members: list[GroupMember]
