"""Random walks of offsets in transactions, with the one member of a classic group, and of what deletes them."""

from __future__ import annotations

import random
from typing import Any

from tests.compare.coordinator.walks import VERSIONS, Walk
from tests.compare.nodes import requests
from tests.compare.nodes.connection import CLOSED
from tests.compare.nodes.twins import Twins

from fencepost.protocol.messages import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment

Member = tuple[str, int, str | None]
OUTSIDER: Member = ("", -1, None)
WEIGHTS = {
    "init": 1,
    "add_offsets": 2,
    "txn_commit": 6,
    "commit": 2,
    "fetch": 4,
    "end": 4,
    "join": 2,
    "sync": 2,
    "leave": 1,
    "heartbeat": 1,
    "offset_delete": 1,
    "delete_groups": 1,
}


class Offsets(Walk):
    """One walk.  The second group has a static member."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str) -> None:
        super().__init__(twins, chance, prefix, WEIGHTS)
        self._instances = dict(zip(self.groups, (None, "i"), strict=True))
        self._member: dict[str, Member] = dict.fromkeys(self.groups, OUTSIDER)
        self._former: dict[str, list[Member]] = {group: [OUTSIDER] for group in self.groups}
        self._moves |= {
            "join": self._join,
            "sync": self._sync,
            "leave": self._leave,
            "heartbeat": self._heartbeat,
            "offset_delete": self._offset_delete,
            "delete_groups": self._delete_groups,
        }

    def version(self, move: str) -> int:
        return super().version(move) if move in VERSIONS else 0

    def look(self) -> None:
        super().look()
        for group in self.groups:
            for stable in (True, False):
                wanted = {"twins-a": [0, 1], "twins-b": [0]}
                self.twins.ask(requests.fetch([group], wanted, stable, 7), 7)

    def who(self, group: str) -> Member:
        """Mostly the member; else one that it was, or something wrong."""
        member = self._member[group]
        if self.chance.random() < 0.5:
            return member
        generation = self.chance.choice([member[1], member[1] + 1, member[1] - 1, -1, 0])
        return self.chance.choice(
            [
                OUTSIDER,
                self.chance.choice(self._former[group]),
                (member[0], generation, member[2]),
                ("stranger", generation, member[2]),
                (member[0], member[1], self.chance.choice([None, "i", "other"])),
                ("", member[1], member[2]),
            ]
        )

    # Positions

    def _txn_commit(self, name: str, version: int) -> None:
        group = self.chance.choice(self.groups)
        request = requests.txn_commit(
            name,
            self.pair(name),
            group,
            self.to_commit(),
            self.chance.choice(["", None, "note", "x" * 4097]),
            self.who(group) if version >= 3 else OUTSIDER,
        )
        self.twins.ask(request, version)

    def _commit(self, name: str, version: int) -> None:  # noqa: ARG002
        group = self.chance.choice(self.groups)
        who = self.who(group)
        if version < 7:
            who = (*who[:2], None)
        metadata = self.chance.choice(["", None, "note", "x" * 4097])
        self.twins.ask(requests.commit(group, self.to_commit(), metadata, who), version)

    def _offset_delete(self, name: str, version: int) -> None:  # noqa: ARG002
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in self.partitions().items()
        ]
        group = self.chance.choice([*self.groups, *self.groups, *self.groups, f"{self.prefix}-never", ""])
        self.twins.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)

    def _delete_groups(self, name: str, version: int) -> None:  # noqa: ARG002
        groups = self.chance.choice([self.groups[:1], self.groups[1:], self.groups, [f"{self.prefix}-never", ""]])
        self.twins.ask(DeleteGroupsRequest(groups_names=list(groups)), self.chance.randint(0, 2))

    # The member

    def _join(self, name: str, version: int) -> None:  # noqa: ARG002
        group = self.chance.choice(self.groups)
        member, instance = self._member[group], self._instances[group]
        member_id = member[0]
        if instance is not None and self.chance.random() < 0.4:
            member_id = ""  # it starts again, and fences what it was
        answer = self._asked_to_join(group, member_id, instance)
        if answer["error_code"] == "MEMBER_ID_REQUIRED":
            answer = self._asked_to_join(group, answer["member_id"], instance)
        if answer["error_code"] == 0:
            self._become(group, (answer["member_id"], answer["generation_id"], instance))
        elif answer["error_code"] in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self._become(group, OUTSIDER)

    def _asked_to_join(self, group: str, member_id: str, instance: str | None) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"me")],
        )
        return self.twins.ask(request, self.chance.choice([5, 7, 9]))

    def _become(self, group: str, member: Member) -> None:
        self._former[group].append(self._member[group])
        self._member[group] = member

    def _sync(self, name: str, version: int) -> None:  # noqa: ARG002
        group = self.chance.choice(self.groups)
        member_id, generation, instance = self._member[group]
        given = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        assert self.twins.ask(request, self.chance.choice([3, 5])) != CLOSED

    def _leave(self, name: str, version: int) -> None:  # noqa: ARG002
        group = self.chance.choice(self.groups)
        who = self.who(group)
        member = MemberIdentity(member_id=who[0], group_instance_id=who[2])
        self.twins.ask(LeaveGroupRequest(group_id=group, members=[member]), self.chance.choice([3, 5]))

    def _heartbeat(self, name: str, version: int) -> None:  # noqa: ARG002
        group = self.chance.choice(self.groups)
        member_id, generation, instance = self.who(group)
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.twins.ask(request, 3)
