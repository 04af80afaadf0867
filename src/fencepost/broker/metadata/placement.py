"""The placement of a topic's partitions: how many there are, and a copy of each on this node.

What is asked for is checked as Apache Kafka checks it, in its order, although one node leaves little to choose.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.protocol.errors import ErrorCode

UNSAID = -1
"""A count that is left to the broker or to the assignment."""


def new_count(
    partitions: int, replication_factor: int, assigned: Sequence[tuple[int, Sequence[int]]], default: int, node: int
) -> int:
    """How many partitions a new topic gets.  Raises TopicRefused.

    `assigned` has for each partition the nodes that it shall be on; whoever says that leaves both counts unsaid.
    """
    if assigned:
        if (partitions, replication_factor) != (UNSAID, UNSAID):
            message = "where partitions are assigned to nodes, their number and the replication factor are -1"
            raise TopicRefused(ErrorCode.INVALID_REQUEST, message)
        for _, nodes in assigned:
            check_nodes(nodes, node)
        if sorted(index for index, _ in assigned) != list(range(len(assigned))):
            message = "partitions are assigned to nodes once each, from 0 on without a gap"
            raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return len(assigned)
    if replication_factor < UNSAID or replication_factor == 0:
        raise TopicRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor is 1 or -1, not {replication_factor}"
        )
    if partitions < UNSAID or partitions == 0:
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, f"a topic has at least one partition, not {partitions}")
    if replication_factor > 1:
        message = f"one node keeps one copy: the replication factor is 1, not {replication_factor}"
        raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return default if partitions == UNSAID else partitions


def check_more(assigned: Sequence[Sequence[int]] | None, have: int, count: int, node: int) -> None:
    """Raises TopicRefused if the partitions that make `have` to `count` may not go to the nodes assigned."""
    if assigned is None:
        return
    if len(assigned) != count - have:
        message = f"{len(assigned)} of the {count - have} new partitions are assigned to nodes: it must be all or none"
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for nodes in assigned:
        check_nodes(nodes, node)


def check_nodes(nodes: Sequence[int], node: int) -> None:
    """Raises TopicRefused if a partition cannot be on these nodes."""
    if list(nodes) != [node]:
        message = f"a partition has one copy, on node {node}, not on {list(nodes)}"
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
