"""Random walks of a classic group with several members, offsets in transactions, and everything that reads a group.

JoinGroup and SyncGroup wait for the others: after each step the walk looks which of them were answered.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.compare.coordinator.offsets import OUTSIDER, Member
from tests.compare.coordinator.walks import Walk
from tests.compare.nodes import requests
from tests.compare.nodes.connection import CLOSED, Connection, wait_until
from tests.compare.nodes.parking import WAITS, Parked, catch_up
from tests.compare.nodes.twins import Twins

from fencepost.protocol.codec import encode_stored
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription
from fencepost.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment

_LONG_MS = 600_000
_PATIENCE = 20.0
#: seat -> its group.instance.id
SEATS = {"x": None, "y": None, "i": "i"}
WEIGHTS = {
    "join": 10,
    "sync": 8,
    "leave": 3,
    "heartbeat": 3,
    "txn_commit": 6,
    "commit": 3,
    "end": 3,
    "offset_delete": 3,
    "delete_groups": 1,
    "init": 1,
    "add_offsets": 1,
}
FIRST_AND_NEWEST = {"txn_commit": (3, 5), "commit": (2, 9), "end": (0, 5), "init": (0, 5), "add_offsets": (0, 4)}
STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "stable", "Assigning", "Nothing", "")
TYPES = ("classic", "Classic", "consumer", "share", "nothing", "")
PROTOCOLS = (("range",), ("range", "roundrobin"), ("range", "roundrobin"), ("roundrobin",))
SUBSCRIPTIONS: tuple[bytes, ...] = (
    *(encode_stored(ConsumerProtocolSubscription(topics=list(t)), 1) for t in (("twins-a",), ("twins-a", "twins-b"))),
    encode_stored(ConsumerProtocolSubscription(topics=[]), 3),
    b"me",
)


class Crowd(Walk):
    """One walk."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str) -> None:
        super().__init__(twins, chance, prefix, WEIGHTS, ids=1)
        self.group = f"{prefix}-g"
        self._kind = chance.choice(["consumer", "consumer", "consumer", "connect"])
        self._members: dict[str, Member] = dict.fromkeys(SEATS, OUTSIDER)
        self._former: list[Member] = [OUTSIDER]
        self._leader = ""
        self._state = "Dead"
        """Of the group, when both last described it."""
        self._parked: dict[str, Parked] = {}
        self._moves |= {
            "join": self._join,
            "sync": self._sync,
            "leave": self._leave,
            "heartbeat": self._heartbeat,
            "offset_delete": self._offset_delete,
            "delete_groups": self._delete_groups,
        }

    def go(self, length: int) -> None:
        try:
            super().go(length)
        finally:
            for parked in self._parked.values():
                parked.close()

    def version(self, move: str) -> int:
        first, newest = FIRST_AND_NEWEST.get(move, (0, 0))
        if self.twins.level == 0 and move in ("txn_commit", "end"):
            newest -= 1
        return newest if self.chance.random() < 0.5 else self.chance.randint(first, newest)

    # What both say of the group

    def look(self) -> None:
        self._settle()
        super().look()
        names = self.chance.choice([[self.group], [self.group, f"{self.prefix}-never", ""]])
        operations = self.chance.random() < 0.5
        request = DescribeGroupsRequest(groups=names, include_authorized_operations=operations)
        described = self.twins.ask(request, self.chance.randint(3 if operations else 0, 6))["groups"]
        self._state = next(one["group_state"] for one in described if one["group_id"] == self.group)
        states = self.chance.choice([[], [self.chance.choice(STATES)], self.chance.sample(STATES, 2)])
        types = self.chance.choice([[], [], [self.chance.choice(TYPES)]])
        version = self.chance.choice([0, 3, 4, 5, 5, 5])
        listing = ListGroupsRequest(
            states_filter=states if version >= 4 else [], types_filter=types if version >= 5 else []
        )
        self.twins.ask(listing, version, told=self._own)
        wanted = {"twins-a": [0, 1], "twins-b": [0]} if self.chance.random() < 0.7 else None
        self.twins.ask(requests.fetch([self.group], wanted, self.chance.random() < 0.5, 9), 9)

    def _own(self, answer: Any) -> Any:
        groups = [one for one in answer.get("groups", []) if one["group_id"].startswith(f"{self.prefix}-")]
        return answer | {"groups": groups}

    def _settle(self) -> None:
        """Take the answers that have come, once nothing comes any more without anybody's doing."""
        catch_up(self.twins)
        for node in (self.twins.kafka, self.twins.ours):
            wait_until(partial(self._is_at_rest, node), _PATIENCE, "the end of a rebalance with a time-out of 0")
        for seat, parked in list(self._parked.items()):
            answer = parked.settled()
            if answer != WAITS:
                del self._parked[seat]
                self._take(seat, parked.request, answer)

    def _is_at_rest(self, node: Connection) -> bool:
        """False while a rebalance is on that began with a time-out of 0: in an empty group, or without members."""
        if self._state == "PreparingRebalance":
            return True
        (group,) = node.ask(DescribeGroupsRequest(groups=[self.group]), 5).groups
        passes = not group.members or self._state in ("Empty", "Dead")
        return not (passes and group.group_state == "PreparingRebalance")

    def _take(self, seat: str, request: Any, answer: Any) -> None:
        if isinstance(request, JoinGroupRequest):
            if answer["error_code"] in (0, "MEMBER_ID_REQUIRED"):
                self._become(seat, (answer["member_id"], answer["generation_id"], SEATS[seat]))
                self._leader = answer.get("leader") or self._leader
            elif answer["error_code"] in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
                self._become(seat, OUTSIDER)

    def _become(self, seat: str, member: Member) -> None:
        if self._members[seat] not in self._former:
            self._former.append(self._members[seat])
        self._members[seat] = member

    def seat(self) -> str:
        return self.chance.choice(list(SEATS))

    def who(self) -> Member:
        """Mostly a member; else one that it was, or something wrong."""
        member = self._members[self.seat()]
        if self.chance.random() < 0.5:
            return member
        generation = self.chance.choice([member[1], member[1] + 1, member[1] - 1, -1, 0])
        return self.chance.choice(
            [
                OUTSIDER,
                self.chance.choice(self._former),
                (member[0], generation, member[2]),
                ("stranger", generation, member[2]),
                (member[0], member[1], self.chance.choice([None, "i", "other"])),
                ("", member[1], member[2]),
            ]
        )

    # The members

    def _join(self, name: str, version: int) -> None:  # noqa: ARG002
        seat = self.seat()
        if seat in self._parked:
            return
        member_id, _, instance = self._members[seat][0], 0, SEATS[seat]
        if self.chance.random() < (0.3 if instance else 0.05):
            member_id = ""  # it starts again; a static member fences what it was
        names = self.chance.choice(PROTOCOLS[:3]) if self.chance.random() < 0.9 else self.chance.choice(PROTOCOLS)
        metadata = self.chance.choice(SUBSCRIPTIONS)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_LONG_MS,
            rebalance_timeout_ms=_LONG_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=self._kind if self.chance.random() < 0.95 else "other",
            protocols=[JoinGroupRequestProtocol(name=one, metadata=metadata) for one in names],
        )
        self._parked[seat] = Parked(self.twins, request, self.chance.choice([5, 6, 7, 9, 9]))

    def _sync(self, name: str, version: int) -> None:  # noqa: ARG002
        waiting = [seat for seat in SEATS if seat not in self._parked and self._members[seat] != OUTSIDER]
        seat = self.chance.choice(waiting or list(SEATS))
        if seat in self._parked:
            return
        member_id, generation, instance = self._members[seat]
        if self.chance.random() < 0.05:
            generation += 1
        given = [
            SyncGroupRequestAssignment(member_id=member[0], assignment=seat.encode() + b"'s")
            for seat, member in self._members.items()
            if member != OUTSIDER
        ]
        odd = self.chance.random() < 0.05
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="other" if odd else self._kind,
            protocol_name=None if self.chance.random() < 0.5 else "range",
            assignments=given if member_id == self._leader or self.chance.random() < 0.1 else [],
        )
        self._parked[seat] = Parked(self.twins, request, self.chance.choice([3, 5]))

    def _leave(self, name: str, version: int) -> None:  # noqa: ARG002
        if self.chance.random() < 0.3:
            who = [self.who()]
        else:
            who = [self._members[seat] for seat in self.chance.sample(list(SEATS), self.chance.choice([1, 1, 2]))]
        others = [
            seat
            for seat, one in self._members.items()
            if (one != OUTSIDER or seat in self._parked) and one[0] != self._leader
        ]
        if len(others) > 1 and any(self._leader in (one[0], self._id_of(one[2])) for one in who):
            return  # which of the others leads then, a hash table decides
        parked = self._parked.values()
        gone = {name for one in who for name in (one[0], self._id_of(one[2]))}
        if any(isinstance(one.request, SyncGroupRequest) and one.request.member_id in gone for one in parked):
            return  # Apache Kafka never answers the SyncGroup of a member that leaves
        asked = [MemberIdentity(member_id=one[0], group_instance_id=one[2]) for one in who]
        if self.chance.random() < 0.2:
            for one in asked:
                one.member_id = "" if one.group_instance_id else one.member_id
        self.twins.ask(LeaveGroupRequest(group_id=self.group, members=asked), self.chance.choice([3, 5]))

    def _id_of(self, instance: str | None) -> str | None:
        return self._members["i"][0] if instance == "i" else None

    def _heartbeat(self, name: str, version: int) -> None:  # noqa: ARG002
        member_id, generation, instance = self.who()
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.twins.ask(request, self.chance.choice([3, 4]))

    # Positions

    def _txn_commit(self, name: str, version: int) -> None:
        request = requests.txn_commit(name, self.pair(name), self.group, self.to_commit(), "", self.who())
        self.twins.ask(request, version)

    def _commit(self, name: str, version: int) -> None:  # noqa: ARG002
        who = self.who()
        if version < 7:
            who = (*who[:2], None)
        self.twins.ask(requests.commit(self.group, self.to_commit(), "", who), version)

    def _offset_delete(self, name: str, version: int) -> None:  # noqa: ARG002
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in self.partitions().items()
        ]
        assert self.twins.ask(OffsetDeleteRequest(group_id=self.group, topics=topics), 0) != CLOSED

    def _delete_groups(self, name: str, version: int) -> None:  # noqa: ARG002
        groups = self.chance.choice([[self.group], [self.group, self.group], [self.group, f"{self.prefix}-never", ""]])
        self.twins.ask(DeleteGroupsRequest(groups_names=groups), self.chance.randint(0, 2))
