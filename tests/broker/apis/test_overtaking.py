"""Which requests of a connection later ones may overtake: the others are carried out before these begin."""

from __future__ import annotations

from typing import Final

from fencepost.broker.apis import __all__ as apis
from fencepost.broker.network.registry import SERVED

#: What may be overtaken, and why that is right.
OVERTAKEN: Final = {
    "it changes nothing": {
        *("Fetch", "ListOffsets", "OffsetFetch", "DescribeGroups", "ListGroups", "ApiVersions", "DescribeAcls"),
        *("DescribeLogDirs", "ListPartitionReassignments", "DescribeClientQuotas", "DescribeCluster"),
        "ElectLeaders",
        *("DescribeProducers", "DescribeTransactions", "ListTransactions", "DescribeTopicPartitions"),
    },
    "it waits for other clients, whose requests may come behind it": {"JoinGroup", "SyncGroup"},
    "it is carried out in one step, and waits for nothing but the disk": {"Heartbeat", "InitProducerId", "EndTxn"},
}


def test_whatever_changes_something_is_not_overtaken_by_what_the_client_sent_later() -> None:
    """Long work goes in steps: a client that sends on must not be told what was there in the middle of it."""
    assert len(SERVED) == len(apis)
    overtaken = {each.request.__name__.removesuffix("Request") for each in SERVED.values() if not each.in_turn}
    assert overtaken == set().union(*OVERTAKEN.values()), "it is in_turn, or it is said why it may be overtaken"
