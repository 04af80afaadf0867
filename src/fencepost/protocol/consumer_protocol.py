"""Subscriptions and assignments, which members of a classic consumer group exchange through the coordinator.

It reads only which topics they want, to know whose positions must stay.
"""

from struct import Struct
from struct import error as StructError
from typing import Final

from fencepost.protocol.message import data, since, struct
from fencepost.protocol.types import Buffer, binary, int32, string


@struct
class ConsumerTopicPartitions:
    """A topic, and partitions of it."""

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


@data(versions="0-1")
class StickyAssignorUserData:
    """The partitions that a member with the sticky assignor had until it joined.  (Of Kafka's StickyAssignor)"""

    previous_assignment: list[ConsumerTopicPartitions]
    generation: int32 = since(1, default=-1)


CONSUMER: Final = "consumer"
"""The protocol type of those who talk like this."""
_SHORT, _INT = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: Buffer) -> list[str] | None:
    """The topics of a subscription of any version; None if the bytes are none."""
    topics = []
    try:
        (count,) = _INT.unpack_from(metadata, _SHORT.size)
        at = _SHORT.size + _INT.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(metadata, at)
            at += _SHORT.size + length
            name = bytes(metadata[at - length : at])
            if length < 0 or len(name) < length:
                return None
            topics.append(name.decode())
        (user_data,) = _INT.unpack_from(metadata, at)
    except (StructError, UnicodeDecodeError):
        return None
    return topics if count >= 0 and at + _INT.size + user_data <= len(metadata) else None
