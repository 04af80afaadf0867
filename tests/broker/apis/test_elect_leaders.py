"""ElectLeaders: no partition needs another leader, one that is offline has none, and nonsense is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.broker.wire import Client, clients, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ElectLeadersRequest
from fencepost.protocol.messages.elect_leaders import ElectLeadersTopicPartitions

client = clients()

PREFERRED, UNCLEAN = 0, 1
VERSIONS: Final = (0, 1, 2)
NOT_NEEDED, NOT_THERE = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Answer = tuple[int, list[tuple[str, list[tuple[int, int]]]]]


def elect(
    client: Client,
    *topics: tuple[str, list[int]],
    election_type: int = PREFERRED,
    timeout_ms: int = 60_000,
    version: int = 2,
    every: bool = False,
) -> Answer:
    """The error of the whole, and of each partition under the name of its topic."""
    asked = [ElectLeadersTopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=None if every else asked, timeout_ms=timeout_ms
    )
    answer = client.ask(request, version)
    return answer.error_code, [
        (one.topic, [(each.partition_id, each.error_code) for each in one.partition_result])
        for one in answer.replica_election_results
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
def test_each_partition_that_is_named_has_its_leader_or_is_not_there(
    client: Client, election_type: int, version: int
) -> None:
    name, other = new_topic(client, partitions=2), new_topic(client)
    asked = [(other, [0]), ("never-made", [0]), (name, [1, 0, 1, 2, -1]), (other, []), (other, [0])]
    assert elect(client, *asked, election_type=election_type, version=version) == (
        ErrorCode.NONE,
        [
            (other, [(0, NOT_NEEDED)]),
            ("never-made", [(0, NOT_THERE)]),
            (name, [(1, NOT_NEEDED), (0, NOT_NEEDED), (1, NOT_NEEDED), (2, NOT_THERE), (-1, NOT_THERE)]),
            (other, []),
            (other, [(0, NOT_NEEDED)]),
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_of_all_topics_no_partition_is_told_that_has_its_leader(client: Client, version: int) -> None:
    name = new_topic(client)
    error, topics = elect(client, version=version, every=True)
    assert (error, dict(topics)[name]) == (ErrorCode.NONE, [])
    assert len(topics) == len(client.broker.node.topics.by_name)


REFUSED: Final[dict[str, tuple[dict[str, Any], ErrorCode]]] = {
    "too late": ({"timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT),
    "too late, and of no type": ({"timeout_ms": -1, "election_type": 2}, ErrorCode.REQUEST_TIMED_OUT),
    "of no type": ({"election_type": 2}, ErrorCode.INVALID_REQUEST),
    "of a negative type": ({"election_type": -1}, ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_meant_is_refused_for_the_whole_and_for_each_partition(
    client: Client, version: int, name: str
) -> None:
    changed, error = REFUSED[name]
    there = new_topic(client)
    asked = [(there, [0, 9]), ("never-made", []), (there, [0])]
    told = [(there, [(0, error), (9, error)]), ("never-made", []), (there, [(0, error)])]
    assert elect(client, *asked, **changed, version=version) == (error, told)
    assert elect(client, **changed, version=version, every=True) == (error, [])
    assert elect(client, **changed, version=version) == (ErrorCode.NONE, []), "nothing was asked for"


def test_the_oldest_version_has_no_error_of_the_whole(client: Client) -> None:
    late = ErrorCode.REQUEST_TIMED_OUT
    asked = [(new_topic(client), [0])]
    assert elect(client, *asked, timeout_ms=0, version=0) == (ErrorCode.NONE, [(asked[0][0], [(0, late)])])
    assert elect(client, timeout_ms=0, version=0, every=True) == (ErrorCode.NONE, [])


def test_a_long_name_is_not_told_once_more_for_each_partition(client: Client) -> None:
    request = ElectLeadersRequest(
        topic_partitions=[ElectLeadersTopicPartitions(topic="x" * 32_767, partitions=list(range(1000)))]
    )
    (answer,) = client.ask(request).replica_election_results
    assert {len(each.error_message) for each in answer.partition_result} == {len("there is no such partition")}
