"""A log that was put back from a copy, whose leader epochs are earlier ones, under a stream that accepts losses."""

from __future__ import annotations

from tests.spark.test_source_truncations import Cluster, Query

from fencepost.protocol.types import LeaderEpoch, Offset, TopicPartition


def test_a_leader_that_does_not_know_of_a_leader_epoch_is_asked_once_while_it_leads() -> None:
    """Each such question takes some time, and there is none for each look whether there is something to read."""
    cluster = Cluster()
    query = Query(cluster, False, None)
    for log in cluster.logs:
        log.append(range(3))
    copy = cluster.logs[0].copy()
    for log in cluster.logs:
        log.elect(3)
        log.append(range(3, 6))
    query.drain()
    cluster.logs[0] = copy
    copy.append(range(6, 9))
    assert not any(query.plan() for _ in range(3))
    unknown = {TopicPartition("t", 0): 1}
    assert cluster.asked == [unknown]
    cluster.logs[1].elect(6)  # whatever else is asked
    assert not any(query.plan() for _ in range(3))
    assert [TopicPartition("t", 0) in each for each in cluster.asked] == [True, False, False, False]
    copy.starts, copy.epoch = (
        [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(1), Offset(3)), (LeaderEpoch(2), Offset(5))],
        2,
    )  # another one, which knows of it
    query.drain()
    assert query.rows[len(query.log)] == [8]
