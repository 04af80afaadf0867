"""Builds the heartbeats of a member: with everything when it joins, later only with what has changed (KIP-848).

Pure functions.  After a heartbeat that was not answered everything is told again: nobody knows what arrived.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.client.consumer_group.decisions import JOIN
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.consumer_group_heartbeat import TopicPartitions

#: A partition by the id of its topic.
Place = tuple[uuid.UUID, int]
_UNCHANGED: Final = -1

T = TypeVar("T")


class Standing(NamedTuple):
    """All that a member can say in a heartbeat: who it is, what it wants, and what it has."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    topics: tuple[str, ...] = ()
    """The names of the topics that it is subscribed to, sorted."""
    regex: str | None = None
    """RE2/J, which the coordinator holds names of topics against; None: `topics` are all."""
    owned: frozenset[Place] | None = frozenset()
    """The partitions that it has; None, in what the coordinator knows: the next heartbeat says them in any case."""


def heartbeat(now: Standing, sent: Standing | None, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """The next heartbeat of a member with this epoch; `sent`: what the coordinator knows, None: nothing for sure."""
    tells_all = sent is None or epoch == JOIN
    assert epoch != JOIN or not now.owned, "who joins has no partitions"

    def changed(value: T, before: T) -> T | None:
        return value if tells_all or value != before else None

    before = now if sent is None else sent
    timeout = changed(now.rebalance_timeout_ms, before.rebalance_timeout_ms)
    owned = changed(now.owned, before.owned)
    # An empty one takes a regular expression back.
    regex = changed(now.regex or "", before.regex or "")
    return ConsumerGroupHeartbeatRequest(
        group_id=now.group_id,
        member_id=now.member_id,
        member_epoch=epoch,
        instance_id=now.group_instance_id,
        rebalance_timeout_ms=_UNCHANGED if timeout is None else timeout,
        subscribed_topic_names=_listed(changed(now.topics, before.topics)),
        subscribed_topic_regex=regex,
        server_assignor=changed(now.server_assignor, before.server_assignor),
        topic_partitions=None if owned is None else by_topic(owned),
    )


def _listed(topics: Iterable[str] | None) -> list[str] | None:
    return None if topics is None else list(topics)


def by_topic(places: Iterable[Place]) -> list[TopicPartitions]:
    """Partitions, sorted, in the form of a request."""
    found: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(places):
        found.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]


def places_in(assignment: Any) -> frozenset[Place] | None:
    """The partitions that an answer assigns; None: those assigned before still hold."""
    if assignment is None:
        return None
    return frozenset((topic.topic_id, number) for topic in assignment.topic_partitions for number in topic.partitions)
