"""ElectLeaders (43): have partitions led by their preferred replica, or by one that is behind (KIP-460).

A partition has one replica: it leads where it can, and where it cannot nobody else could.  Apache Kafka answers the
same where each partition has one replica.

v1    either type of election; an error of the whole
v2    flexible
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.offline import OfflinePartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from fencepost.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersTopicPartitions,
    ReplicaElectionResult,
)
from fencepost.protocol.steps import FIRST_STEP, ITEM, Pace, Steps, each

_PREFERRED, _UNCLEAN = 0, 1
_Refusal = tuple[ErrorCode, str | None]
# The texts name nothing: a request may name a topic of 32,767 letters, and so many partitions of it.
_NOT_NEEDED: Final[_Refusal] = (ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads it")
_NOT_THERE: Final[_Refusal] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
#: type of election -> the answer for a partition whose only replica is offline
_OFFLINE: Final[dict[int, _Refusal]] = {
    _PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "its only replica is offline"),
    _UNCLEAN: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "its only replica is offline"),
}


@serves(ElectLeadersRequest)
@in_steps
def elect_leaders(request: ElectLeadersRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace(FIRST_STEP)
    refusal = _of_the_whole(request, context)
    if refusal is not None:
        results = yield from _all_refused(request.topic_partitions or [], refusal, pace)
        return independent(ElectLeadersResponse(error_code=refusal[0], replica_election_results=results))
    if request.topic_partitions is None:
        results = yield from _of_all(request.election_type, node, pace)
    else:
        results = []
        for asked in request.topic_partitions:
            answer = partial(_elect, asked.topic, request.election_type, node)
            found = yield from each(asked.partitions, answer, pace)
            results.append(ReplicaElectionResult(topic=asked.topic, partition_result=found))
            yield from pace.spend(ITEM)
    return independent(ElectLeadersResponse(replica_election_results=results))


def _of_the_whole(request: ElectLeadersRequest, context: RequestContext) -> _Refusal | None:
    """Why the whole of a request is refused, looked for in Apache Kafka's order; None if it is not."""
    if not context.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    if request.topic_partitions == []:
        return None
    if request.timeout_ms <= 0:
        return ErrorCode.REQUEST_TIMED_OUT, None
    if request.election_type not in _OFFLINE:
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    return None


def _all_refused(
    topics: list[ElectLeadersTopicPartitions], refusal: _Refusal, pace: Pace
) -> Steps[list[ReplicaElectionResult]]:
    """The same error for every partition that a request names."""
    results = []
    for asked in topics:
        refused = yield from each(asked.partitions, lambda index: _result(index, *refusal), pace)
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=refused))
        yield from pace.spend(ITEM)
    return results


def _of_all(election_type: int, node: Node, pace: Pace) -> Steps[list[ReplicaElectionResult]]:
    """The results of an election in every topic: of its partitions that have no leader, nothing of the others."""
    results = []
    for topic in list(node.topics.by_name.values()):
        offline = [
            _result(partition.index, *_OFFLINE[election_type])
            for partition in topic.partitions
            if isinstance(partition, OfflinePartition)
        ]
        results.append(ReplicaElectionResult(topic=topic.name, partition_result=offline))
        yield from pace.spend(ITEM + len(topic.partitions))
    return results


def _elect(name: str, election_type: int, node: Node, index: int) -> ElectLeadersPartitionResult:
    topic = node.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return _result(index, *_NOT_THERE)
    offline = isinstance(topic.partitions[index], OfflinePartition)
    return _result(index, *(_OFFLINE[election_type] if offline else _NOT_NEEDED))


def _result(index: int, error: ErrorCode, message: str | None) -> ElectLeadersPartitionResult:
    return ElectLeadersPartitionResult(partition_id=index, error_code=error, error_message=message)
