"""A classic group as a value: its state, its members, and what can be asked of it.  (Kafka's ClassicGroup)

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^            |    ^------------------'----------------'
      '------------'   whenever somebody joins, leaves or is lost

A generation begins when everybody who is going to be in it has joined; its leader then hands in the assignment.

Immutable: a decision makes the next one, the journal stores it where it must outlive the node, and then the
coordinator holds it.  So nothing is ever half changed, and a decision whose record is refused has changed nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from fencepost.protocol.consumer_protocol import CONSUMER, subscribed_topics
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_TIMESTAMP, Epoch, Milliseconds

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""What a member can do, most preferred first: names of protocols (assignors), and its metadata for each."""


class ClassicGroupState(Enum):
    """State of a classic group, with Apache Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    """The causes of a change of a group's state."""

    MEMBER_JOINS = "a JoinGroup that needs a new generation"
    MEMBER_GOES = "LeaveGroup, or the end of a session"
    ALL_JOINED = "every member has joined, or the rebalance time-out is over"
    NOBODY_JOINED = "nobody is left when the generation would begin"
    ASSIGNED = "the leader's SyncGroup is in the journal"
    NOT_ASSIGNED = "the journal refused the leader's SyncGroup, or a member sent none within the rebalance time-out"
    DELETED = "DeleteGroups, or its last committed offset expired"


#: (from, to) -> what moves it.  What is not here never happens.
TRANSITIONS: Final[Mapping[tuple[ClassicGroupState, ClassicGroupState], tuple[Cause, ...]]] = {
    (ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE): (Cause.MEMBER_JOINS,),
    (ClassicGroupState.EMPTY, ClassicGroupState.DEAD): (Cause.DELETED,),
    (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE): (Cause.ALL_JOINED,),
    (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.EMPTY): (Cause.NOBODY_JOINED,),
    (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE): (Cause.ASSIGNED,),
    (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.PREPARING_REBALANCE): (
        Cause.MEMBER_JOINS,
        Cause.MEMBER_GOES,
        Cause.NOT_ASSIGNED,
    ),
    (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE): (
        Cause.MEMBER_JOINS,
        Cause.MEMBER_GOES,
        Cause.NOT_ASSIGNED,
    ),
}


class Awaiting(Enum):
    """The request of a member that waits for its answer."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"


class Member(NamedTuple):
    """One member of a classic group.  (Kafka's ClassicGroupMember)"""

    member_id: str
    #: Of a static member (KIP-345); None: a dynamic one.
    group_instance_id: str | None
    client_id: str
    client_host: str
    #: A member that is not heard of for so long is out, unless it waits for an answer.
    session_timeout_ms: Milliseconds
    #: How long the others wait for it to join again, and then to ask for its assignment.
    rebalance_timeout_ms: Milliseconds
    protocols: Protocols
    assignment: bytes = b""
    #: JOIN only while the group is PREPARING_REBALANCE, SYNC only while it is COMPLETING_REBALANCE.
    awaiting: Awaiting | None = None
    #: Whether it has not asked for its assignment of this generation yet: it may take a rebalance time-out for that.
    pending_sync: bool = False

    @property
    def protocol_names(self) -> frozenset[str]:
        """Names of the protocols that the member can do."""
        return frozenset([name for name, _ in self.protocols])

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for this protocol; empty if it cannot do that."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


NO_MEMBERS: Final[Mapping[str, Member]] = MappingProxyType({})
NO_STATIC_MEMBERS: Final[Mapping[str, str]] = MappingProxyType({})
NO_PENDING_MEMBERS: Final[Mapping[str, None]] = MappingProxyType({})


class ClassicGroup(NamedTuple):
    """One classic group.  Times are milliseconds; its mappings are never changed in place."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    #: 0: there was no generation yet.  It never goes back.
    generation_id: Epoch = Epoch(0)
    #: Set by the first member that joins; "consumer" for consumers.
    protocol_type: str | None = None
    #: The protocol of this generation; None where it has no members.
    protocol_name: str | None = None
    #: The member that assigns; None where there are no members.
    leader_id: str | None = None
    #: When it got into its state, since the Unix epoch.
    state_timestamp: Milliseconds = NO_TIMESTAMP
    #: In the order in which they came.
    members: Mapping[str, Member] = NO_MEMBERS
    #: group instance id -> member id
    static_members: Mapping[str, str] = NO_STATIC_MEMBERS
    #: Member ids that were given out (KIP-394) and have not joined yet.
    pending_members: Mapping[str, None] = NO_PENDING_MEMBERS
    #: Topics that the members of this generation want; None: nobody can tell.
    subscribed_topics: frozenset[str] | None = None
    #: By how much the initial delayed join that it is in may still be extended; None: it is in none.
    initial_delay_left_ms: Milliseconds | None = None
    #: Somebody new came since the initial delayed join was begun or extended.
    new_member_added: bool = False
    #: Protocols that all members have; None: not worked out since some changed or left.
    common_protocols: frozenset[str] | None = None

    def become(self, state: ClassicGroupState, now: Milliseconds) -> ClassicGroup:
        """The same group in another state.  Raises AssertionError if the table does not know the move."""
        known = (self.state, state) in TRANSITIONS
        assert known, f"a group does not become {state.value} from {self.state.value}"
        return self._replace(state=state, state_timestamp=now)

    # Members

    def with_members(self, changed: Iterable[Member]) -> ClassicGroup:
        """New members at the end, others changed where they stand.  The first member of all leads.

        What is common to all is kept: to work it out anew for each of a thousand members with a hundred protocols who
        come, or come again, took seconds.
        """
        members, static_members = dict(self.members), dict(self.static_members)
        common = self._candidate_protocols() if members else None
        for member in changed:
            former = members.get(member.member_id)
            if former is None:
                common = common & member.protocol_names if members and common is not None else None
            elif former.protocols is not member.protocols and former.protocol_names != member.protocol_names:
                common = None
            members[member.member_id] = member
            if member.group_instance_id is not None:
                static_members[member.group_instance_id] = member.member_id
        leader_id = next(iter(members), None) if self.leader_id is None else self.leader_id
        return self._replace(
            members=members, static_members=static_members, leader_id=leader_id, common_protocols=common
        )

    def without_members(self, gone: Iterable[Member]) -> ClassicGroup:
        """The group without these members; where its leader is gone, whoever came first leads."""
        members, static_members = dict(self.members), dict(self.static_members)
        for member in gone:
            del members[member.member_id]
            if member.group_instance_id is not None:
                del static_members[member.group_instance_id]
        leader_id = self.leader_id if self.leader_id in members else next(iter(members), None)
        return self._replace(members=members, static_members=static_members, leader_id=leader_id, common_protocols=None)

    def with_static_member_replaced(self, member: Member, member_id: str) -> ClassicGroup:
        """The group with another id for a static member, which keeps its part in it; the old id is fenced."""
        replaced = self.without_members((member,))._replace(common_protocols=self.common_protocols)
        replaced = replaced.with_members((member._replace(member_id=member_id),))
        return replaced._replace(leader_id=member_id) if self.leader_id == member.member_id else replaced

    def with_pending(self, member_id: str) -> ClassicGroup:
        """The group with a member id that was given out and has not joined yet."""
        return self._replace(pending_members={**self.pending_members, member_id: None})

    def without_pending(self, gone: Iterable[str]) -> ClassicGroup:
        """The group without these pending ids: they have joined, or may not join any more."""
        left = dict(self.pending_members)
        for member_id in gone:
            del left[member_id]
        return self._replace(pending_members=left)

    @property
    def rebalance_timeout_ms(self) -> Milliseconds:
        """The longest of all members'; 0 without any."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=Milliseconds(0))

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member waits in JoinGroup and no id is pending: true without any members."""
        waits = (member.awaiting is Awaiting.JOIN for member in self.members.values())
        return not self.pending_members and all(waits)

    @property
    def has_received_sync_from_all_members(self) -> bool:
        """Whether every member has asked for its assignment of this generation."""
        return not any(member.pending_sync for member in self.members.values())

    def validate_member(self, member_id: str, group_instance_id: str | None, generation_id: int | None) -> ErrorCode:
        """The error of a request by this member, which names this generation (None: it names none); NONE if it is one.

        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID for the old id of a static member, ILLEGAL_GENERATION; in this order.
        """
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id is not None and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    # Protocols

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in this group: one of them is common to all members."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        common = not self.members or not self._candidate_protocols().isdisjoint([name for name, _ in protocols])
        return self.protocol_type == protocol_type and bool(protocols) and bool(common)

    def _candidate_protocols(self) -> frozenset[str]:
        if self.common_protocols is not None:
            return self.common_protocols
        return frozenset.intersection(*(member.protocol_names for member in self.members.values()))

    def select_protocol(self) -> str:
        """The protocol that all can do and most like best; each votes for the first of its own that is common."""
        common = self._candidate_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def with_subscribed_topics(self) -> ClassicGroup:
        """The same group, knowing what the members of its generation want."""
        found: frozenset[str] | None = None
        if self.protocol_type == CONSUMER:
            wanted = [subscribed_topics(member.metadata(self.protocol_name)) for member in self.members.values()]
            if None not in wanted:
                found = frozenset(topic for topics in wanted for topic in topics or ())
        return self._replace(subscribed_topics=found)

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic, so that its offsets must stay; True for consumers if it is not known."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics
