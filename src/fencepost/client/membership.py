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
    """A member of a group: joins, says that it lives, and leaves."""

    group_id: str
    requests: GroupRequests
    is_cooperative: bool
    """Whether we keep our partitions while we join."""
    has_epochs: bool
    """Whether the generation of `metadata` is a member epoch (KIP-848)."""
    must_join: bool
    """The consumer is to (re)join before it reads on."""
    creates_topics: bool
    """Whether to have topics made that are not there, where the broker does that."""
    fenced: FencedInstanceIdError | None
    """Another consumer has our place: nothing can be done here any more."""
    polled_at: float
    """When records were asked for last, by the loop's clock, in seconds."""

    @property
    def has_lost_place(self) -> bool:
        """Whether we are no member: what we had may be somebody else's."""
        ...

    def metadata(self) -> ConsumerGroupMetadata:
        """Who we are in the group as far as it is followed, for transactions that commit our positions."""
        ...

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata | None:
        """What `member` is by now, with all of its partitions that were not given up; None: its place is lost."""
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
        """Note that what was given last is read from now on: commits are made in its name."""
        ...

    def has_now(self, owned: Sequence[TopicPartition], *, gave_up: bool) -> None:
        """Note that these are ours after what was given was taken; `gave_up`: some others were until now."""
        ...

    def check_fenced(self, error: ErrorCode) -> None:
        """Raises FencedInstanceIdError if this error says that another consumer has our place."""
        ...

    def commit_was_refused(self, member: ConsumerGroupMetadata) -> None:
        """Note that the coordinator does not know this member, who was us."""
        ...

    @property
    def counted(self) -> Mapping[str, int]:
        """Topics of the group and their partitions as they were shared out, if we were the one to do it."""
        ...

    def is_to_share_out(self, topics: Mapping[str, TopicView]) -> bool:
        """Whether a topic has other partitions than were counted."""
        ...

    async def leave(self) -> None:
        """Tell the others that we go; a static member keeps its place."""
        ...


def replaced_error(group_instance_id: str | None, group_id: str) -> FencedInstanceIdError:
    """The error of a member whose group_instance_id another one has joined with: it leaves its place to that one.

    Else the two would take the place from each other for ever.
    """
    return FencedInstanceIdError(
        f"another consumer with group_instance_id {group_instance_id!r} has joined group {group_id!r}: "
        "this one can do nothing more there. If both are meant to run, give each an id of its own"
    )
