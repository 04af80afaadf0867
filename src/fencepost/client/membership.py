"""The interface of membership in a group, for either protocol: what the other parts of a consumer use of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fencepost.client.cluster import TopicView
from fencepost.client.errors import FencedInstanceIdError
from fencepost.client.group_requests import GroupRequests
from fencepost.client.transactional_id import ConsumerGroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition


class Membership(Protocol):
    """A member of a group: joins, sends heartbeats, and leaves."""

    group_id: str
    requests: GroupRequests
    is_cooperative: bool
    """Whether the member keeps its partitions while it joins."""
    has_epochs: bool
    """Whether the generation of `metadata` is a member epoch (KIP-848)."""
    must_join: bool
    """Whether the consumer is to call `join` before it reads on."""
    creates_topics: bool
    """Whether to have topics made that are not there, where the broker does that."""
    fenced: FencedInstanceIdError | None
    """The error if another consumer has this group_instance_id, for good; else None."""
    polled_at: float
    """When records were asked for last, by the loop's clock, in seconds."""

    @property
    def has_lost_place(self) -> bool:
        """Whether this is no member: its partitions may be another member's."""
        ...

    def metadata(self) -> ConsumerGroupMetadata:
        """Group, member id and generation (or member epoch) in whose name commits are made, as of the last `follow`."""
        ...

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata | None:
        """`member` with its newest generation, if what it had and did not give up is still its own; else None."""
        ...

    async def join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition] = (), regex: str | None = None
    ) -> list[TopicPartition] | None:
        """Become (or stay) a member that reads these topics; the partitions that are ours.

        `owned`: those that we keep meanwhile.  `regex`: for names of more topics, where we have epochs.  None if we
        have lost our place, and they may be somebody else's: they are to be given up, and then this is to be called
        again.  Raises FencedInstanceIdError, BrokerError, UnsupportedByBrokerError, TimedOutError; then it is to be
        called again, too.
        """
        ...

    def follow(self) -> None:
        """Note that the partitions given last are read from now on: commits are made in the name of that generation."""
        ...

    def has_now(self, owned: Sequence[TopicPartition], *, gave_up: bool) -> None:
        """Note which partitions the member has after those given were taken; `gave_up`: it had others until now."""
        ...

    def check_fenced(self, error: ErrorCode) -> None:
        """Raises FencedInstanceIdError if this error says that another consumer has our place."""
        ...

    def commit_was_refused(self, member: ConsumerGroupMetadata) -> None:
        """Note that the coordinator refused a commit of `member`, which this one was, as it does not know it."""
        ...

    @property
    def counted(self) -> Mapping[str, int]:
        """Topic -> number of its partitions when this member shared them out; empty unless it did."""
        ...

    def is_to_share_out(self, topics: Mapping[str, TopicView]) -> bool:
        """Whether a topic has another number of partitions than `counted` says."""
        ...

    async def leave(self) -> None:
        """Leave the group, which gives the partitions to others; a static member keeps its place for a while."""
        ...


def replaced_error(group_instance_id: str | None, group_id: str) -> FencedInstanceIdError:
    """The error of a member whose group_instance_id another one has joined with: it leaves its place to that one.

    Else the two would take the place from each other for ever.
    """
    return FencedInstanceIdError(
        f"another consumer with group_instance_id {group_instance_id!r} has joined group {group_id!r}: "
        "this one can do nothing more there. If both are meant to run, give each an id of its own"
    )
