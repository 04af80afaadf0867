"""Everything that can be read from both nodes, at once: ids, producers, records, offsets, offsets and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.compare.nodes import requests
from tests.compare.nodes.twins import Twins

from fencepost.protocol.messages import (
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
)
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic

TOPICS = ("twins-a", "twins-b")
"""Those whose records have the same order on both."""
UNORDERED = "twins-late"
"""What time-outs end: nobody knows in which order."""
OFFSETS = 50
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
_GROUP_STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead")
_BYTES = 1 << 24


def everything(twins: Twins, names: Sequence[str], groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """A title and what asks it; `names`: the ids at rest."""
    yield "DescribeTransactions", lambda: _described(twins, names)
    yield "ListTransactions", lambda: _listed(twins, names)
    yield "DescribeProducers", lambda: _producers(twins)
    yield "Fetch", lambda: _records(twins)
    yield "ListOffsets", lambda: _offsets(twins)
    yield "OffsetFetch", lambda: _committed_offsets(twins, groups)
    yield "groups", lambda: _groups(twins, groups)


def _described(twins: Twins, names: Sequence[str]) -> None:
    for some in (names[n : n + 100] for n in range(0, len(names), 100)):
        twins.ask(DescribeTransactionsRequest(transactional_ids=list(some)), 0)


def _listed(twins: Twins, names: Sequence[str]) -> None:
    known = set(names)

    def at_rest(answer: Any) -> Any:
        return answer | {"transaction_states": [one for one in _states(answer) if one["transactional_id"] in known]}

    for state in _STATES:
        twins.ask(requests.listing([state]), 1, told=at_rest)


def _states(answer: Any) -> list[Any]:
    found: list[Any] = answer.get("transaction_states", [])
    return found


def _producers(twins: Twins) -> None:
    places = [(topic, [0, 1]) for topic in TOPICS] + [("__consumer_offsets", list(range(OFFSETS)))]
    for topic, indexes in places:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=indexes)])
        twins.ask(request, 0, told=lambda answer, own=topic in TOPICS: _of_producers(answer, own))  # type: ignore[misc]


def _of_producers(answer: Any, own: bool) -> Any:
    """Sorted, without the clock's times; without offsets where other groups' records lie between."""
    told = {}
    for partition in answer["topics"][0]["partitions"]:
        producers = sorted(partition.get("active_producers", []), key=lambda one: int(one["producer_id"]))
        for one in producers:
            one["last_timestamp"] = one["last_timestamp"] > 0
            one["coordinator_epoch"] = one["coordinator_epoch"] >= 0
            if not own:
                one["current_txn_start_offset"] = one["current_txn_start_offset"] >= 0
        told[partition["partition_index"]] = (partition["error_code"], producers)
    return told


def _records(twins: Twins) -> None:
    for isolation in (0, 1):
        for topic in TOPICS:
            for offset in (0, 7, 100):
                asked = [
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_BYTES) for index in (0, 1)
                ]
                topics = [FetchTopic(topic=topic, partitions=asked)]
                request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=topics)
                twins.ask(request, 12, told=_of_records)


def _of_records(answer: Any) -> Any:
    if isinstance(answer, str):
        return answer
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            for batch in partition.get("records", []):
                batch["leader"] = batch["leader"] >= 0
                del batch["times"]
                if isinstance(batch["records"], list):
                    batch["records"] = [(*record[:1], *record[2:]) for record in batch["records"]]
                else:
                    batch["records"] = str(type(batch["records"]))
    return answer


def _offsets(twins: Twins) -> None:
    for isolation in (0, 1):
        for timestamp in (-1, -2, -4, 0):
            asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in (0, 1)]
            topics = [ListOffsetsTopic(name=topic, partitions=asked) for topic in TOPICS]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            twins.ask(request, 8, told=_of_offsets)


def _of_offsets(answer: Any) -> Any:
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["leader_epoch"] = partition["leader_epoch"] >= 0
            partition["timestamp"] = partition["timestamp"] > 0
    return answer


def _committed_offsets(twins: Twins, groups: Sequence[str]) -> None:
    for group in groups:
        for stable in (True, False):
            for wanted in ({"twins-a": [0, 1]}, None):
                twins.ask(requests.fetch([group], wanted, stable, 9), 9)


def _groups(twins: Twins, groups: Sequence[str]) -> None:
    known = set(groups)

    def ours(answer: Any) -> Any:
        return answer | {"groups": [one for one in answer.get("groups", []) if one["group_id"] in known]}

    for some in (groups[n : n + 50] for n in range(0, len(groups), 50)):
        twins.ask(DescribeGroupsRequest(groups=list(some), include_authorized_operations=True), 6)
    for states in ([], *([one] for one in _GROUP_STATES)):
        for types in ([], ["classic"], ["consumer"]):
            twins.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5, told=ours)
