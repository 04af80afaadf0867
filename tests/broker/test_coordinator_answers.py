"""Small things that a comparison with Apache Kafka found in the answers of the coordinators."""

from __future__ import annotations

import pytest
from tests.broker.group_talk import Who, commit, committed_offset, find_group, txn_commit
from tests.broker.wire import Client, clients, ended, find_coordinator, init, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListTransactionsRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

client = clients()


def group_state(client: Client, group: str) -> str:
    (found,) = client.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    return str(found.group_state)


def test_the_group_without_a_name_keeps_offsets(client: Client) -> None:
    """Old clients that use no group commit under "" (as they may in Apache Kafka)."""
    topic = new_topic(client)
    find_group(client, "")
    assert committed_offset(client, topic, group="") == (-1, 0)
    assert commit(client, topic, 7, group="", version=2) == [ErrorCode.NONE]
    assert committed_offset(client, topic, group="") == (7, 0)
    assert group_state(client, "") == "Empty"
    assert client.ask(DeleteGroupsRequest(groups_names=[""])).results[0].error_code == ErrorCode.NONE
    assert committed_offset(client, topic, group="") == (-1, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_group_stays_whatever_becomes_of_the_transaction_that_began_it(client: Client, committed: bool) -> None:
    topic = new_topic(client)
    find_group(client)
    pair = init(client, "t")
    member = Who("m", 3)
    assert txn_commit(client, "t", pair, topic, 7, who=member, version=5) == [ErrorCode.ILLEGAL_GENERATION]
    assert group_state(client, "g") == "Dead", "there is none yet"
    assert txn_commit(client, "t", pair, topic, 7, version=5) == [ErrorCode.NONE]
    pair = ended(client, "t", pair, commit=committed)
    assert group_state(client, "g") == "Empty"
    assert txn_commit(client, "t", pair, topic, 7, who=member, version=5) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_is_begun_by_an_offset_that_is_too_long(client: Client) -> None:
    topic = new_topic(client)
    find_group(client)
    pair = init(client, "t")
    too_long = txn_commit(client, "t", pair, topic, 7, metadata="x" * 4097, version=5)
    assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert group_state(client, "g") == "Empty"
    assert txn_commit(client, "t", pair, topic, 7, who=Who("m", 3), version=5) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(1, 7))
def test_a_coordinator_is_told_with_apache_kafkas_words(client: Client, version: int) -> None:
    answer = client.ask(FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"]), version)
    message = answer.error_message if version < 4 else answer.coordinators[0].error_message
    assert message == ("NONE" if version < 4 else "")


def test_an_unknown_state_is_told_once(client: Client) -> None:
    find_coordinator(client, "t")
    answer = client.ask(ListTransactionsRequest(state_filters=["No", "Empty", "No"], producer_id_filters=[]))
    assert (answer.error_code, answer.unknown_state_filters) == (ErrorCode.NONE, ["No"])


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("\\Qa.b\\E-.", ["a.b-1"]),
        ("\\Qa.b-1", ["a.b-1"]),
        ("(?<start>a.*)-1", ["a.b-1", "axb-1"]),
        ("(?i)A[.x]B-1", ["a.b-1", "axb-1"]),
        ("a\\\\Qb", []),
    ],
)
def test_patterns_are_written_as_java_writes_them(client: Client, pattern: str, found: list[str]) -> None:
    for name in ("a.b-1", "axb-1"):
        init(client, name)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    answer = client.ask(request, 2)
    assert answer.error_code == ErrorCode.NONE
    assert sorted(one.transactional_id for one in answer.transaction_states) == found


@pytest.mark.parametrize("verify", [True, False])
def test_a_partition_that_is_named_twice_is_verified_once(client: Client, verify: bool) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    one = AddPartitionsToTxnTransaction(
        transactional_id="t",
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        verify_only=verify,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 0])],
    )
    answer = client.ask(AddPartitionsToTxnRequest(transactions=[one]), 5)
    (told,) = answer.results_by_transaction[0].topic_results
    assert len(told.results_by_partition) == (1 if verify else 2)
