"""The leader of a classic group: shares the partitions out, and looks for topics and partitions that are new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.client.assignors import ASSIGNORS
from fencepost.client.cluster import Deadline, TopicView
from fencepost.client.group_protocol import assignment, member_of, partitions_of
from fencepost.client.group_requests import GroupRequests
from fencepost.client.topic_lookups import those_there
from fencepost.protocol.messages import DescribeGroupsRequest
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment


class GroupLeader:
    """Shares the partitions of a group out, in generations in which this member leads it."""

    def __init__(self, requests: GroupRequests) -> None:
        self._requests = requests
        self.counted: dict[str, int] = {}
        """Topic -> number of its partitions when this member shared them out; empty unless it did.

        0: the topic was not there.  -1: not known.
        """

    async def share_out(self, joined: Any, deadline: Deadline, create: bool) -> list[SyncGroupRequestAssignment]:
        """The assignments of all members, if this one leads the group, else none; `counted` is set by that.

        `create`: have a topic made that is not there, where the broker does that.
        """
        self.counted = {}
        if joined.leader != joined.member_id:
            return []
        members = {
            member.member_id: member_of(joined.protocol_name, member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = list(dict.fromkeys(topic for member in members.values() for topic in member.topics))
        # They may have got more partitions.  To ask for them waits for no other member, so it is given up as any call.
        cluster = self._requests.cluster
        there = await those_there(cluster, topics, deadline.at_most(cluster.patience_ms), create, anew=True)
        counts = {name: view.partition_count for name, view in there.items()}
        missing = dict.fromkeys((name for name in topics if name not in counts), 0)
        if joined.skip_assignment:
            # A static member is back, and the group goes on as it was shared out before.
            self.counted = missing | await self._shared_out(counts, deadline)
            return []
        self.counted = missing | counts
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=assignment(partitions))
            for member, partitions in ASSIGNORS[joined.protocol_name](members, counts).items()
        ]

    async def _shared_out(self, topics: Iterable[str], deadline: Deadline) -> dict[str, int]:
        """How many partitions of each topic are assigned to members; -1 if the coordinator does not say."""
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
