"""How many partitions a topic gets, and where they may be: Apache Kafka's checks, in its order."""

from __future__ import annotations

from itertools import product

import pytest

from fencepost.broker.metadata.placement import check_more, new_count
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.protocol.errors import ErrorCode

NODE, DEFAULT = 3, 8
HERE = [NODE]
ELSEWHERE: tuple[list[int], ...] = ([], [9], [NODE, NODE], [NODE, 9])


def refusal(partitions: int, replication_factor: int, assigned: list[tuple[int, list[int]]]) -> ErrorCode | int:
    try:
        return new_count(partitions, replication_factor, assigned, DEFAULT, NODE)
    except TopicRefused as refused:
        return refused.error


@pytest.mark.parametrize(("partitions", "replication_factor"), list(product((-2, -1, 0, 1, 5), (-2, -1, 0, 1, 2))))
def test_counts_without_an_assignment(partitions: int, replication_factor: int) -> None:
    """A replication factor that can be nowhere comes first, then the partitions, then what one node cannot have."""
    found = refusal(partitions, replication_factor, [])
    if replication_factor in (-2, 0):
        assert found is ErrorCode.INVALID_REPLICATION_FACTOR
    elif partitions in (-2, 0):
        assert found is ErrorCode.INVALID_PARTITIONS
    elif replication_factor == 2:
        assert found is ErrorCode.INVALID_REPLICATION_FACTOR
    else:
        assert found == (DEFAULT if partitions == -1 else partitions)


@pytest.mark.parametrize(("partitions", "replication_factor"), list(product((-1, 1, 2), (-1, 1))))
def test_an_assignment_goes_without_counts(partitions: int, replication_factor: int) -> None:
    unsaid = (partitions, replication_factor) == (-1, -1)
    assert refusal(partitions, replication_factor, [(1, HERE), (0, HERE)]) == (
        2 if unsaid else ErrorCode.INVALID_REQUEST
    )


@pytest.mark.parametrize("indexes", [(1,), (0, 2), (0, 0), (-1, 0)])
def test_partitions_are_assigned_once_each_and_without_a_gap(indexes: tuple[int, ...]) -> None:
    assert refusal(-1, -1, [(index, HERE) for index in indexes]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("nodes", ELSEWHERE)
def test_a_partition_has_one_copy_on_this_node(nodes: list[int]) -> None:
    assert refusal(-1, -1, [(0, HERE), (1, nodes)]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("assigned", "fits"),
    [
        (None, True),
        ([HERE, HERE], True),
        ([], False),
        ([HERE], False),
        *(([HERE, nodes], False) for nodes in ELSEWHERE),
    ],
)
def test_all_new_partitions_are_assigned_or_none(assigned: list[list[int]] | None, fits: bool) -> None:
    if fits:
        check_more(assigned, 2, 4, NODE)
        return
    with pytest.raises(TopicRefused) as refused:
        check_more(assigned, 2, 4, NODE)
    assert refused.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
