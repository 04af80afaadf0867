"""TxnOffsetCommit (28), the tables of facts §7."""

from __future__ import annotations

import pytest
from tests.broker.group_talk import Who, alone, commit, committed_offset, find_group, join_request, txn_commit
from tests.broker.wire import Client, clients, ended, find_coordinator, init, new_topic, serving

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
EVERY = range(7)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def registered(
    client: Client, name: str = "t", group: str = "g", pair: ProducerIdAndEpoch | None = None
) -> ProducerIdAndEpoch:
    """A producer whose transaction has the offsets of a group, as older clients register them."""
    find_group(client, group)
    pair = pair or init(client, name)
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id=group
    )
    assert client.ask(request, 3).error_code == ErrorCode.NONE
    return pair


def beginning(client: Client, version: int) -> ProducerIdAndEpoch:
    return registered(client) if version < 5 else init(client, "t")


@pytest.mark.promise("2014.offsets")
@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_when_the_transaction_commits(client: Client, version: int, committed: bool) -> None:
    topic = new_topic(client, 2)
    pair = beginning(client, version)
    assert txn_commit(client, "t", pair, topic, 7, 8, version=version) == [0, 0]
    assert committed_offset(client, topic) == (-1, 0)
    assert committed_offset(client, topic, stable=True) == UNSTABLE
    assert txn_commit(client, "t", pair, topic, 9, version=version) == [0], "the later one counts"
    ended(client, "t", pair, commit=committed)
    for stable in (True, False):
        assert committed_offset(client, topic, stable=stable) == ((9, 0) if committed else (-1, 0))
        assert committed_offset(client, topic, 1, stable=stable) == ((8, 0) if committed else (-1, 0))


@pytest.mark.promise("890.implicit-offsets", "890.verified")
@pytest.mark.parametrize("version", EVERY)
def test_the_offsets_must_be_part_of_the_transaction(client: Client, version: int) -> None:
    """Facts §7.3."""
    find_group(client)
    topic = new_topic(client)
    pair = init(client, "t")
    missing = {4: ErrorCode.TRANSACTION_ABORTABLE, 5: ErrorCode.NONE, 6: ErrorCode.NONE}
    expected = missing.get(version, ErrorCode.INVALID_TXN_STATE)
    assert txn_commit(client, "t", pair, topic, 7, version=version) == [expected]
    assert committed_offset(client, topic, stable=True) == (UNSTABLE if version >= 5 else (-1, 0))


@pytest.mark.parametrize("version", EVERY)
def test_stale_and_foreign_producers(client: Client, version: int) -> None:
    topic = new_topic(client)
    old = registered(client)
    pair = init(client, "t")
    assert pair.producer_epoch == old.producer_epoch + 2, "the transaction of the one before was aborted"
    registered(client, pair=pair)
    for name, other, error in [
        ("t", old, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("t", ProducerIdAndEpoch.of(pair.producer_id + 50, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("unknown", pair, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", pair, ErrorCode.INVALID_REQUEST),
    ]:
        assert txn_commit(client, name, other, topic, 7, version=version) == [error], (name, other)
    assert committed_offset(client, topic, stable=True) == (-1, 0)


@pytest.mark.parametrize("version", EVERY)
def test_a_commit_of_a_finished_transaction_is_late(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = beginning(client, version)
    assert txn_commit(client, "t", pair, topic, 7, version=version) == [0]
    ended(client, "t", pair)
    assert txn_commit(client, "t", pair, topic, 8, version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert committed_offset(client, topic, stable=True) == (7, 0)


@pytest.mark.parametrize("version", EVERY)
def test_unknown_partitions_and_groups(client: Client, version: int) -> None:
    """Facts §7.2: checks 4 and 6 come before verification."""
    topic = new_topic(client)
    pair = beginning(client, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn_commit(client, "t", pair, "unknown", 7, version=version) == [unknown]
    answer = txn_commit(client, "t", pair, topic, 7, 8, version=version)
    assert answer == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert txn_commit(client, "", pair, topic, 7, group="", version=version) == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("version", EVERY)
def test_metadata_that_is_too_long_leaves_no_trace(client: Client, version: int) -> None:
    """KAFKA-16371: the refused partition must not stay pending."""
    topic = new_topic(client)
    pair = beginning(client, version)
    for length, error in [(4097, ErrorCode.OFFSET_METADATA_TOO_LARGE), (4096, ErrorCode.NONE)]:
        assert txn_commit(client, "t", pair, topic, 7, metadata="m" * length, version=version) == [error]
        assert committed_offset(client, topic, stable=True) == ((-1, 0) if error else UNSTABLE)


# Facts §7.4: who may commit for a group


@pytest.mark.parametrize("version", range(3, 7))
def test_a_group_that_is_not_there(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = beginning(client, version)
    absent = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION
    somebody = Who("somebody", 5)
    for who, error in [(somebody, absent), (Who("", 0), absent), (Who(), 0), (somebody, ErrorCode.UNKNOWN_MEMBER_ID)]:
        assert txn_commit(client, "t", pair, topic, 7, who=who, version=version) == [error]


@pytest.mark.parametrize("version", range(3, 7))
def test_a_group_with_a_member(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = beginning(client, version)
    member = alone(client, instance="i")
    for who, error in [
        (member, ErrorCode.NONE),
        (Who(member.member_id, member.generation), ErrorCode.NONE),
        (Who(), ErrorCode.NONE),
        (Who(member.member_id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (Who(member.member_id, member.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        (Who("somebody", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (Who("somebody", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (Who("somebody", member.generation, "i"), ErrorCode.FENCED_INSTANCE_ID),
        (Who(member.member_id, member.generation, "j"), ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert txn_commit(client, "t", pair, topic, 7, who=who, version=version) == [error], who


@pytest.mark.parametrize("version", range(3, 7))
def test_a_rebalance_holds_up_no_transactional_commit(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = beginning(client, version)
    member = alone(client)
    other = Client(client.broker)
    other.send(join_request(), version=3)
    assert other.silent_for(0.05), "it waits for the member to join again"
    assert txn_commit(client, "t", pair, topic, 7, who=member, version=version) == [ErrorCode.NONE]
    other.close()


# Facts §7.6: pending offsets


def test_the_most_recent_record_wins(client: Client) -> None:
    """KAFKA-14505: not the most recent marker."""
    topic = new_topic(client, 2)
    find_group(client)
    pair = init(client, "t")
    assert commit(client, topic, 1, 1) == [0, 0]
    assert txn_commit(client, "t", pair, topic, 5, 5) == [0, 0]
    assert commit(client, topic, 3) == [0]
    assert committed_offset(client, topic, stable=True) == UNSTABLE
    assert committed_offset(client, topic) == (3, 0)
    ended(client, "t", pair)
    assert committed_offset(client, topic, stable=True) == (3, 0)
    assert committed_offset(client, topic, 1, stable=True) == (5, 0)


def test_two_transactions_for_one_offset(client: Client) -> None:
    topic = new_topic(client)
    find_group(client)
    one, two = init(client, "one"), init(client, "two")
    assert txn_commit(client, "one", one, topic, 5) == [0]
    assert txn_commit(client, "two", two, topic, 9) == [0]
    ended(client, "two", two)
    assert committed_offset(client, topic, stable=True) == UNSTABLE
    assert committed_offset(client, topic) == (9, 0)
    ended(client, "one", one)
    assert committed_offset(client, topic, stable=True) == (9, 0), "its record is the older one"


def test_a_deleted_offset_does_not_come_back(client: Client) -> None:
    topic = new_topic(client)
    find_group(client)
    pair = init(client, "t")
    assert commit(client, topic, 1) == [0]
    assert txn_commit(client, "t", pair, topic, 5) == [0]
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)])
    assert client.ask(request).error_code == ErrorCode.NONE
    ended(client, "t", pair)
    assert committed_offset(client, topic, stable=True) == (-1, 0)


def test_a_partition_named_twice_is_answered_twice_and_the_last_counts(client: Client) -> None:
    topic = new_topic(client)
    find_group(client)
    pair = init(client, "t")
    topics = [
        TxnOffsetCommitRequestTopic(
            name=topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        for offset in (5, 6)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        topics=topics,
    )
    answer = client.ask(request, 5)
    assert [each.partitions[0].error_code for each in answer.topics] == [0, 0]
    ended(client, "t", pair)
    assert committed_offset(client, topic, stable=True) == (6, 0)


@pytest.mark.promise("890.switch")
@pytest.mark.parametrize("version", [0, 3, 4])
def test_without_verification_older_clients_are_trusted(version: int) -> None:
    with serving(transaction_partition_verification_enable=False) as broker:
        client = Client(broker)
        find_coordinator(client, "g", 0)
        topic = new_topic(client)
        pair = init(client, "t")
        assert txn_commit(client, "t", pair, topic, 7, version=version) == [0]
        client.close()


def test_a_position_has_the_leader_epoch_that_it_was_committed_with(client: Client) -> None:
    topic = new_topic(client)
    for version in EVERY:
        pair = beginning(client, version)
        assert txn_commit(client, "t", pair, topic, version, version=version) == [0]
        ended(client, "t", pair)
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        (found,) = client.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])]), 9
        ).groups
        (position,) = found.topics[0].partitions
        known = 3 if version >= 2 else -1  # older requests have none
        assert (position.committed_offset, position.committed_leader_epoch) == (version, known)
