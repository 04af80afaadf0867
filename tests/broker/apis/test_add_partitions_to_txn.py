"""AddPartitionsToTxn (24) and AddOffsetsToTxn (25), facts §3.1 to §3.5."""

from __future__ import annotations

import pytest
from tests.broker.group_talk import find_group
from tests.broker.wire import Client, add, clients, ended, find_coordinator, init, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest, AddPartitionsToTxnRequest
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
OLD, NEW = range(4), range(4, 6)
EVERY = range(6)


def several(client: Client, pair: ProducerIdAndEpoch, places: list[tuple[str, int]], version: int) -> list[int]:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, topics=topics
        )
        results = client.ask(request, version).results_by_topic
    else:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, topics=topics
        )
        answer = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
        results = answer.results_by_transaction[0].topic_results
    return [result.results_by_partition[0].partition_error_code for result in results]


def verify(client: Client, pair: ProducerIdAndEpoch, topic: str, version: int, transactional_id: str = "t") -> int:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
    result = answer.results_by_transaction[0].topic_results[0]
    return int(result.results_by_partition[0].partition_error_code)


@pytest.mark.parametrize("version", EVERY)
def test_a_partition_is_added_once_and_again(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    for _ in range(2):
        assert add(client, "t", pair, topic, version=version) == ErrorCode.NONE
    ended(client, "t", pair)


@pytest.mark.parametrize("version", EVERY)
def test_who_may_add(client: Client, version: int) -> None:
    topic = new_topic(client)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    old = init(client, "t")
    pair = init(client, "t")
    for name, other, error in [
        ("t", old, fenced),
        ("t", ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1), fenced),
        ("t", ProducerIdAndEpoch.of(pair.producer_id + 9, pair.producer_epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("unknown", pair, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", pair, ErrorCode.INVALID_REQUEST),
    ]:
        assert add(client, name, other, topic, version=version) == error, (name, other)


@pytest.mark.parametrize("version", EVERY)
def test_one_bad_partition_spoils_all(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    places = [(topic, 0), (topic, 1), ("unknown", 0)]
    unknown, left = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert several(client, pair, places, version) == [left, unknown, unknown]
    assert verify(client, pair, topic, 5) == ErrorCode.TRANSACTION_ABORTABLE, "nothing was added"


@pytest.mark.parametrize("version", OLD)
def test_internal_topics_are_not_for_producers(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    errors = several(client, pair, [("__transaction_state", 0), (topic, 0)], version)
    assert errors == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED]


@pytest.mark.parametrize("version", NEW)
def test_a_look_adds_nothing(client: Client, version: int) -> None:
    topic, other = new_topic(client), new_topic(client)
    old = init(client, "t")
    pair = init(client, "t")
    assert verify(client, pair, topic, version) == ErrorCode.TRANSACTION_ABORTABLE
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert verify(client, pair, topic, version) == ErrorCode.NONE
    assert verify(client, pair, other, version) == ErrorCode.TRANSACTION_ABORTABLE
    assert verify(client, old, topic, version) == ErrorCode.PRODUCER_FENCED
    assert verify(client, ProducerIdAndEpoch.of(99, 0), topic, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verify(client, pair, topic, version, "unknown") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verify(client, pair, topic, version, "") == ErrorCode.INVALID_REQUEST
    following = ended(client, "t", pair)
    assert verify(client, following, topic, version) == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("version", NEW)
def test_an_empty_batch_is_answered(client: Client, version: int) -> None:
    """Apache Kafka does not (facts §14)."""
    answer = client.ask(AddPartitionsToTxnRequest(), version)
    assert (answer.error_code, answer.results_by_transaction) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", NEW)
def test_each_transaction_of_a_batch_has_its_own_answer(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=pair.producer_id, producer_epoch=epoch, topics=topics
        )
        for name, epoch in [("unknown", 0), ("t", pair.producer_epoch), ("t", pair.producer_epoch + 1)]
    ]
    results = client.ask(AddPartitionsToTxnRequest(transactions=transactions), version).results_by_transaction
    errors = [result.topic_results[0].results_by_partition[0].partition_error_code for result in results]
    assert errors == [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]


# AddOffsetsToTxn


def add_offsets(client: Client, pair: ProducerIdAndEpoch, version: int, name: str = "t", group: str = "g") -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id=group
    )
    return int(client.ask(request, version).error_code)


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_are_added(client: Client, version: int) -> None:
    find_group(client)
    find_coordinator(client, "t")
    old = init(client, "t")
    pair = init(client, "t")
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert add_offsets(client, pair, version) == ErrorCode.NONE
    assert add_offsets(client, pair, version, group="") == ErrorCode.NONE, "as in Apache Kafka (facts §14)"
    assert add_offsets(client, old, version) == fenced
    assert add_offsets(client, ProducerIdAndEpoch.of(99, 0), version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_offsets(client, pair, version, "unknown") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_offsets(client, pair, version, "") == ErrorCode.INVALID_REQUEST
