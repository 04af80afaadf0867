"""A classic consumer group: its states, its members, and the rules of a rebalance.  No I/O, no clock.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^            |    ^------------------'----------------'
      '------------'   whenever somebody joins, leaves or is lost

A generation begins when everybody who is going to be in it has joined; its leader then hands in the assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from fencepost.protocol.consumer_protocol import CONSUMER, subscribed_topics
from fencepost.protocol.errors import ErrorCode


class GroupState(Enum):
    """State of a classic group, with Apache Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: state -> the states that it may become
TRANSITIONS: Final[Mapping[GroupState, tuple[GroupState, ...]]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.PREPARING_REBALANCE: (GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD),
    GroupState.COMPLETING_REBALANCE: (GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.STABLE: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.DEAD: (),
}


@dataclass(eq=False, slots=True)
class Member:
    """One member.  `joining` and `syncing` are where its waiting requests get their answers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    """What it can do and its metadata for that, what it likes most first."""
    assignment: bytes = b""
    joining: Any = None
    syncing: Any = None
    session: Any = None
    """The timer that ends it."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(eq=False, slots=True)
class Group:
    """See the module."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_timestamp: int = -1
    """When it got into its state, in milliseconds since 1970."""
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """group instance id -> member id"""
    promised: dict[str, Any] = field(default_factory=dict)
    """Member ids that were given out (KIP-394) and have not joined yet, and the timers that end them."""
    rebalance: Any = None
    """The timer of the rebalance that is under way."""
    subscribed: frozenset[str] | None = None
    """Topics that the members of this generation want; None: nobody can tell."""
    gathers: bool = False
    """Its first generation still waits for more members (group.initial.rebalance.delay.ms)."""
    new_member_joined: bool = False

    def become(self, state: GroupState, now: int) -> None:
        assert state in TRANSITIONS[self.state], f"a group does not become {state.value} from {self.state.value}"
        self.state, self.state_timestamp = state, now

    # Members

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        self.members.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id; the old one is fenced."""
        was_leader = self.leader == member.member_id
        self.remove(member)
        member.member_id = member_id
        self.add(member)
        if was_leader:
            self.leader = member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def everybody_joined(self) -> bool:
        return not self.promised and all(member.joining is not None for member in self.members.values())

    # Rules

    def accepts(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether somebody with these protocols can be in this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        common = not self.members or self._common() & {name for name, _ in protocols}
        return self.protocol_type == protocol_type and bool(protocols) and bool(common)

    def _common(self) -> set[str]:
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))

    def elect_protocol(self) -> str:
        """What everybody can do and most like best; each member votes for the first of its own that is common."""
        common = self._common()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def begin_generation(self, now: int) -> None:
        """Everybody is here."""
        self.generation += 1
        self.protocol = self.elect_protocol()
        self.find_subscriptions()
        self.become(GroupState.COMPLETING_REBALANCE, now)

    def find_subscriptions(self) -> None:
        """At the beginning of a generation."""
        self.subscribed = None
        if self.protocol_type == CONSUMER:
            wanted = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
            if None not in wanted:
                self.subscribed = frozenset(topic for topics in wanted for topic in topics or ())

    def check_member(self, member_id: str, group_instance_id: str | None, generation: int | None) -> ErrorCode:
        """Is this a member, and does it speak of this generation?  (None: it does not say)"""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    # Positions

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """May this OffsetCommit be taken?"""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self.check_member(member_id, group_instance_id, generation)
        if error:
            return error
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING_REBALANCE else ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """May positions be deleted at all?  A group that waits for promised members is not empty without any."""
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic, so that its positions must stay; so it is taken where nobody can tell."""
        return self.protocol_type == CONSUMER if self.subscribed is None else topic in self.subscribed

    def check_transactional_commit(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """May this TxnOffsetCommit be taken?  (facts §7.4; an absent group is an empty one of generation -1)"""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and group_instance_id is None:
            return ErrorCode.NONE
        return self.check_member(member_id, group_instance_id, generation)
