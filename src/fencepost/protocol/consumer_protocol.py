"""What the members of a classic consumer group tell each other through the coordinator, which never reads it."""

from fencepost.protocol.message import data, since, struct
from fencepost.protocol.types import binary, int32, string


@struct
class ConsumerTopicPartitions:
    topic: string
    partitions: list[int32]


@data(versions="0-3")
class ConsumerProtocolSubscription:
    """A member's metadata in JoinGroup: what it wants.  (Kafka's ConsumerProtocolSubscription)"""

    topics: list[string]
    user_data: binary | None = None
    owned_partitions: list[ConsumerTopicPartitions] = since(1, default=[])
    generation_id: int32 = since(2, default=-1)
    rack_id: string | None = since(3, default=None)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """A member's assignment in SyncGroup: what it gets.  (Kafka's ConsumerProtocolAssignment)"""

    assigned_partitions: list[ConsumerTopicPartitions]
    user_data: binary | None = None
