"""What the leader of a group does: it shares the partitions out, and sees when there are others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.client.assignors import assign_ranges
from fencepost.client.cluster import Deadline, TopicView
from fencepost.client.group_requests import GroupRequests
from fencepost.protocol.codec import decode_stored, encode_stored
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
)
from fencepost.protocol.messages import DescribeGroupsRequest
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.types import TopicPartition


class GroupLeader:
    """Shares out, if the coordinator says that we lead."""

    def __init__(self, requests: GroupRequests) -> None:
        self._requests = requests
        self.counted: dict[str, int] = {}
        """Topics of the group and their partitions as they were shared out, if we were the one to do it."""

    async def share_out(self, joined: Any, deadline: Deadline) -> list[SyncGroupRequestAssignment]:
        """If we lead the group: give everybody a share, and remember of how many partitions."""
        self.counted = {}
        if joined.leader != joined.member_id:
            return []
        wanted = {
            member.member_id: decode_stored(ConsumerProtocolSubscription, member.metadata).topics
            for member in joined.members
        }
        counts = {}
        for topic in dict.fromkeys(topic for topics in wanted.values() for topic in topics):
            self._requests.cluster.forget_topic(topic)  # it may have got more partitions
            counts[topic] = (await self._requests.cluster.topic(topic, deadline)).partition_count
        if joined.skip_assignment:
            # A static member is back, and the group goes on as it was shared out before.
            self.counted = await self._shared_out(counts, deadline)
            return []
        self.counted = counts
        given = []
        for member, partitions in assign_ranges(wanted, counts).items():
            by_topic: dict[str, list[int]] = {}
            for at in partitions:
                by_topic.setdefault(at.topic, []).append(at.partition)
            listed = [ConsumerTopicPartitions(topic=name, partitions=found) for name, found in by_topic.items()]
            assignment = encode_stored(ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b""), 1)
            given.append(SyncGroupRequestAssignment(member_id=member, assignment=assignment))
        return given

    async def _shared_out(self, topics: Iterable[str], deadline: Deadline) -> dict[str, int]:
        """How many partitions of each topic the members have; -1 if that is not told."""
        described = (
            await self._requests.ask(DescribeGroupsRequest(groups=[self._requests.group_id]), deadline)
        ).groups[0]
        if described.error_code:
            return dict.fromkeys(topics, -1)
        counts = dict.fromkeys(topics, 0)
        for member in described.members:
            assigned = partitions_of(member.member_assignment)
            for at in assigned:
                counts[at.topic] = counts.get(at.topic, 0) + 1
        return counts

    def has_changed(self, topics: Mapping[str, TopicView]) -> bool:
        """Whether a topic has other partitions than were counted, so that they are to be shared out anew."""
        return any(
            view.partition_count != self.counted.get(name, view.partition_count) for name, view in topics.items()
        )


def partitions_of(assignment: bytes) -> list[TopicPartition]:
    """What a member was given."""
    if not assignment:
        return []
    found = decode_stored(ConsumerProtocolAssignment, assignment).assigned_partitions
    return [TopicPartition(topic.topic, number) for topic in found for number in topic.partitions]
